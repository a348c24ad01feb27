"""The time that Hermes goes by."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The port Clock: the time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)
