"""What a user says of themselves, read without a model: the common structural keys, and what they ask to be remembered.

Only plain statements in the first person count. A question says nothing, nor does "my wife is vegan", nor "I'm not vegan". What is not
sure is left out: a fact that was missed can be told again, a wrong one is believed. The patterns are in `extract_rules.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from hermes.soul.excerpt import excerpt
from hermes.soul.facts import BadValue, Op, typed
from hermes.soul.recall_terms import fold, terms

MOST_WORDS = 4
BEFORE = 12
"""Characters before a statement in which a no is looked for."""
SENTENCE = re.compile("[^.!?;\n\u3002\uff01\uff1f\u2026]+[.!?;\u3002\uff01\uff1f\u2026]*|[.]")
QUESTION = ("?", "\uff1f", "\u061f")
ZONES = {"timezone"}
"""Keys whose values are spelled as they were written."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that a sentence says. A free fact has no key."""

    key: str | None
    value: str
    op: Op
    quote: str


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence as it was written, and as every rule reads it. Folded once, because the rules are many."""

    text: str
    plain: str
    """Folded."""
    source: str
    """In which the places of `plain` are found: the sentence itself, unless folding changed its length."""


def read_statements(text: str) -> list[Found]:
    """Return what a message says of its writer, sentence by sentence. Of a long one its beginning and its end are read."""
    return [found for sentence in map(aligned, sentences(excerpt(text))) for rule in RULES for found in rule(sentence)]


def sentences(text: str) -> Iterator[str]:
    """The statements of a message. Questions are none."""
    for found in SENTENCE.finditer(text.replace("\u2019", "'")):
        sentence = " ".join(found.group().split())
        if sentence and not sentence.endswith(QUESTION):
            yield sentence


# --- rules: each reads one sentence

Rule = Callable[[Sentence], list[Found]]


def remembered(sentence: Sentence) -> list[Found]:
    """What a user asks to be remembered, in their own words."""
    found = REMEMBER.match(sentence.plain)
    text = sentence.source[found.end() :].strip(" .,!:;\u3002") if found else ""
    return [Found(None, text, Op.SET, sentence.text)] if len(terms(text)) > 1 else []


def words_of(key: str, after: Sequence[str], values: Mapping[str, Sequence[str]], gap: str = ".{0,20}?", then: str = "") -> Rule:
    """A rule for a key with a few values: somebody speaks of themselves, and soon comes one of the values."""
    compiled = [(any_of(after, f"{unfolded(gap)}(?:{'|'.join(patterns)}){unfolded(then)}"), value) for value, patterns in values.items()]

    def rule(sentence: Sentence) -> list[Found]:
        for pattern, value in compiled:
            found = pattern.search(sentence.plain)
            if found and not NEGATED.search(sentence.plain[max(0, found.start() - BEFORE) : found.end()]):
                return [Found(key, value, Op.SET, sentence.text)]
        return []

    return rule


def sayings_of(key: str, value: str, patterns: Sequence[str]) -> Rule:
    """A rule for sentences that mean a value without naming it."""
    said = any_of(patterns)
    return lambda sentence: [Found(key, value, Op.SET, sentence.text)] if said.search(sentence.plain) else []


def names_of(key: str, after: Sequence[str], op: str, *, many: bool) -> Rule:
    """A rule for a key that holds names: they follow, up to the end of the thought. One that is none spoils them all."""
    begin, is_negative = any_of(after), key == "dislikes"

    def rule(sentence: Sentence) -> list[Found]:
        plain = sentence.plain
        begun = begin.search(plain)
        if begun is None or (not is_negative and NEGATED.search(plain[max(0, begun.start() - BEFORE) : begun.end()])):
            return []
        rest, folded = sentence.source[begun.end() :], plain[begun.end() :]
        end = END.search(folded)
        rest = rest[: end.start()] if end else rest
        parts = [ARTICLE.sub("", part.strip()) for part in AND.split(rest)] if many else re.split("[,;]", rest)[:1]
        listed = [part.strip(" .,!:;\"'") for part in parts]
        kept = [name for name in listed if name and len(name.split()) <= MOST_WORDS and fold(name) not in VAGUE and terms(name)]
        return spelled(key, ", ".join(kept), Op(op), sentence.text) if kept and kept == [name for name in listed if name] else []

    return rule


def numbers_of(key: str, patterns: Sequence[str]) -> Rule:
    """A rule for a key whose value is the first group of a pattern."""
    said = any_of(patterns)

    def rule(sentence: Sentence) -> list[Found]:
        found = said.search(sentence.plain)
        if found is None:
            return []
        place = next(number for number, group in enumerate(found.groups(), 1) if group)
        value = sentence.source[found.start(place) : found.end(place)] if key in ZONES else found[place]
        return spelled(key, value, Op.SET, sentence.text)

    return rule


def spelled(key: str, value: str, op: Op, sentence: str) -> list[Found]:
    """A value in its one spelling; nothing for what the key cannot hold."""
    try:
        return [Found(key, typed(key, value), op, sentence)]
    except BadValue:
        return []


def same_item(one: str, other: str) -> bool:
    """Whether two names mean one thing: equal but for case, accents and the endings of their words."""
    first, second = (sorted(set(terms(text))) for text in (one, other))
    return fold(one) == fold(other) or (bool(first) and first == second)


def aligned(sentence: str) -> Sentence:
    plain = fold(sentence)
    return Sentence(sentence, plain, sentence if len(sentence) == len(plain) else plain)


def any_of(patterns: Sequence[str], then: str = "") -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(patterns)}){then}")


def unfolded(pattern: str) -> str:
    """A pattern that was written over several lines."""
    return re.sub(r"\n\s*\|?", "", pattern)


def load() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "extract_rules.toml").read_text(encoding="utf-8"))


DATA = load()
NEGATED = any_of(DATA["negated"])
AND = re.compile(rf"\s*(?:{'|'.join(DATA['and'])})\s*", re.IGNORECASE)
END = re.compile(rf"\s(?:{'|'.join(DATA['end'])})\b")
ARTICLE = re.compile(rf"^(?:{'|'.join(DATA['article'])})\s+", re.IGNORECASE)
VAGUE = frozenset(DATA["vague"])
REMEMBER = re.compile(rf"(?:{'|'.join(DATA['please'])})?(?:{'|'.join(DATA['remember'])})[,:]?\s+")
RULES: tuple[Rule, ...] = (
    remembered,
    *(words_of(**rule) for rule in DATA["words"]),
    *(sayings_of(**rule) for rule in DATA["sayings"]),
    *(names_of(**rule) for rule in DATA["names"]),
    *(numbers_of(**rule) for rule in DATA["numbers"]),
)
