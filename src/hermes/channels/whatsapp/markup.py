"""Rich text in WhatsApp's markup, and how characters are kept from becoming markup.

    *bold*  _italic_  ~strike~  `code`  ```lines of code```  > quote  - item  1. item

A heading becomes bold; a URL is written after its link's text. WhatsApp reads a mark only at the edge of a word and within one line, and
a mark cannot be escaped. So:

- A span over several lines is marked on each of them.
- A span is not marked if it begins or ends within a word, ends with a URL (which would swallow the mark), or contains a URL or code with
  the mark's own sign in it.
- A sign that WhatsApp would read as a mark is replaced by a lookalike. A lone asterisk, a formula and a name_like_this stay as they are,
  and so does every URL. In code nothing is replaced.
- A > at the start of a line gets an invisible character before it."""

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
"""An invisible character without width."""

URL_PATTERN = re.compile(r"(?:https?://|www\.)[^\s`]+", re.IGNORECASE)
FILLED_LINE = re.compile(r"\S(?:[^\n]*\S)?")


@dataclass(frozen=True, slots=True)
class WhatsAppMark:
    """A range of the text that gets a sign before and after it."""

    start: int
    end: int
    sign: str


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with its marks, and the ranges of it that are neither marks nor code."""

    text: str
    words: Sequence[tuple[int, int]]


def render_markup(rich_text: RichText) -> str:
    """Rich text in WhatsApp's markup."""
    return escape_stray_signs(write_marks(rich_text))


def markup_size(rich_text: RichText) -> int:
    """The length of what `render_markup` returns, without rendering it: `split` measures a long answer many times."""
    marks, text = marks_of(rich_text), rich_text.text
    signs = sum(2 * len(mark.sign) for mark in marks) + sum(len(prefix) for _, prefix in line_prefixes(rich_text))
    fenced = [text[mark.start : mark.end] for mark in marks if mark.sign == FENCE]
    return len(text) + signs + sum(len(escape_fences(code)) - len(code) for code in fenced)


def write_marks(rich_text: RichText) -> MarkedText:
    """The text with its marks. Signs that could be read as marks are still in it, except within a mark of their own kind."""
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
    """The marks of a text: an outer one before those in it, none twice, and none within code."""
    text = rich_text.text
    urls = [(found.start(), found.end()) for found in URL_PATTERN.finditer(text)]
    fixed = sorted([*urls, *((span.start, span.end) for span in rich_text.spans if span.kind is SpanKind.CODE)])
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
            if not is_within(urls, span.start):
                marks.append(WhatsAppMark(span.start, span.end, FENCE if "`" in text[span.start : span.end] else "`"))
        elif span.kind in SIGNS:
            sign = SIGNS[span.kind]
            for line in FILLED_LINE.finditer(text, span.start, span.end):
                # Within or right after another mark of its kind, two signs would stand side by side, which WhatsApp reads as text.
                mark = WhatsAppMark(line.start(), line.end(), sign)
                if mark.start > ends[sign] and can_be_marked(text, mark, fixed) and not cuts_url(urls, mark):
                    marks.append(mark)
                    ends[sign] = mark.end
    return marks


def can_be_marked(text: str, mark: WhatsAppMark, fixed: Sequence[tuple[int, int]]) -> bool:
    """Whether WhatsApp reads this mark: it is not in the middle of a word, and contains no URL or code that would end it."""
    if is_word_character(text[max(0, mark.start - 1) : mark.start]) or is_word_character(text[mark.end : mark.end + 1]):
        return False
    inside = fixed[bisect_left(fixed, (mark.start, 0)) : bisect_left(fixed, (mark.end, 0))]
    return not any(mark.sign in text[start:end] for start, end in inside)


def cuts_url(urls: Sequence[tuple[int, int]], mark: WhatsAppMark) -> bool:
    return is_within(urls, mark.start) or is_within(urls, mark.end)


def is_within(urls: Sequence[tuple[int, int]], place: int) -> bool:
    """Whether WhatsApp would read a sign here as part of a URL: in it, or right after it."""
    last = bisect_left(urls, (place, 0)) - 1
    return last >= 0 and place <= urls[last][1]


def is_word_character(character: str) -> bool:
    """Whether WhatsApp reads no mark beside this character: a letter, a digit, a combining mark, or one of the two signs whose lookalikes
    are letters."""
    return character.isalnum() or (character != "" and (character in "_`" or unicodedata.category(character).startswith("M")))


def line_prefixes(rich_text: RichText) -> Iterator[tuple[int, str]]:
    """The prefixes of lines, with their index: the sign of a quote, or a word joiner that keeps a > from being one."""
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
    """Return a function that says where the last span that began up to a place ends. Call it with places in ascending order."""
    waiting = list(reversed(spans))
    end = 0

    def end_at(place: int) -> int:
        nonlocal end
        while waiting and waiting[-1].start <= place:
            end = max(end, waiting.pop().end)
        return end

    return end_at


def escape_signs(text: str, inside: Sequence[str]) -> str:
    """The text without signs that would end the mark around it too early, or begin code."""
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
    """Code that does not end itself: without three ` in a row, and without a ` beside its own three."""
    if "`" not in code:
        return code
    inside = code.replace("``", f"`{WORD_JOINER}`")
    return f"{WORD_JOINER * inside.startswith('`')}{inside}{WORD_JOINER * inside.endswith('`')}"


def escape_stray_signs(marked: MarkedText) -> str:
    """The text with a lookalike for each sign outside of marks and code that WhatsApp would read as the start of a mark, because a later
    one could end it."""
    text = marked.text
    if not any(sign in text[start:end] for start, end in marked.words for sign in SIGNS.values()):
        return text
    letters = list(text)
    is_word = bytearray(len(text))
    for start, end in marked.words:
        is_word[start:end] = b"\x01" * (end - start)
    for url in URL_PATTERN.finditer(text):
        is_word[url.start() : url.end()] = bytes(url.end() - url.start())
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
