"""The words of a text: the terms that it is found by, and whether two texts say the same about a user.

A term is a word in lower case, without its ending; common words are none. One rule for all languages: an English ending is removed, and
the rest is cut after seven letters, where the inflections of most languages begin. In scripts without spaces between words a term is two
characters. On the recall data seven letters find as much as a stemmer does, and need no guess of the language (see
docs/adr/0016-memory.md).

Two sentences say the same if, in order, their canonical forms are equal, their letters nearly equal, or their vectors near. A new fact that
is wrongly taken for a known one is lost, while a fact that is kept twice only costs a line. So near vectors are not enough: "I surf on
Saturdays" is very near to "I surf on Sundays". If one word is swapped for another, if numbers differ, or if only one of them negates, they
are two facts, however near their vectors are."""

from __future__ import annotations

import re
import unicodedata
from difflib import SequenceMatcher
from uuid import UUID

from hermes.ports.memories import RecallCandidates

FIRST_CHARS, LAST_CHARS = 1_500, 500
"""Characters of the beginning and of the end."""


def excerpt(text: str) -> str:
    """A text of up to 2,000 characters unchanged; of a longer one the beginning and the end, on lines of their own.

    Users paste long text in the middle, and write what they want before or after it. All code that reads a message for words, names or
    statements reads only this excerpt: reading a hundred thousand characters takes a tenth of a second, in which the process answers no
    other user."""
    return text if len(text) <= FIRST_CHARS + LAST_CHARS else f"{text[:FIRST_CHARS]}\n{text[-LAST_CHARS:]}"


# --- terms

MAX_TERM_LETTERS = 7
DENSE = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Thai, Japanese, Chinese and Korean: scripts without spaces between words, or with particles attached to them."""
WORD = re.compile(rf"[{DENSE}]+|[^\W_{DENSE}](?:[^\W_{DENSE}]|[\u0900-\u0dff]|['\u2019](?=\w))*")
DENSE_WORD = re.compile(f"[{DENSE}]")
ENDINGS = (
    *(("ingly", 3), ("ings", 3), ("edly", 3), ("ing", 3), ("ied", 3), ("ies", 3), ("est", 4), ("ely", 4)),
    *(("ed", 3), ("ly", 4), ("es", 3), ("er", 4), ("s", 3), ("e", 3), ("y", 4)),
)
"""Each with the number of letters that must be left."""
DOUBLED_LETTERS = frozenset("bdfgmnprt")


def terms(text: str) -> list[str]:
    """Return the terms of a text, in order, with repetitions."""
    return [term for word in words(text) for term in split_word(word)]


def words(text: str) -> list[str]:
    """The words of a text, folded, without the common ones and without single letters."""
    found = (word.replace("\u2019", "'").removesuffix("'s").replace("'", "") for word in WORD.findall(fold(text)))
    return [word for word in found if word not in COMMON_WORDS and (len(word) > 1 or word.isdigit() or DENSE_WORD.match(word))]


def fold(text: str) -> str:
    """The text in one spelling: compatible forms, lower case, Latin letters without accents.

    Other scripts keep their marks: there they are letters."""
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    bare = "".join(mark for mark in decomposed if not "\u0300" <= mark <= "\u036f")
    return unicodedata.normalize("NFKC", bare)


def word_set(text: str) -> frozenset[str]:
    """The words of a list in source code, folded."""
    return frozenset(fold(text).split())


def split_word(word: str) -> list[str]:
    if DENSE_WORD.match(word):
        return [word[at : at + 2] for at in range(max(1, len(word) - 1))]
    return [stem(word)[:MAX_TERM_LETTERS]]


def stem(word: str) -> str:
    for ending, kept in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= kept and not word.endswith("ss"):
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] in DOUBLED_LETTERS else word


COMMON_WORDS = word_set(
    # en
    "an the of to in on at by for with from and or but is are was were be been am do does did have has had im ive me my mine you your we "
    "our us it its this that these those there what which who whom whose when where why how not no so if as than then too very can could "
    "will would should may might just also about into over "
    # id
    "saya aku kamu anda dia kami kita yang di ke dari dan atau itu ini apa siapa kapan dimana mana untuk dengan pada adalah "
    # es, pt
    "yo mi mis tu su el la los las un una unos unas de del al en que qué cuál con por para es soy eu meu minha os as um uma do da em com "
    "qual se lo na "
    # fr
    "je mon ma mes ton ta le les une des du au aux et ou où est suis que qui quel quelle dans sur pour avec ce cette il elle "
    # de, nl
    "ich mein meine dein der die das den dem ein eine einen und oder ist bin zu mit für auf von was wer wo wie ik mijn jij het een van op "
    "met voor wat wie waar hoe "
    # it, tr, ru
    "io mio mia gli uno dei che chi cosa dove sono ben benim bir ve ile bu ne мой моя мы на что кто где как это "
)


# --- sameness

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
