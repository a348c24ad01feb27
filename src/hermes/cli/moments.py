"""Times as an operator writes them: a moment, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from hermes.cli.output import fail

AGO_PATTERN = re.compile(r"(\d+)\s*([mhdw])")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str) -> datetime:
    """Read a moment, `2026-11-15T12:00` (UTC unless it has an offset), or a time before now, `24h`."""
    try:
        if ago := AGO_PATTERN.fullmatch(text.strip()):
            return datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        fail(f"--since {text!r} is not a time; expected 2026-11-15, 2026-11-15T12:00 (UTC unless it has an offset), or 90m, 24h, 7d, 2w")
