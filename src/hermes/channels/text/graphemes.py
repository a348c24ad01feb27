"""Where a text may be cut: never within what a reader takes for one character.

Unicode's extended grapheme clusters, from the tables that Python has. Where those do not say enough it is kept together: a cut that is not
made harms nobody."""

from __future__ import annotations

import re
import unicodedata

_MARKS = ("Mn", "Mc", "Me", "Cn")  # with those that this Python does not know yet
_JOINER = "\u200d"
_CONTINUES = re.compile(  # vowels, joiners, sound marks, skin tones, tags of flags
    "[\u0e33\u0eb3\u200c\u200d\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
_PICTURE = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]")
_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"
    "\U000110bd\U000110cd\U000113d1\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_LEADING = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_FOLLOWING = re.compile("[\u1160-\u11ff\ud7b0-\ud7c6\ud7cb-\ud7fb]")
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_VIRAMA = 9  # the combining class of signs that take a consonant's vowel away and tie it to the next one


def last_boundary(text: str, least: int, most: int) -> int:
    """The last place between `least` and `most` where the text may be cut; `most` where there is none."""
    return next((place for place in range(most, least - 1, -1) if is_boundary(text, place)), most)


def is_boundary(text: str, place: int) -> bool:
    """Whether a character ends and another begins here. At both ends of the text one does."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    if before < "\u0300" and after < "\u0300":
        return (before, after) != ("\r", "\n")
    return not (
        unicodedata.category(after) in _MARKS
        or _CONTINUES.match(after)
        or _PREPENDED.match(before)
        or (before == _JOINER and _PICTURE.match(after))
        or _is_within_syllable(before, after)
        or _is_within_flag(text, place)
        or _is_within_conjunct(text, place)
    )


def _is_within_syllable(before: str, after: str) -> bool:
    """Korean by its letters."""
    if _LEADING.match(before):
        return bool(_LEADING.match(after) or _FOLLOWING.match(after) or _SYLLABLE.match(after))
    return bool(_FOLLOWING.match(after) and (_FOLLOWING.match(before) or _SYLLABLE.match(before)))


def _is_within_flag(text: str, place: int) -> bool:
    """A flag is a pair of letters, so what counts is how many stand before."""
    if not _FLAG_LETTER.match(text[place]):
        return False
    first = place
    while first > 0 and _FLAG_LETTER.match(text[first - 1]):
        first -= 1
    return (place - first) % 2 == 1


def _is_within_conjunct(text: str, place: int) -> bool:
    """Consonants of an Indian script that a virama ties together, whatever marks stand between."""
    if unicodedata.category(text[place]) != "Lo":
        return False
    while place > 0 and (text[place - 1] == _JOINER or unicodedata.category(text[place - 1]).startswith("M")):
        place -= 1
        if unicodedata.combining(text[place]) == _VIRAMA:
            return True
    return False
