"""What a script does with what users say of themselves: it notes it, corrects it or forgets it with a tool, and says what the tool did.

    "I'm allergic to nuts"         save_preference(key="allergies", value="nuts")
    "I'm no longer vegan"          save_preference(key="diet", value="vegan", no_longer=true)
    "forget where I live"          forget_memory(what="home_area")

Reads sixteen languages, by the same rules as the memory. Claims nothing by itself: every sentence comes from a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hermes.soul.extract_rules import Statement, read_statements
from hermes.soul.fact_keys import KEYS, Op
from hermes.soul.language import detect_language

SAVE_TOOL, FORGET_TOOL = "save_preference", "forget_memory"
NOTE_KEY = "note"
"""The key of what is remembered in the user's own words."""
MAX_ARGUMENT_CHARS = 200
"""Characters of an argument; the tools take no more."""
MAX_CALLS = 12
"""Calls of one round; the router makes no more."""
TASTES = frozenset({"interests", "dislikes"})
"""What may as well be an answer to a question: "I like the second one"."""
KEY_PREFIX = re.compile(rf"(?:{'|'.join(key.replace('_', ' ') for key in KEYS)}|{NOTE_KEY}): ")
"""What a line of the memory begins with, in English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """What is said of a kind of result. Its group `what` is what the tool did it to; results of one kind are told together."""

    result: re.Pattern[str]
    say: Mapping[str, str]


def calls_for(words: str, *, sure: bool) -> list[tuple[str, dict[str, Any]]]:
    """The tool calls for what a message says of its writer; with `sure`, none for one that may answer a question."""
    found = statements_in(words)
    if sure and all(each.key in TASTES and each.op is not Op.FORGET for each in found):
        return []
    calls: list[tuple[str, dict[str, Any]]] = []
    for each in map(call_for, found):
        if each not in calls:
            calls.append(each)
    return calls[:MAX_CALLS]


@lru_cache(maxsize=16)  # several rules look at one message, more than once
def statements_in(words: str) -> tuple[Statement, ...]:
    return tuple(read_statements(words))


def call_for(found: Statement) -> tuple[str, dict[str, Any]]:
    if found.op is not Op.FORGET:
        arguments = {"key": found.key or NOTE_KEY, "value": found.value[:MAX_ARGUMENT_CHARS]}
        return SAVE_TOOL, {**arguments, "no_longer": True} if found.op is Op.REMOVE else arguments
    if not found.key and not found.value:
        return FORGET_TOOL, {"everything": True}
    what = f"{found.key}: {found.value}" if found.key and found.value else found.key or found.value
    return FORGET_TOOL, {"what": what[:MAX_ARGUMENT_CHARS]}


def language_of(words: str, default: str) -> str:
    return detect_language(words) or default


def confirm_results(results: Sequence[str], confirmations: Sequence[Confirmation], say: Callable[[Mapping[str, str], str], str]) -> str:
    """What is said of some results, each kind once and in the order of the results; empty where none is known.

    `say` puts what was done into one sentence."""
    told: dict[int, list[str]] = {}
    for result in results:
        for number, confirmation in enumerate(confirmations):
            found = confirmation.result.search(result)
            if found is not None:
                told.setdefault(number, []).extend(lines_of(found.groupdict("").get("what", "")))
                break
    return " ".join(say(confirmations[number].say, ", ".join(dict.fromkeys(lines))) for number, lines in told.items())


def lines_of(what: str) -> Iterator[str]:
    """What a tool did something to, without the English name of its key."""
    return (KEY_PREFIX.sub("", line, count=1) for line in what.split("; ") if line)
