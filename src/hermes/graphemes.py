"""Characters as a reader counts them: an accent, a vowel sign, a skin tone or a joined emoji belongs to the character before it.

These are Unicode's extended grapheme clusters, found with the tables that Python has. Where the tables do not say enough, code points
stay together: a missing cut does no harm."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

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
_LEADING = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_FOLLOWING = re.compile("[\u1160-\u11ff\ud7b0-\ud7c6\ud7cb-\ud7fb]")
_SYLLABLE = re.compile("[\uac00-\ud7a3]")
_VIRAMA = 9  # the combining class of the sign that removes a consonant's vowel and joins it to the next consonant


def find_boundaries(text: str) -> Collection[int]:
    """All places where the text may be cut, both ends included."""
    if text.isascii() and "\r\n" not in text:
        return range(len(text) + 1)
    return frozenset((0, *grapheme_ends(text)))


def grapheme_ends(text: str) -> Iterator[int]:
    """Where each character ends, in order. Linear in the length: what decides stands directly before a place, or is counted on the way."""
    flag_letters = 0  # how many stand directly before the place; a flag is a pair of them
    is_linked = False  # an Indian consonant before the place has a virama: the next consonant joins it, whatever marks stand between them
    for place in range(1, len(text)):
        before, after = text[place - 1], text[place]
        flag_letters = flag_letters + 1 if _is_flag_letter(before) else 0
        if before < "\u0300":
            is_linked = False
            if after < "\u0300":
                if (before, after) != ("\r", "\n"):
                    yield place
                continue
        elif unicodedata.combining(before) == _VIRAMA:
            is_linked = True
        elif before != _JOINER and not unicodedata.category(before).startswith("M"):
            is_linked = False
        kind = unicodedata.category(after)
        if not (
            kind in _MARKS
            or _CONTINUES.match(after)
            or _PREPENDED.match(before)
            or (before == _JOINER and _EMOJI.match(after))
            or _is_within_syllable(before, after)
            or (flag_letters % 2 == 1 and _is_flag_letter(after))
            or (is_linked and kind == "Lo")
        ):
            yield place
    if text:
        yield len(text)


def _is_flag_letter(sign: str) -> bool:
    return "\U0001f1e6" <= sign <= "\U0001f1ff"


def _is_within_syllable(before: str, after: str) -> bool:
    """Whether two Korean letters belong to one syllable."""
    if _LEADING.match(before):
        return bool(_LEADING.match(after) or _FOLLOWING.match(after) or _SYLLABLE.match(after))
    return bool(_FOLLOWING.match(after) and (_FOLLOWING.match(before) or _SYLLABLE.match(before)))
