"""Where a text may be cut: never within what a reader sees as one character.

These are Unicode's extended grapheme clusters, found with the tables that Python has. Where the tables do not say enough, the characters
stay together: a missing cut does no harm."""

from __future__ import annotations

import re
import unicodedata

_MARKS = ("Mn", "Mc", "Me", "Cn")  # Cn: characters that this Python does not know yet
_JOINER = "\u200d"
_CONTINUES = re.compile(  # vowels, joiners, sound marks, skin tones, flag tags
    "[\u0e33\u0eb3\u200c\u200d\uff9e\uff9f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]"
)
_EMOJI = re.compile("[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]")
_PREPENDED = re.compile(
    "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"
    "\U000110bd\U000110cd\U000113d1\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a\U00011a84-\U00011a89\U00011d46\U00011f02]"
)
_FLAG_LETTER = re.compile("[\U0001f1e6-\U0001f1ff]")
_LEADING = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_FOLLOWING = re.compile("[\u1160-\u11ff\ud7b0-\ud7c6\ud7cb-\ud7fb]")
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_VIRAMA = 9  # the combining class of the sign that removes a consonant's vowel and joins it to the next consonant


def last_boundary(text: str, start: int, end: int) -> int:
    """The last index from `start` to `end` where the text may be cut; `end` if there is none."""
    return next((index for index in range(end, start - 1, -1) if is_boundary(text, index)), end)


def is_boundary(text: str, place: int) -> bool:
    """Whether a character, as a reader sees it, ends here and another begins. True at both ends of the text."""
    if not 0 < place < len(text):
        return True
    before, after = text[place - 1], text[place]
    if before < "\u0300" and after < "\u0300":
        return (before, after) != ("\r", "\n")
    return not (
        unicodedata.category(after) in _MARKS
        or _CONTINUES.match(after)
        or _PREPENDED.match(before)
        or (before == _JOINER and _EMOJI.match(after))
        or _is_within_syllable(before, after)
        or _is_within_flag(text, place)
        or _is_within_conjunct(text, place)
    )


def _is_within_syllable(before: str, after: str) -> bool:
    """Whether two Korean letters belong to one syllable."""
    if _LEADING.match(before):
        return bool(_LEADING.match(after) or _FOLLOWING.match(after) or _SYLLABLE.match(after))
    return bool(_FOLLOWING.match(after) and (_FOLLOWING.match(before) or _SYLLABLE.match(before)))


def _is_within_flag(text: str, place: int) -> bool:
    """Whether this is the middle of a flag. A flag is a pair of letters, so the number of flag letters before decides."""
    if not _FLAG_LETTER.match(text[place]):
        return False
    first = place
    while first > 0 and _FLAG_LETTER.match(text[first - 1]):
        first -= 1
    return (place - first) % 2 == 1


def _is_within_conjunct(text: str, place: int) -> bool:
    """Whether a virama joins two consonants of an Indian script here, whatever marks stand between them."""
    if unicodedata.category(text[place]) != "Lo":
        return False
    while place > 0 and (text[place - 1] == _JOINER or unicodedata.category(text[place - 1]).startswith("M")):
        place -= 1
        if unicodedata.combining(text[place]) == _VIRAMA:
            return True
    return False
