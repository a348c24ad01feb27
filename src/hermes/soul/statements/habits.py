"""The keys that users state in few ways: language, goal, budget, party size, hours, days, time zone. The patterns are in `habits.toml`.

The caller decides whether the writer means a sentence (no question, supposition or report)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from hermes.soul.statements.sentences import Sentence

NEGATION_CHARS = 12
"""Characters before a statement that are searched for a negation."""
KEYS_AS_WRITTEN = frozenset({"timezone"})
"""Keys whose values keep the user's spelling."""


@dataclass(frozen=True, slots=True)
class HabitPattern:
    """One way to state a value. If `value` is None, the first group of the pattern is the value."""

    key: str
    value: str | None
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class HabitPatterns:
    patterns: tuple[HabitPattern, ...]
    negated: re.Pattern[str]


def find_habits(sentence: Sentence) -> Iterator[tuple[int, str, str]]:
    """Where a key is stated, the key, and its value; for each key the first statement."""
    habits, seen = load_habits(), set[str]()
    for habit in habits.patterns:
        found = None if habit.key in seen else habit.regex.search(sentence.plain)
        if found is None or (
            habit.value is not None and habits.negated.search(sentence.plain[max(0, found.start() - NEGATION_CHARS) : found.end()])
        ):
            continue
        seen.add(habit.key)
        if habit.value is not None:
            yield found.start(), habit.key, habit.value
        else:
            place = next(number for number, group in enumerate(found.groups(), 1) if group)
            span = found.start(place), found.end(place)
            yield found.start(), habit.key, sentence.words(*span) if habit.key in KEYS_AS_WRITTEN else found[place]


@cache
def load_habits() -> HabitPatterns:
    data = tomllib.loads((resources.files(__package__) / "habits.toml").read_text(encoding="utf-8"))
    patterns = [
        HabitPattern(rule["key"], value, any_of(rule["after"], f".{{0,20}}?(?:{'|'.join(patterns)})"))
        for rule in data["words"]
        for value, patterns in rule["values"].items()
    ]
    patterns += [HabitPattern(rule["key"], None, any_of(rule["patterns"])) for rule in data["numbers"]]
    return HabitPatterns(tuple(patterns), any_of(data["negated"]))


def any_of(patterns: Sequence[str], then: str = "") -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(patterns)}){then}")
