"""A model's Markdown as text for a phone: Markdown in, rich text (a text and its spans) out, split to a platform's limit.

    read_markdown(markdown)  →  RichText  →  split(rich_text, limit, size)  →  RichText parts  →  each platform's own markup

rich_text   the text, its spans, and its length in each platform's unit; how to write what a platform has no markup for
writer      writes the parser's tokens as rich text
markdown    a Markdown parser for the way models write
split       splits rich text to a limit and keeps together what belongs together

Knows no platform. A platform that lacks a kind of markup leaves that span out. A platform whose markup is part of the text writes it around
the spans of each part and counts it:

    style = Style(bullet="- ", spell_links=True)
    parts = split(read_markdown(answer, style), 4096, lambda part: len(with_marks(part)))
"""

from hermes.channels.text.markdown import read_markdown
from hermes.channels.text.rich_text import (
    BLOCK_KINDS,
    RichText,
    SizeFunction,
    Span,
    SpanKind,
    Style,
    count_characters,
    count_utf8_bytes,
    count_utf16_units,
    utf16_length,
)
from hermes.channels.text.split import split

__all__ = [
    "BLOCK_KINDS",
    "RichText",
    "SizeFunction",
    "Span",
    "SpanKind",
    "Style",
    "count_characters",
    "count_utf8_bytes",
    "count_utf16_units",
    "read_markdown",
    "split",
    "utf16_length",
]
