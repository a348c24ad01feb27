"""Users' statements about themselves: a script notes, corrects or forgets them with a tool, and confirms what the tool did.

    "I'm allergic to nuts"         save_preference(key="allergies", value="nuts")
    "I'm no longer vegan"          save_preference(key="diet", value="vegan", no_longer=true)
    "forget where I live"          forget_memory(what="home_area")

Reads sixteen languages, by the same rules as the memory. Claims nothing by itself: every confirmation comes from a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hermes.soul.extract_rules import read_statements
from hermes.soul.fact_keys import KEYS, Op
from hermes.soul.language import detect_language
from hermes.soul.statements.sentences import Statement

SAVE_TOOL, FORGET_TOOL = "save_preference", "forget_memory"
NOTE_KEY = "note"
"""The key of a fact that is remembered in the user's own words."""
MAX_ARGUMENT_CHARS = 200
"""Characters of an argument; the tools take no more."""
MAX_CALLS = 12
"""Calls of one round; the router makes no more."""
TASTES = frozenset({"interests", "dislikes"})
"""Keys of statements that may as well answer a question: "I like the second one"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The text for one kind of result. The group `what` of its pattern is the thing that the tool noted or forgot; results of one kind
    share one sentence."""

    result: re.Pattern[str]
    say: Mapping[str, str]


def calls_for(words: str, *, sure: bool) -> list[tuple[str, dict[str, Any]]]:
    """The tool calls for a message's statements about its writer; with `sure`, none for a message that may answer a question."""
    found = statements_in(words)
    if sure and all(each.key in TASTES and each.op is not Op.FORGET for each in found):
        return []
    calls: list[tuple[str, dict[str, Any]]] = []
    for each in map(call_for, found):
        if each not in calls:
            calls.append(each)
    return calls[:MAX_CALLS]


@lru_cache(maxsize=16)  # several rules read one message, more than once
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
    """The confirmation of some results: each kind once, in the order of the results; empty if no kind is known.

    `say` makes one sentence of a text and the things it is about."""
    results_by_kind: dict[int, list[str]] = {}
    for result in results:
        for number, confirmation in enumerate(confirmations):
            found = confirmation.result.search(result)
            if found is not None:
                results_by_kind.setdefault(number, []).extend(lines_of(found.groupdict("").get("what", "")))
                break
    return " ".join(say(confirmations[number].say, ", ".join(dict.fromkeys(lines))) for number, lines in results_by_kind.items())


def lines_of(what: str) -> Iterator[str]:
    """The things in a result's `what`, without the English names of their keys."""
    for line in what.split("; "):
        key, colon, value = line.partition(": ")
        if line:
            yield value if colon and key.replace(" ", "_") in {*KEYS, NOTE_KEY} else line
