"""A text with marks: what is left of Markdown once a platform's own form is to be made of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class SpanKind(StrEnum):
    """What a stretch of text is."""

    HEADING = "heading"
    BOLD = "bold"
    ITALIC = "italic"
    STRIKE = "strike"
    CODE = "code"
    """A word of code within a line."""
    LINK = "link"
    BLOCK = "block"
    """Lines of code. Nothing is marked inside."""
    TABLE = "table"
    """A table whose columns are aligned: it is meant for letters of one width. Nothing is marked inside."""
    QUOTE = "quote"


BLOCK_KINDS = frozenset({SpanKind.BLOCK, SpanKind.TABLE})
"""Whose white space is part of what they say."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a text, from `start` up to, but not including `end`; both in characters as Python counts them."""

    kind: SpanKind
    start: int
    end: int
    info: str = ""
    """The address of a link, the language of a block of code (empty: not said), the level of a heading (`1` to `6`)."""


@dataclass(frozen=True, slots=True)
class RichText:
    """A text without any markup, and what its stretches are.

    Spans are in order (an outer one before those in it), lie within the text, are never empty, and of two that overlap one holds the other,
    which is of another kind. But for blocks and tables none begins or ends with white space."""

    text: str
    spans: Sequence[Span] = ()

    @property
    def plain(self) -> str:
        """What a reader reads where nothing can be marked."""
        return self.text

    def slice(self, start: int, end: int) -> RichText:
        """A part of it. What is cut through is closed at the part's end, and open again at the start of the next: a block of code stays
        one, with its language."""
        begun = bisect_left(self.spans, end, key=lambda span: span.start)
        return RichText(self.text[start:end], clip_spans([span for span in self.spans[:begun] if span.end > start], start, end))


def clip_spans(spans: Sequence[Span], start: int, end: int) -> Sequence[Span]:
    """Spans that overlap a part of a text, as spans of that part."""
    return [Span(span.kind, max(span.start, start) - start, min(span.end, end) - start, span.info) for span in spans]


SizeFunction = Callable[[RichText], int]
"""How much room a document takes at a platform. At least one for each character, and more for more of the same document."""


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
    """How many UTF-16 code units a text takes."""
    return len(text.encode("utf-16-le")) // 2
