"""Numbers about model calls, for whoever watches."""

from __future__ import annotations

from typing import Protocol

from hermes.ports.calls import Call


class Meter(Protocol):
    """Counts calls. Never on the message path: it neither raises nor waits."""

    def count(self, call: Call) -> None:
        """Count a call that has ended, with its attempts, tokens and cost."""
        ...
