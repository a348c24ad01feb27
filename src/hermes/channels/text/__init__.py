"""What models write, for people to read on a phone: Markdown in, a text with marked stretches out, cut where a platform demands it.

    read(markdown)  →  Document (text + spans)  →  split(document, limit, size)  →  Documents  →  each platform's own markup

document   the text, its spans, and how much room it takes in each platform's unit
markdown   a parser that knows how models write
style      how things are written for which a platform has no mark
writer     what the parser found, written down
tables     rows as aligned columns, or as lines where those are too wide
split      cut to a limit without breaking what belongs together
clusters   where a text may be cut at all

Knows no platform. A platform without a kind of markup leaves that span out; one with markup in the text writes it around the spans of each
part and counts it:

    style = Style(bullet="- ", spell_links=True)
    parts = split(read(answer, style), 4096, lambda part: len(with_marks(part)))
"""

from hermes.channels.text.read_markdown import read_markdown
from hermes.channels.text.rich_text import (
    BLOCK_KINDS,
    RichText,
    SizeFunction,
    Span,
    SpanKind,
    count_characters,
    count_utf8_bytes,
    count_utf16_units,
    utf16_length,
)
from hermes.channels.text.split import split
from hermes.channels.text.style import Style

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
