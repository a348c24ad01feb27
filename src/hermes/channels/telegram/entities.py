"""A document as Telegram's text and entities, whose places count UTF-16 code units.

What Telegram demands of them, and what is done for it:

- Of two that overlap one holds the other: spans do.
- Nothing else within `pre` and `code`, and neither of them within bold, italic or struck text: that is interrupted around them.
- A link, code and a block of code do not hold each other: a link stays one, and the code in it is text.
- No quote within a quote, and nothing within its own kind: spans have neither; a heading and what is bold in it are one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes.channels.text import RichText, Span, SpanKind, utf16_length

MAX_ENTITIES = 100
"""Of one message. Telegram leaves out the others without a word."""

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
    """A part of an answer as what is sent: `text`, and `entities` if there are any."""
    found = entities_of(rich_text)
    return {"text": rich_text.text, "entities": found} if found else {"text": rich_text.text}


def message_size(rich_text: RichText) -> int:
    """How much room a document takes: UTF-16 code units, and more than there is if it has too many entities."""
    length, code = utf16_length(rich_text.text), sum(1 for span in rich_text.spans if span.kind is SpanKind.CODE)
    # Code interrupts at most what each of the four kinds of lettering marks, so few spans are few entities, and need not be counted.
    if len(rich_text.spans) + len(_INTERRUPTED) * code <= MAX_ENTITIES or sum(1 for _ in _allowed_spans(rich_text)) <= MAX_ENTITIES:
        return length
    return length + OVER_LIMIT_SIZE


def entities_of(rich_text: RichText) -> Sequence[Mapping[str, Any]]:
    """What is marked in a text, in order, an outer one before those in it."""
    # Telegram counts those two for one that Python counts once, so a place moves by as many as stand before it.
    wide = [found.start() for found in _ASTRAL.finditer(rich_text.text)]

    def place(index: int) -> int:
        return index + bisect_left(wide, index)

    return [
        {
            "type": _TYPES[span.kind],
            "offset": place(span.start),
            "length": place(span.end) - place(span.start),
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
            if rich_text.text[span.start : span.end] != span.info:  # an address in the text is a link by itself
                yield span
        elif span.kind not in _MONOSPACED or not _is_in_any(span, links):
            yield span


def _is_in_any(span: Span, others: Sequence[Span]) -> bool:
    """Whether one of several that do not overlap holds a span."""
    last = bisect_left(others, span.start + 1, key=lambda other: other.start) - 1
    return last >= 0 and span.end <= others[last].end


def _cut_out_code(span: Span, code: Sequence[Span], text: str) -> Iterator[Span]:
    """What is left of a span without the code in it, and without white space at the ends."""
    start = span.start
    first = bisect_left(code, start, key=lambda other: other.start)
    for hole in (*code[first : bisect_left(code, span.end, key=lambda other: other.start)], Span(span.kind, span.end, span.end)):
        piece = text[start : hole.start]
        if piece.strip():
            begin = start + len(piece) - len(piece.lstrip())
            yield Span(span.kind, begin, begin + len(piece.strip()), span.info)
        start = hole.end
