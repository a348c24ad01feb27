"""Whether two sentences say the same about a user. In order: equal but for what makes no difference, nearly equal letters, near vectors.

A new fact that is taken for a known one is lost, and a known one that is kept twice costs a line. So near vectors are not enough: they
put "I surf on Saturdays" right beside "I surf on Sundays". Where one word stands in the other's place, where numbers differ or where
one says no, they are two facts, however near they lie."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from uuid import UUID

from hermes.ports.memories import RecallCandidates
from hermes.soul.recall_terms import WORD, fold, stem, terms, word_set

SHINGLE_LETTERS = 3
MIN_SHINGLE_SHARE = 0.9
"""Share of common letter triples."""
MIN_SAME_COSINE = 0.82
"""Cosine from which on two sentences with no other difference say the same."""
MIN_NEAR_COSINE, MIN_NEAR_WORD_SHARE = 0.75, 0.6
"""Cosine that is enough where that share of the words is common too, and each has a word of its own."""
MIN_WORD_SHARE = 0.5
"""Share of the words without which letters are not nearly equal: nine of ten triples leave room for one or two other words."""
MAX_COMPARED_FACTS = 100
"""Facts of either kind that a new one is compared with, the nearest first. Nobody has said the same a hundred times."""

LEADING_WORDS = word_set(
    "i im my the user users a an am is are have has got own yo soy mi je suis ich bin sono ho eu sou ik ben saya aku adalah"
)
NEGATIONS = word_set(
    "not no never dont doesnt didnt cant cannot wont isnt arent without hate hates dislike dislikes stopped quit former used longer "
    "anymore tidak bukan gak nggak jangan benci nunca jamás odio pas jamais sans déteste nicht kein keine keinen nie hasse non mai não nem "
    "odeio niet geen nooit haat не нет değil yok"
)
NUMBERS = word_set("one two three four five six seven eight nine ten eleven twelve")
SYNONYMS = {
    word: words[0]
    for words in (
        ("like", "likes", "love", "loves", "enjoy", "enjoys", "adore", "adores"),
        ("live", "lives", "reside", "resides", "living", "based"),
        ("have", "has", "own", "owns", "got"),
        ("called", "named"),
        ("favorite", "favourite"),
        ("very", "really", "so", "absolutely"),
        ("gusta", "encanta"),
        ("suka", "senang"),
        ("aime", "adore"),
        ("mag", "liebe"),
    )
    for word in words
}


def canonical(text: str) -> str:
    """The text without what makes no difference: case, accents, punctuation, words that mean alike, who is spoken of at its beginning.

    "I love hiking!", "The user likes hiking" and "Likes hiking" are one."""
    plain = plain_sequence(text)
    while len(plain) > 1 and plain[0] in LEADING_WORDS:
        plain = plain[1:]
    return " ".join(plain)


def is_nearly_equal(one: str, other: str) -> bool:
    """Whether two canonical forms share nine of ten letter triples. Short ones share them by chance, or by one letter do not."""
    first, second = shingles(one), shingles(other)
    return len(first & second) >= MIN_SHINGLE_SHARE * len(first | second) and not differ(one, other)


def is_same(one: str, other: str, cosine: float) -> bool:
    """Whether two sentences with near vectors say the same."""
    if cosine < MIN_NEAR_COSINE or differ(one, other):
        return False
    first, second = set(terms(one)), set(terms(other))
    has_many = len(first & second) >= MIN_NEAR_WORD_SHARE * len(first | second) and bool(first - second) and bool(second - first)
    return cosine >= MIN_SAME_COSINE or has_many


def comparable_facts(found: RecallCandidates) -> dict[UUID, float]:
    """The known facts that may say the same as the one asked for, with their cosines; the others cannot, whatever they say.

    Told by what a store can compare without opening them, so that of thousands a few are read. One that is equal but for what makes no
    difference may have no word in common ("I enjoy it", "I like it"); the store sees that by its canonical form."""
    asked = set(found.asked)
    least = max(1, MIN_WORD_SHARE * len(asked))
    near = [row for row in found.rows if row.cosine is not None and row.cosine >= MIN_NEAR_COSINE]
    shared = [(len(asked.intersection(row.terms)), row) for row in found.rows if not asked.isdisjoint(row.terms)]
    alike = sorted((each for each in shared if each[0] >= least), key=lambda each: -each[0])
    chosen = [*near[:MAX_COMPARED_FACTS], *(row for _, row in alike[:MAX_COMPARED_FACTS])]
    return {row.id: row.cosine or 0.0 for row in chosen}


def facts_with_terms(found: RecallCandidates) -> list[UUID]:
    """The known facts that have all words asked for."""
    asked = set(found.asked)
    return [row.id for row in found.rows if asked and asked.issubset(row.terms)]


def differ(one: str, other: str) -> bool:
    """Whether something in the words themselves keeps two sentences apart."""
    first, second = plain_sequence(one), plain_sequence(other)
    marks = [{word for word in words if word in NEGATIONS or word in NUMBERS or word.isdigit()} for words in (first, second)]
    return marks[0] != marks[1] or is_word_swap(first, second)


def is_word_swap(first: list[str], second: list[str]) -> bool:
    """Whether one or two words stand where others stood, and all else is the same: "my sister in Rome", "my brother in Rome"."""
    compared = SequenceMatcher(None, [stem(word) for word in first], [stem(word) for word in second], autojunk=False)
    changes = [change for change in compared.get_opcodes() if change[0] != "equal"]
    exchanged = sum(end - start for _, start, end, _, _ in changes)
    return 0 < exchanged <= 2 and all(
        kind == "replace" and end - start == other_end - other_start for kind, start, end, other_start, other_end in changes
    )


def plain_sequence(text: str) -> list[str]:
    plain = (re.sub("['\u2019]", "", word) for word in WORD.findall(fold(text)))
    return [SYNONYMS.get(word, word) for word in plain]


def shingles(text: str) -> set[str]:
    return {text[at : at + SHINGLE_LETTERS] for at in range(max(1, len(text) - SHINGLE_LETTERS + 1))}
