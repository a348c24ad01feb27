"""Times as an operator writes them at the command line."""

from __future__ import annotations

from datetime import UTC, datetime

from hermes.cli.output import fail
from hermes.console import moments


def parse_moment(text: str) -> datetime:
    """Read a moment, `2026-11-15T12:00` (UTC unless it has an offset), or a time before now, `24h`."""
    try:
        return moments.parse_moment(text, datetime.now(UTC))
    except ValueError as error:
        fail(f"--since {error}")
