"""How a document is written where a platform has no mark for something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How things are written for which there is no mark."""

    bullet: str = "• "
    """Before an item of a list without numbers."""
    quote: str = ""
    """Before every line of a quote, for platforms that cannot mark one."""
    rule: str = "———"
    """For a line across the page."""
    spell_links: bool = False
    """The address is written behind a link's text, for platforms without links; the span is then the address."""
    table_width: int = 42
    """The widest table that is aligned, in columns; wider ones become lines, a row each. 0: always lines."""
