"""Tell whether two sentences say the same about a user. In order: equal canonical forms, nearly equal letters, near vectors.

A new fact that is wrongly taken for a known one is lost, while a fact that is kept twice only costs a line. So near vectors are not enough:
"I surf on Saturdays" is very near to "I surf on Sundays". If one word is swapped for another, if numbers differ, or if only one of them
negates, they are two facts, however near their vectors are."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from uuid import UUID

from hermes.ports.memories import RecallCandidates
from hermes.soul.recall_terms import WORD, fold, stem, terms, word_set

SHINGLE_LETTERS = 3
MIN_SHINGLE_SHARE = 0.9
"""Share of letter triples that nearly equal texts have in common."""
MIN_SAME_COSINE = 0.82
"""From this cosine on, two sentences say the same, if `differ` finds no difference."""
MIN_NEAR_COSINE, MIN_NEAR_WORD_SHARE = 0.75, 0.6
"""A lower cosine is enough if this share of the words is common, and each sentence has a word of its own."""
MIN_WORD_SHARE = 0.5
"""Share of the words that nearly equal texts have in common: with nine of ten triples equal, one or two words may still differ."""
MAX_COMPARED_FACTS = 100
"""Facts of either kind that a new one is compared with, the nearest first. No user says the same a hundred times."""

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
    """The text without what makes no difference: case, accents, punctuation, the choice among synonyms, and the subject at its beginning.

    "I love hiking!", "The user likes hiking" and "Likes hiking" have the same canonical form."""
    plain = plain_sequence(text)
    while len(plain) > 1 and plain[0] in LEADING_WORDS:
        plain = plain[1:]
    return " ".join(plain)


def is_nearly_equal(one: str, other: str) -> bool:
    """Whether two canonical forms share nine of ten letter triples, and `differ` finds no difference. Unreliable for short forms: they
    share triples by chance, or differ in most of them by one letter."""
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
    """The known facts that may say the same as the new one, with their cosines; all others cannot.

    Decided by what the store can compare without opening the facts, so that of thousands only a few are read. Facts with equal canonical
    forms may have no word in common ("I enjoy it", "I like it"); the store finds those by that form."""
    asked = set(found.asked)
    min_shared = max(1, MIN_WORD_SHARE * len(asked))
    near = [row for row in found.rows if row.cosine is not None and row.cosine >= MIN_NEAR_COSINE]
    shared = [(len(asked.intersection(row.terms)), row) for row in found.rows if not asked.isdisjoint(row.terms)]
    alike = sorted((each for each in shared if each[0] >= min_shared), key=lambda each: -each[0])
    chosen = [*near[:MAX_COMPARED_FACTS], *(row for _, row in alike[:MAX_COMPARED_FACTS])]
    return {row.id: row.cosine or 0.0 for row in chosen}


def facts_with_terms(found: RecallCandidates) -> list[UUID]:
    """The known facts that have all terms of the question."""
    asked = set(found.asked)
    return [row.id for row in found.rows if asked and asked.issubset(row.terms)]


def differ(one: str, other: str) -> bool:
    """Whether the words themselves show that two sentences say different things: a negation, a number, a swapped word."""
    first, second = plain_sequence(one), plain_sequence(other)
    marks = [{word for word in words if word in NEGATIONS or word in NUMBERS or word.isdigit()} for words in (first, second)]
    return marks[0] != marks[1] or is_word_swap(first, second)


def is_word_swap(first: list[str], second: list[str]) -> bool:
    """Whether one or two words are replaced by others, and all else is the same: "my sister in Rome", "my brother in Rome"."""
    compared = SequenceMatcher(None, [stem(word) for word in first], [stem(word) for word in second], autojunk=False)
    changes = [change for change in compared.get_opcodes() if change[0] != "equal"]
    swapped = sum(end - start for _, start, end, _, _ in changes)
    return 0 < swapped <= 2 and all(
        kind == "replace" and end - start == other_end - other_start for kind, start, end, other_start, other_end in changes
    )


def plain_sequence(text: str) -> list[str]:
    plain = (re.sub("['\u2019]", "", word) for word in WORD.findall(fold(text)))
    return [SYNONYMS.get(word, word) for word in plain]


def shingles(text: str) -> set[str]:
    return {text[at : at + SHINGLE_LETTERS] for at in range(max(1, len(text) - SHINGLE_LETTERS + 1))}
