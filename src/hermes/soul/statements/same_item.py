"""Tell whether two wordings name one item: a plural, a case or an article makes no difference. The endings are in `same_item.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from hermes.soul.statements.sentences import DENSE, fold

DIFFERENT_WORDS = frozenset({("pesca", "pesce")})
KOREAN = re.compile("(?<=.)(?:을|를|이|가|은|는|에|도|랑|하고|의|류)$")
ARABIC = re.compile("^(?:و|ب|ل)?(?:ال|لل)")
MIN_STEM_LETTERS = 3
SOFTENED_LETTERS = {"k": "g", "p": "b", "t": "d"}


def same_item(one: str, other: str) -> bool:
    """Whether two wordings name one item: a plural, a case or an article makes no difference. "peanut" is "the peanuts", not "pea"."""
    first, second = tokens(one), tokens(other)
    return bool(first) and len(first) == len(second) and all(map(is_same_word, first, second))


def tokens(text: str) -> Sequence[str]:
    plain = re.sub(r"[\"(){}\[\].,!?:;]", " ", fold(text)).split()
    kept = [word for word in plain if word not in articles()] or plain
    words = [re.sub(r"^(?:l|d|dell|all|un)'(?=\w)", "", word) for word in kept]
    words = [ARABIC.sub("", word) if len(word) > 4 else word for word in words]
    return ["".join(words)] if words and all(DENSE.search(word) and not "\uac00" <= word[0] <= "\ud7af" for word in words) else words


def is_same_word(one: str, other: str) -> bool:
    if one == other:
        return True
    if "\uac00" <= one[:1] <= "\ud7af":
        return KOREAN.sub("", one) == KOREAN.sub("", other)
    if DENSE.search(one) or (min(one, other), max(one, other)) in DIFFERENT_WORDS:
        return False
    one, other = (word.split("'")[0] if "'" in word[2:] else word for word in (one, other))
    common = next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))
    # The ending begins where the words differ, or up to two letters before: "кинза", "кинзу"; "noot", "noten".
    for kept in range(common, max(MIN_STEM_LETTERS - 1, common - 3), -1):
        if any({one[kept:], other[kept:]} <= known for known in endings()):
            return True
    if is_softened(one, other) or is_softened(other, one):
        return True
    bare = without_double_letters(one), without_double_letters(other)
    return bare != (one, other) and len(min(bare, key=len)) >= MIN_STEM_LETTERS and is_plural(*sorted(bare, key=len))


def is_plural(short: str, long: str) -> bool:
    return long.startswith(short) and any(long[len(short) :] in known for known in endings())


def is_softened(bare: str, ended: str) -> bool:
    """Turkish writes findik and findiga, kebap and kebaba."""
    last = len(bare) - 1
    return (
        last >= MIN_STEM_LETTERS
        and ended[:last] == bare[:last]
        and SOFTENED_LETTERS.get(bare[last:]) == ended[last : last + 1]
        and any(ended[last + 1 :] in known for known in endings())
    )


def without_double_letters(word: str) -> str:
    """Dutch writes noot and noten, bes and bessen."""
    return re.sub(r"([a-z])\1(?=[^aeiou]?$|en$)", r"\1", word)


@cache
def articles() -> frozenset[str]:
    return frozenset(load_endings()["articles"].split())


@cache
def endings() -> tuple[frozenset[str], ...]:
    """The endings of each language, the empty one included."""
    return tuple(frozenset(("", *listed.split())) for listed in load_endings()["endings"].values())


@cache
def load_endings() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "same_item.toml").read_text(encoding="utf-8"))
