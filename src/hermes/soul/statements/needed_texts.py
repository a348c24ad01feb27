"""Which of many patterns can match a text at all: for most patterns one of a few texts must occur in it, and looking for a text is far
faster than searching for a pattern.

    needed_texts("i (?:love|hate) (?:nuts|the sea)")    {"i love", "i hate"}… or, as good, {" nuts", " the sea"}: any match has one of them
    needed_texts("(?P<place>.+)?")                      None: nothing is known

Reads patterns with Python's own parser. Of what it does not know it says nothing, and then the pattern is searched for each time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]  # there is no public way to read a pattern
from typing import Any

Texts = frozenset[str]

START_CHARS = 3
MAX_TEXTS = 64
"""More texts of one pattern take as long to look for as the pattern."""


class PatternFilter:
    """Leaves out the patterns that cannot match."""

    def __init__(self, patterns: Sequence[re.Pattern[str]]) -> None:
        needed = [needed_texts(pattern) for pattern in patterns]
        self._always = [place for place, texts in enumerate(needed) if texts is None]
        places: dict[str, list[int]] = {}
        for place, texts in enumerate(needed):
            for text in texts or ():
                places.setdefault(text, []).append(place)
        # By its first three letters a needed text is found without looking for it: a message has few threes of letters.
        self._by_start: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for text, found in places.items():
            self._by_start.setdefault(text[:START_CHARS], []).append((text, tuple(found)))
        self._short = [(text, found) for start, texts in self._by_start.items() if len(start) < START_CHARS for text, found in texts]

    def possible(self, text: str) -> list[int]:
        """The places of the patterns that may match a text or a part of it, in their order."""
        found = set(self._always)
        for start in starts_in(text) & self._by_start.keys():
            for needed, places in self._by_start[start]:
                if needed in text:
                    found.update(places)
        for needed, places in self._short:
            if needed in text:
                found.update(places)
        return sorted(found)


@lru_cache(maxsize=64)
def starts_in(text: str) -> frozenset[str]:
    """Each START_CHARS letters of a text that stand together. One sentence is looked at with the books of several languages."""
    return frozenset(text[at : at + START_CHARS] for at in range(len(text) - START_CHARS + 1))


def needed_texts(pattern: re.Pattern[str]) -> Texts | None:
    """Texts of which every match has at least one; None if there are no such texts."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE | re.LOCALE):
        return None
    try:
        return best_of(texts_of(_parser.parse(pattern.pattern, pattern.flags)))
    except (AttributeError, TypeError, ValueError, re.error):  # another Python, with another parser
        return None


def best_of(found: Iterable[Texts]) -> Texts | None:
    """The texts that are the least likely to stand in a text by chance: the longest, then the fewest."""
    usable = [texts for texts in found if len(texts) <= MAX_TEXTS and min(map(len, texts)) > 0]
    return max(usable, key=lambda texts: (min(weight(text) for text in texts), -len(texts)), default=None)


def weight(text: str) -> int:
    """How rare a text is: a letter beyond ASCII says more than one of the alphabet, and a space says nothing."""
    return sum(0 if letter == " " else 1 if letter.isascii() else 3 for letter in text)


def texts_of(parsed: Iterable[tuple[Any, Any]]) -> list[Texts]:
    """For a sequence of parts, every set of texts of which a match has one."""
    found: list[Texts] = []
    run = ""
    for kind, value in parsed:
        if kind is _constants.LITERAL:
            run += chr(value)
            continue
        if kind is _constants.AT:
            continue  # takes no letter
        if run:
            found.append(frozenset({run}))
            run = ""
        found += texts_of_part(kind, value)
    return [*found, frozenset({run})] if run else found


def texts_of_part(kind: Any, value: Any) -> list[Texts]:
    if kind is _constants.SUBPATTERN:
        _, added, removed, inner = value
        return [] if (added | removed) & re.IGNORECASE else texts_of(inner)
    if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT, getattr(_constants, "POSSESSIVE_REPEAT", None)):
        least, _, inner = value
        return texts_of(inner) if least else []
    if kind is getattr(_constants, "ATOMIC_GROUP", None):
        return texts_of(value)
    if kind is _constants.BRANCH:
        branches = [best_of(texts_of(branch)) for branch in value[1]]
        known = [texts for texts in branches if texts is not None]
        return [frozenset().union(*known)] if len(known) == len(branches) else []
    return []
