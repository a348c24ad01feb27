"""Count characters as a reader does: an accent, a vowel sign, a skin tone or a joined emoji belongs to the character before it.

Has the rules of Unicode's extended grapheme clusters that matter in practice, without its tables: the few scripts that mark
vowels only by position (some Brahmic prefixes) are counted by code point."""

from __future__ import annotations

import re

MAX_CLUSTER_CODE_POINTS = 32
"""The most code points of one character. A longer pile of marks counts as several, so that a limit in characters bounds bytes too."""

_EXTEND = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u0900-\u0903\u093a-\u093c\u093e-\u094f\u0951-\u0957\u0962\u0963\u0981-\u0983\u09bc"
    "\u09be-\u09cd\u09d7\u0a01-\u0a03\u0a3c-\u0a4d\u0a70\u0a71\u0a81-\u0a83\u0abc\u0abe-\u0acd\u0b01-\u0b03\u0b3c\u0b3e-\u0b57\u0b82"
    "\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc\u0cbe-\u0cd6\u0d00-\u0d03\u0d3e-\u0d4d\u0e31\u0e33-\u0e3a\u0e47-\u0e4e"
    "\u0eb1\u0eb3-\u0ebc\u0ec8-\u0ece\u0f71-\u0f84\u102b-\u103e\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u20d0-\u20ff\u3099\u309a"
    "\ufe00-\ufe0f\ufe20-\ufe2f\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"
)
_CLUSTER = re.compile(
    r"\r\n"
    r"|[\U0001f1e6-\U0001f1ff]{2}"  # a flag is a pair of regional letters
    r"|[\u1100-\u115f\ua960-\ua97c]{1,4}[\u1160-\u11a7\ud7b0-\ud7c6]{0,4}[\u11a8-\u11ff\ud7cb-\ud7fb]{0,4}"  # Korean letters
    # In Devanagari and related scripts a virama joins the next consonant; elsewhere a zero-width joiner joins the next character.
    rf"|(?s:.)(?:[{_EXTEND}]|\u200d(?:[\u00a9\u00ae\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])?|(?<=[\u094d\u09cd\u0acd])[\u0915-\u0939\u0995-\u09b9\u0a95-\u0ab9])"
    rf"{{0,{MAX_CLUSTER_CODE_POINTS - 1}}}"
)


def truncate(text: str, limit: int) -> str:
    """The first `limit` characters as a reader counts them; never a part of a character. Linear in the limit."""
    if len(text) <= limit:
        return text  # a character is at least one code point
    end = 0
    for _ in range(limit):
        cluster = _CLUSTER.match(text, end)
        if cluster is None:
            break
        end = cluster.end()
    return text[:end]


def count(text: str) -> int:
    """How many characters a reader counts."""
    return sum(1 for _ in _CLUSTER.finditer(text))
