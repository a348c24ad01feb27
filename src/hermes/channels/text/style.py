"""How rich text is written for a platform that lacks a kind of markup."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How to write what a platform has no markup for."""

    bullet: str = "• "
    """Before an item of a list without numbers."""
    quote: str = ""
    """Before every line of a quote, for platforms that cannot mark one."""
    rule: str = "———"
    """For a horizontal rule."""
    spell_links: bool = False
    """The URL is written after a link's text, for platforms without links; the span is then the URL."""
    table_width: int = 42
    """The widest table with aligned columns, in characters; in a wider one each cell becomes a line. 0: always lines."""
