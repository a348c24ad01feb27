"""Split rich text to a platform's limit, at the places where a reader minds least.

Each part takes as much of the remaining text as fits, then goes back to the last good place to cut. A span that the cut would go through,
although it fits into a part of its own, begins the next part instead."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hermes.channels.text.rich_text import BLOCK_KINDS, RichText, SizeFunction, Span, SpanKind, clip_spans
from hermes.graphemes import find_boundaries

MIN_LIMIT = 16

_SPACE = "[ \\t\\n\\u1680\\u2000-\\u2006\\u2008-\\u200a\\u2028\\u2029\\u205f\\u3000]"  # where a line may break, so without no-break spaces
_NO_MARKER_BEFORE = r"(?<!\s[•*+\-☐☑])(?<!\s\d[.)])(?<!\s\d\d[.)])"  # a list marker stays with its item
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LINE = re.compile(r"\n\s*")
_FULL_STOPS, _COMMAS = r"\u3002\uff01\uff1f\uff61", r"\u3001\uff0c\uff1a\uff1b"  # of Chinese and Japanese, which need no space after them
_CLOSERS = r"\u300d\u300f\u3011\u201d\u2019\uff09"
_SENTENCE = re.compile(
    rf"(?<=[.!?…]){_NO_MARKER_BEFORE}{_SPACE}+|(?<=[.!?…][\"'\u201d\u2019»)\]]){_SPACE}+|(?<=[{_FULL_STOPS}])(?![{_FULL_STOPS}{_CLOSERS}])"
)
_WORD = re.compile(rf"{_NO_MARKER_BEFORE}{_SPACE}+|(?<=[{_COMMAS}{_FULL_STOPS}])(?![{_COMMAS}{_FULL_STOPS}{_CLOSERS}])")
_SPACES = re.compile(r"\s*")
_BLANK_LINES = re.compile(r"(?:[ \t]*\n)*")
_INVISIBLE = re.compile(
    r"[\s\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0]*"
)


def split(rich_text: RichText, limit: int, size: SizeFunction) -> Sequence[RichText]:
    """The rich text in parts of at most `limit`, as `size` counts them. White space at the cuts is left out; nothing else that a reader can
    see is lost.

    Cuts at the end of a paragraph, else of a line, a sentence, a word, if that fills half of a part. Never cuts within a character as a
    reader counts them, nor within a span that fits into a part; a longer span ends with the part and begins again in the next. A heading
    stays with the text below it. No part is blank; a blank text has no parts. Only a character that alone is larger than the limit is cut,
    between code points. Linear in the length."""
    if limit < MIN_LIMIT:
        raise ValueError(f"a limit of {limit} is too small for any text; the smallest is {MIN_LIMIT}")
    parts = []
    remaining = _RemainingText(rich_text)
    remaining.skip(_space_after_cut(remaining.window(2 * limit), 0))
    while (window := remaining.window(2 * limit)).text:
        part, consumed = _first_part(window, limit, size)
        remaining.skip(consumed)
        if part is not None:
            parts.append(part)
    return parts


@dataclass(slots=True)
class _RemainingText:
    """What is left to split. Looks only at the next spans, so that a long text is not walked again for each part."""

    rich_text: RichText
    at: int = 0
    spans_begun: int = 0
    spans_open: Sequence[Span] = ()
    """Spans that begin before `at` and end after it."""

    def window(self, length: int) -> RichText:
        end = self.at + length
        return RichText(self.rich_text.text[self.at : end], clip_spans(self._spans_before(end), self.at, end))

    def skip(self, length: int) -> None:
        begun = self._spans_before(self.at + length)
        self.at += length
        self.spans_begun += len(begun) - len(self.spans_open)
        self.spans_open = [span for span in begun if span.end > self.at]

    def _spans_before(self, place: int) -> Sequence[Span]:
        end = bisect_left(self.rich_text.spans, place, lo=self.spans_begun, key=lambda span: span.start)
        return [*self.spans_open, *self.rich_text.spans[self.spans_begun : end]]


def _first_part(window: RichText, limit: int, size: SizeFunction) -> tuple[RichText | None, int]:
    """The first part of the window, None if nothing in it is visible; and how many characters of the window it consumes."""
    lead = _match_length(_INVISIBLE, window.text)
    most = _max_fitting_length(window, limit, size)
    if lead >= most:
        return None, lead
    while True:
        end = most if most == len(window.text) else _best_cut(window, lead, most, lambda part: size(part) <= limit)
        part = window.slice(0, len(window.text[:end].rstrip()))
        # A size that counts markup may be larger for a shorter text, because its marks end at another place.
        if size(part) <= limit or end <= lead + 1:
            return part, end + _space_after_cut(window, end)
        most = end - 1


def _max_fitting_length(window: RichText, limit: int, size: SizeFunction) -> int:
    """How many characters of the window fit at most."""
    longest = min(limit, len(window.text))
    if size(window.slice(0, longest)) <= limit:
        return longest
    return max(1, bisect_right(range(longest), limit, key=lambda end: size(window.slice(0, end))) - 1)


def _best_cut(window: RichText, lead: int, most: int, fits: Callable[[RichText], bool]) -> int:
    """Where to end a part that may end at `most` at the latest, and must contain the first visible character, at `lead`."""
    text = window.text
    last = next(
        (span.start for span in window.spans if lead < span.start < most < span.end and fits(window.slice(span.start, span.end))), most
    )
    unbreakable, boundaries = _UnbreakableRanges.of(window, last), find_boundaries(text)

    def is_good(place: int) -> bool:
        return not unbreakable.contains(place) and place in boundaries and place + _space_after_cut(window, place) in boundaries

    def last_good(ends: re.Pattern[str]) -> re.Match[str] | None:
        found = reversed(list(ends.finditer(text, 0, min(len(text), last + 2))))
        return next((end for end in found if lead < end.start() <= last and is_good(end.start())), None)

    found = None
    for ends in (_PARAGRAPH, _LINE, _SENTENCE, _WORD):
        found = last_good(ends)
        if found is not None and found.start() >= last // 2:  # more messages are worse than a paragraph in two parts
            return found.start()
    if found is not None and _is_word(window, found.end(), fits):
        return found.start()
    good = next((place for place in range(last, lead, -1) if is_good(place)), None)
    # A character that alone is larger than a part has no boundary in it, and is cut anyway.
    return next((place for place in range(most, lead, -1) if place in boundaries), most) if good is None else good


def _is_word(window: RichText, start: int, fits: Callable[[RichText], bool]) -> bool:
    """Whether the word that begins here fits into a part. If not, it is cut anyway, and a late cut is better than an early one."""
    end = _WORD.search(window.text, start + 1)
    return fits(window.slice(start, end.start() if end else len(window.text)))


@dataclass(frozen=True, slots=True)
class _UnbreakableRanges:
    """Ranges that are not cut: spans, and a heading with the first character after it. Disjoint, in order."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, window: RichText, most: int) -> _UnbreakableRanges:
        starts, ends = [], [0]
        for span in window.spans:
            if span.end <= most and span.start >= ends[-1]:
                starts.append(span.start)
                follows = (
                    span.end + _match_length(_SPACES, window.text, span.end) + 1
                    if span.kind is SpanKind.HEADING and span.start > 0
                    else span.end
                )
                ends.append(follows)
        return cls(starts, ends[1:])

    def contains(self, place: int) -> bool:
        """Whether a cut here would go through one of the ranges."""
        last = bisect_left(self.starts, place) - 1
        return last >= 0 and place < self.ends[last]


def _space_after_cut(window: RichText, place: int) -> int:
    """How many characters of white space are left out after a cut. Within code only blank lines: the indentation of a line is code."""
    blocks = [span for span in window.spans if span.kind in BLOCK_KINDS and span.end > place]
    if blocks and blocks[0].start < place:
        return _match_length(_BLANK_LINES, window.text, place)
    end = place + _match_length(_SPACES, window.text, place)
    return min([end, *(span.start for span in blocks)]) - place


def _match_length(pattern: re.Pattern[str], text: str, start: int = 0) -> int:
    """How many characters a pattern matches here; the pattern also matches nothing."""
    found = pattern.match(text, start)
    return found.end() - start if found else 0
