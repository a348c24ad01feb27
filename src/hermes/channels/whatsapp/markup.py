"""WhatsApp's own marks in a text, and signs that must not become any.

    *bold*  _italic_  ~strike~  `code`  ```lines of code```  > quote  - item  1. item

A heading is bold, an address is written behind its link's text. WhatsApp reads a mark only at the edge of a word and within one line, and
there is no way to escape one. So:

- A stretch over several lines is marked on each of them.
- A stretch that begins or ends within a word, or ends with an address (which would swallow the mark), is not marked; nor is one around an
  address or code with the mark's own sign in it.
- A sign that a reader would take for a mark is replaced by its twin, which looks the same. A lone asterisk, a sum and a
  name_like_this stay as they are, and so does every address. In code nothing is replaced.
- A > at the start of a line gets an invisible sign before it."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hermes.channels.text import BLOCK_KINDS, RichText, Span, SpanKind, Style

STYLE = Style(bullet="- ", spell_links=True, table_width=36)

SIGNS = {SpanKind.HEADING: "*", SpanKind.BOLD: "*", SpanKind.ITALIC: "_", SpanKind.STRIKE: "~"}
LOOKALIKES = {
    "*": "\N{ASTERISK OPERATOR}",
    "_": "\N{MODIFIER LETTER LOW MACRON}",
    "~": "\N{TILDE OPERATOR}",
    "`": "\N{MODIFIER LETTER GRAVE ACCENT}",
}
FENCE = "```"
QUOTE = "> "
WORD_JOINER = "\N{WORD JOINER}"
"""Takes no room, and is not seen."""

URL_PATTERN = re.compile(r"(?:https?://|www\.)[^\s`]+", re.IGNORECASE)
FILLED_LINE = re.compile(r"\S(?:[^\n]*\S)?")


@dataclass(frozen=True, slots=True)
class WhatsAppMark:
    """A stretch of the text that gets a sign before and behind it."""

    start: int
    end: int
    sign: str


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with its marks, and the stretches of it that are neither marks nor code."""

    text: str
    words: Sequence[tuple[int, int]]


def render_markup(rich_text: RichText) -> str:
    """A document as WhatsApp reads it."""
    return escape_stray_signs(write_marks(rich_text))


def markup_size(rich_text: RichText) -> int:
    """How many characters `marked` gives, without writing them: a long answer is measured many times until it is cut."""
    marks, text = marks_of(rich_text), rich_text.text
    signs = sum(2 * len(mark.sign) for mark in marks) + sum(len(prefix) for _, prefix in line_prefixes(rich_text))
    fenced = [text[mark.start : mark.end] for mark in marks if mark.sign == FENCE]
    return len(text) + signs + sum(len(escape_fences(code)) - len(code) for code in fenced)


def write_marks(rich_text: RichText) -> MarkedText:
    """The text with its marks; what could be taken for a mark is still in it, except within a mark of its own kind."""
    marks = marks_of(rich_text)
    signs = sorted(
        [
            *((mark.end, 0, -mark.start, -number, mark.sign) for number, mark in enumerate(marks)),
            *((place, 1, 0, 0, prefix) for place, prefix in line_prefixes(rich_text)),
            *((mark.start, 2, 0, number, mark.sign) for number, mark in enumerate(marks)),
            (len(rich_text.text), 3, 0, 0, ""),
        ]
    )
    pieces: list[str] = []
    words: list[tuple[int, int]] = []
    inside: list[str] = []
    at = length = 0
    for place, order, _, _, sign in signs:
        piece = escape_signs(rich_text.text[at:place], inside)
        if piece and not any(outer.startswith("`") for outer in inside):
            words.append((length, length + len(piece)))
        pieces += (piece, sign)
        at, length = place, length + len(piece) + len(sign)
        if order == 0:
            inside.remove(sign)
        elif order == 2:
            inside.append(sign)
    return MarkedText("".join(pieces), words)


def marks_of(rich_text: RichText) -> Sequence[WhatsAppMark]:
    """What is marked: outer ones before those in them, none twice, and nothing within code."""
    text = rich_text.text
    addresses = [(found.start(), found.end()) for found in URL_PATTERN.finditer(text)]
    fixed = sorted([*addresses, *((span.start, span.end) for span in rich_text.spans if span.kind is SpanKind.CODE)])
    marks: list[WhatsAppMark] = []
    code_end = 0
    ends = dict.fromkeys(SIGNS.values(), -1)
    for span in rich_text.spans:
        if span.start < code_end:
            continue
        if span.kind in BLOCK_KINDS:
            code_end = span.end
            marks.append(WhatsAppMark(span.start, span.end, FENCE))
        elif span.kind is SpanKind.CODE:
            code_end = span.end
            if not is_within(addresses, span.start):
                marks.append(WhatsAppMark(span.start, span.end, FENCE if "`" in text[span.start : span.end] else "`"))
        elif span.kind in SIGNS:
            sign = SIGNS[span.kind]
            for line in FILLED_LINE.finditer(text, span.start, span.end):
                # Within or right behind another of its kind it would be two signs side by side, which WhatsApp reads as text.
                mark = WhatsAppMark(line.start(), line.end(), sign)
                if mark.start > ends[sign] and can_be_marked(text, mark, fixed) and not cuts_url(addresses, mark):
                    marks.append(mark)
                    ends[sign] = mark.end
    return marks


def can_be_marked(text: str, mark: WhatsAppMark, fixed: Sequence[tuple[int, int]]) -> bool:
    """Whether WhatsApp reads a mark here: not in the middle of a word, and not around an address or code that would end it."""
    if is_word_character(text[max(0, mark.start - 1) : mark.start]) or is_word_character(text[mark.end : mark.end + 1]):
        return False
    inside = fixed[bisect_left(fixed, (mark.start, 0)) : bisect_left(fixed, (mark.end, 0))]
    return not any(mark.sign in text[start:end] for start, end in inside)


def cuts_url(addresses: Sequence[tuple[int, int]], mark: WhatsAppMark) -> bool:
    return is_within(addresses, mark.start) or is_within(addresses, mark.end)


def is_within(addresses: Sequence[tuple[int, int]], place: int) -> bool:
    """Whether a sign here would be read as a part of an address: in it, or right behind it."""
    last = bisect_left(addresses, (place, 0)) - 1
    return last >= 0 and place <= addresses[last][1]


def is_word_character(character: str) -> bool:
    """Whether a character beside a mark keeps it from being one: a letter, a digit, what stands above or below them; and two signs whose
    twins are letters."""
    return character.isalnum() or (character != "" and (character in "_`" or unicodedata.category(character).startswith("M")))


def line_prefixes(rich_text: RichText) -> Iterator[tuple[int, str]]:
    """What stands before lines, by their places: the sign of a quote, and what keeps a > from being one."""
    text = rich_text.text
    quotes = [span for span in rich_text.spans if span.kind is SpanKind.QUOTE and starts_line(text, span.start)]
    code = [span for span in rich_text.spans if span.kind in BLOCK_KINDS]
    if not quotes and ">" not in text:
        return
    in_quote, in_code = span_end_finder(quotes), span_end_finder(code)
    for line in re.finditer(r"[^\n]+", text):
        content = line[0].lstrip()
        place = line.end() - len(content)
        is_quoted, is_code = place < in_quote(place), place < in_code(place)
        if not content or is_code:
            continue
        if is_quoted:
            yield line.start(), QUOTE
        elif content.startswith(">"):
            yield place, WORD_JOINER


def starts_line(text: str, place: int) -> bool:
    return not text[text.rfind("\n", 0, place) + 1 : place].strip()


def span_end_finder(spans: Sequence[Span]) -> Callable[[int], int]:
    """Tells where the last of those ends that began up to a place. To be asked of places in their order."""
    waiting = list(reversed(spans))
    end = 0

    def end_at(place: int) -> int:
        nonlocal end
        while waiting and waiting[-1].start <= place:
            end = max(end, waiting.pop().end)
        return end

    return end_at


def escape_signs(text: str, inside: Sequence[str]) -> str:
    """Words without signs that would end the mark around them too early, or begin code."""
    if FENCE in inside:
        return escape_fences(text)
    if "`" in inside:
        return text
    signs = "".join(dict.fromkeys(["`", *inside]))
    if not any(sign in text for sign in signs):
        return text
    pattern = re.compile(rf"{URL_PATTERN.pattern}|[{re.escape(signs)}]", re.IGNORECASE)
    return pattern.sub(lambda found: LOOKALIKES.get(found[0], found[0]), text)


def escape_fences(code: str) -> str:
    """Code in which nothing ends it: no three ` in a row, and none beside the three that are its own."""
    if "`" not in code:
        return code
    inside = code.replace("``", f"`{WORD_JOINER}`")
    return f"{WORD_JOINER * inside.startswith('`')}{inside}{WORD_JOINER * inside.endswith('`')}"


def escape_stray_signs(writing: MarkedText) -> str:
    """The text in which no sign among the words is taken for a mark: what could open one, with something behind it that could close it."""
    text = writing.text
    if not any(sign in text[start:end] for start, end in writing.words for sign in SIGNS.values()):
        return text
    letters = list(text)
    is_word = bytearray(len(text))
    for start, end in writing.words:
        is_word[start:end] = b"\x01" * (end - start)
    for address in URL_PATTERN.finditer(text):
        is_word[address.start() : address.end()] = bytes(address.end() - address.start())
    for line in re.finditer(r"[^\n]+", text):
        for sign in {sign for sign in SIGNS.values() if sign in line[0]}:
            places = [line.start() + place for place, letter in enumerate(line[0]) if letter == sign]
            last = max((place for place in places if can_close_mark(text, place)), default=-1)
            for place in places:
                if is_word[place] and place + 1 < last and can_open_mark(text, place):
                    letters[place] = LOOKALIKES[sign]
    return "".join(letters)


def can_open_mark(text: str, place: int) -> bool:
    before, behind = text[max(0, place - 1) : place], text[place + 1 : place + 2]
    return not before.isalnum() and behind != "" and not behind.isspace()


def can_close_mark(text: str, place: int) -> bool:
    before, behind = text[max(0, place - 1) : place], text[place + 1 : place + 2]
    return before != "" and not before.isspace() and not behind.isalnum()
