"""Rich text: a text without markup and the spans that are marked in it. Each platform makes its own markup from it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class SpanKind(StrEnum):
    """How a span of text is marked."""

    HEADING = "heading"
    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    """Code within a line."""
    LINK = "link"
    BLOCK = "block"
    """Lines of code. It contains no other span."""
    TABLE = "table"
    """A table with aligned columns, for a monospaced font. It contains no other span."""
    QUOTE = "quote"


BLOCK_KINDS = frozenset({SpanKind.BLOCK, SpanKind.TABLE})
"""Kinds whose white space is part of the content."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a text from `start` up to, but not including, `end`. Both count characters as Python does."""

    kind: SpanKind
    start: int
    end: int
    info: str = ""
    """The URL of a link, the language of a block of code (empty: unknown), the level of a heading (`1` to `6`)."""


@dataclass(frozen=True, slots=True)
class RichText:
    """A text without any markup, and its spans.

    Spans are in order (an outer span before those in it), lie within the text and are never empty. If two overlap, one contains the other
    and they are of different kinds. Except for blocks and tables, no span begins or ends with white space."""

    text: str
    spans: Sequence[Span] = ()

    @property
    def plain(self) -> str:
        """The text for platforms that can mark nothing."""
        return self.text

    def slice(self, start: int, end: int) -> RichText:
        """A part of it. A span that is cut ends at the end of this part and begins again at the start of the next: a block of code stays a
        block of code, with its language."""
        begun = bisect_left(self.spans, end, key=lambda span: span.start)
        return RichText(self.text[start:end], clip_spans([span for span in self.spans[:begun] if span.end > start], start, end))


def clip_spans(spans: Sequence[Span], start: int, end: int) -> Sequence[Span]:
    """Spans that overlap a part of a text, as spans of that part."""
    return [Span(span.kind, max(span.start, start) - start, min(span.end, end) - start, span.info) for span in spans]


SizeFunction = Callable[[RichText], int]
"""The length of rich text as a platform counts it. At least one for each character, and larger for more of the same text."""


def count_characters(rich_text: RichText) -> int:
    """Characters, as WhatsApp and Python count them."""
    return len(rich_text.text)


def count_utf16_units(rich_text: RichText) -> int:
    """UTF-16 code units, as Telegram counts."""
    return utf16_length(rich_text.text)


def count_utf8_bytes(rich_text: RichText) -> int:
    """UTF-8 bytes, as Instagram counts."""
    return len(rich_text.text.encode())


def utf16_length(text: str) -> int:
    """How many UTF-16 code units a text has."""
    return len(text.encode("utf-16-le")) // 2


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
