"""Tables for platforms that have none: as aligned columns in a monospaced font, or as lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hermes.channels.text.rich_text import RichText, Span, SpanKind


def align_columns(rows: Sequence[Sequence[str]], sides: Sequence[str]) -> Sequence[str]:
    """Lines with aligned columns. The first row is the heading; a side is `right`, `center`, or anything else for left."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(display_width, column)) for column in zip(*cells, strict=True)]
    head, *body = (" | ".join(map(_pad, row, widths, sides)).rstrip() for row in cells)
    return [head, "-+-".join("-" * width for width in widths), *body]


def rows_as_lines(rows: Sequence[Sequence[RichText]]) -> Iterator[tuple[RichText, bool]]:
    """Yield one line for each cell, `heading: cell`, the first of a row in bold; and whether the line starts a row."""
    heads, *body = rows
    for row in body or [heads]:
        starts_row = True
        for head, cell in zip(heads, row, strict=True):
            if not cell.text.strip():
                continue
            lead = f"{head.text}: " if head.text.strip() and row is not heads else ""
            spans = [replace(span, start=span.start + len(lead), end=span.end + len(lead)) for span in cell.spans]
            text = lead + cell.text
            if starts_row:
                spans = [Span(SpanKind.BOLD, 0, len(text)), *(span for span in spans if span.kind is not SpanKind.BOLD)]
            yield RichText(text, spans), starts_row
            starts_row = False


def display_width(text: str) -> int:
    """How many columns of a monospaced font a text takes: East Asian characters and emoji two, combining marks none."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(sign) in "WF" else 0 if unicodedata.category(sign) in ("Mn", "Me", "Cf") else 1 for sign in text
    )


def _pad(text: str, width: int, side: str) -> str:
    missing = width - display_width(text)
    before = missing if side == "right" else missing // 2 if side == "center" else 0
    return " " * before + text + " " * (missing - before)
