"""Times as operators write them, the same on every face: a moment, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

AGO_PATTERN = re.compile(r"(\d{1,6})\s*([mhdw])")
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
EXPECTED_TIME = "expected 2026-11-15, 2026-11-15T12:00 (UTC unless it has an offset), or 90m, 24h, 7d, 2w"


def parse_moment(text: str, now: datetime) -> datetime:
    """Read a moment, `2026-11-15T12:00` (UTC unless it has an offset), or a time before now, `24h`. Raises ValueError otherwise."""
    words = text.strip()
    try:
        if ago := AGO_PATTERN.fullmatch(words):
            return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        # In an address a plus sign is a space.
        moment = datetime.fromisoformat(words.replace(" ", "+") if words.count(" ") == 1 and "T" in words else words)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:50]!r} is not a time; {EXPECTED_TIME}") from None
