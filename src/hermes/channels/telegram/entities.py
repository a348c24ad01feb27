"""Rich text as Telegram's text and entities, whose offsets count UTF-16 code units.

What Telegram demands of entities, and how they come to meet it:

- Of two that overlap, one contains the other: spans already do.
- `pre` and `code` contain nothing, and bold, italic or struck text contains neither of them: it is interrupted around them.
- A link, code and a block of code do not contain each other: a link stays a link, and the code in it becomes text.
- No quote in a quote, and no entity in one of its own kind: spans have neither; a heading and the bold text in it become one entity."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes.channels.text import RichText, Span, SpanKind, utf16_length

MAX_ENTITIES = 100
"""In one message. Telegram silently drops the others."""

OVER_LIMIT_SIZE = 1 << 20

_TYPES = {
    SpanKind.HEADING: "bold",
    SpanKind.BOLD: "bold",
    SpanKind.ITALIC: "italic",
    SpanKind.STRIKE: "strikethrough",
    SpanKind.LINK: "text_link",
    SpanKind.CODE: "code",
    SpanKind.BLOCK: "pre",
    SpanKind.TABLE: "pre",
    SpanKind.QUOTE: "blockquote",
}
_MONOSPACED = frozenset({SpanKind.CODE, SpanKind.BLOCK, SpanKind.TABLE})
_INTERRUPTED = frozenset({SpanKind.HEADING, SpanKind.BOLD, SpanKind.ITALIC, SpanKind.STRIKE})
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def message_body(rich_text: RichText) -> Mapping[str, Any]:
    """The body of a message: `text`, and `entities` if there are any."""
    found = entities_of(rich_text)
    return {"text": rich_text.text, "entities": found} if found else {"text": rich_text.text}


def message_size(rich_text: RichText) -> int:
    """The length in UTF-16 code units, or more than any limit if there are too many entities."""
    length, code = utf16_length(rich_text.text), sum(1 for span in rich_text.spans if span.kind is SpanKind.CODE)
    # A span of code interrupts at most one span of each of the four kinds. So few spans are few entities, and need no exact count.
    if len(rich_text.spans) + len(_INTERRUPTED) * code <= MAX_ENTITIES or sum(1 for _ in _allowed_spans(rich_text)) <= MAX_ENTITIES:
        return length
    return length + OVER_LIMIT_SIZE


def entities_of(rich_text: RichText) -> Sequence[Mapping[str, Any]]:
    """The entities of a text, in order: an outer one before those in it."""
    # Telegram counts each of these characters as two, Python as one. So an offset grows by the number of them before it.
    wide = [found.start() for found in _ASTRAL.finditer(rich_text.text)]

    def offset(index: int) -> int:
        return index + bisect_left(wide, index)

    return [
        {
            "type": _TYPES[span.kind],
            "offset": offset(span.start),
            "length": offset(span.end) - offset(span.start),
            **({"url": span.info} if span.kind is SpanKind.LINK else {}),
            **({"language": span.info} if span.kind is SpanKind.BLOCK and span.info else {}),
        }
        for span in sorted(_allowed_spans(rich_text), key=lambda span: (span.start, -span.end))
    ]


def _allowed_spans(rich_text: RichText) -> Iterator[Span]:
    spans = rich_text.spans
    links = [span for span in spans if span.kind is SpanKind.LINK]
    headings = [span for span in spans if span.kind is SpanKind.HEADING]
    code = [span for span in spans if span.kind in _MONOSPACED and not _is_in_any(span, links)]
    for span in spans:
        if span.kind in _INTERRUPTED:
            if span.kind is not SpanKind.BOLD or not _is_in_any(span, headings):
                yield from _cut_out_code(span, code, rich_text.text)
        elif span.kind is SpanKind.LINK:
            if rich_text.text[span.start : span.end] != span.info:  # Telegram makes a link of a URL in the text by itself
                yield span
        elif span.kind not in _MONOSPACED or not _is_in_any(span, links):
            yield span


def _is_in_any(span: Span, others: Sequence[Span]) -> bool:
    """Whether one of the other spans, which do not overlap, contains this one."""
    last = bisect_left(others, span.start + 1, key=lambda other: other.start) - 1
    return last >= 0 and span.end <= others[last].end


def _cut_out_code(span: Span, code: Sequence[Span], text: str) -> Iterator[Span]:
    """The pieces of a span between the code in it, without white space at their ends."""
    start = span.start
    first = bisect_left(code, start, key=lambda other: other.start)
    for hole in (*code[first : bisect_left(code, span.end, key=lambda other: other.start)], Span(span.kind, span.end, span.end)):
        piece = text[start : hole.start]
        if piece.strip():
            begin = start + len(piece) - len(piece.lstrip())
            yield Span(span.kind, begin, begin + len(piece.strip()), span.info)
        start = hole.end
