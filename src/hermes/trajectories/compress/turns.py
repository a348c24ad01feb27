"""Which messages of a list stay together, and which are protected. Pure; knows nothing about tokens or summaries.

A turn is what a ShareGPT row calls a turn: one message, or consecutive tool results. A unit is summarised whole or not at all: a call,
its results, and the messages between them. Worked example, letters are messages:

    S  U  A(call c1 c2)  T(c1)  T(c2)  A  U  A      turns: S U A TT A U A      units: [S] [U] [A T T] [A] [U] [A]

With the first system, human, gpt and tool turn and the last 2 turns protected, only the unit [A] in the middle may be summarised. With the
first 3 turns and the last 2 protected by count alone, too: the third turn is a call, and its results stay with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from hermes.trajectories.compress.settings import ProtectedSettings
from hermes.trajectories.sharegpt_turns import SPEAKERS

Messages = Sequence[Mapping[str, Any]]
SUMMARY_METADATA = "compression"
"""The key in a summary's metadata under which it says what it replaces."""


@dataclass(frozen=True, slots=True)
class MessageRange:
    """Messages [start, stop) of a list."""

    start: int
    stop: int

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))


@dataclass(frozen=True, slots=True)
class Layout:
    """The turns, protected messages and units of a list."""

    turns: tuple[MessageRange, ...]
    protected: frozenset[int]
    """Messages that stay as they are."""
    segments: tuple[tuple[MessageRange, ...], ...]
    """The units without protected messages, in order; a segment holds consecutive ones."""

    def turn_of(self, message: int) -> int:
        """Return the turn that holds a message; for the end of the list the number of turns."""
        return next((place for place, turn in enumerate(self.turns) if message < turn.stop), len(self.turns))


def lay_out(messages: Messages, settings: ProtectedSettings, headers: Sequence[str]) -> Layout:
    """Return turns, protected messages and the segments between them. Summaries begin with one of `headers`."""
    turns = turns_of(messages)
    protected = frozenset(_protected_messages(messages, turns, settings, headers))
    segments: list[list[MessageRange]] = [[]]
    for unit in units_of(messages):
        if not protected.isdisjoint(unit):
            segments.append([])
        else:
            segments[-1].append(unit)
    return Layout(turns, protected, tuple(tuple(segment) for segment in segments if segment))


def turns_of(messages: Messages) -> tuple[MessageRange, ...]:
    """Return the turns: consecutive tool results are one turn."""
    turns: list[MessageRange] = []
    for index, message in enumerate(messages):
        if index and _is_result(message) and _is_result(messages[index - 1]):
            turns[-1] = MessageRange(turns[-1].start, index + 1)
        else:
            turns.append(MessageRange(index, index + 1))
    return tuple(turns)


def units_of(messages: Messages) -> list[MessageRange]:
    """Return the units: a call and its results are in one unit.

    A result belongs to the last call with its id that has no result yet, wherever that call is. It also belongs to the message right
    before it, if that is an assistant's or a result: many files have no ids, and others use an id again."""
    starts = list(range(len(messages)))  # for each message the first message of its unit, as far as known
    calls: dict[str, int] = {}
    answered: set[str] = set()
    for index, message in enumerate(messages):
        if _is_result(message):
            name = str(message.get("tool_call_id"))
            before = messages[index - 1] if index else None
            if before is not None and (_is_result(before) or before["role"] == "assistant"):
                starts[index] = index - 1
            starts[index] = min(starts[index], calls.get(name, index))
            answered.add(name)
            continue
        calls = {name: place for name, place in calls.items() if name not in answered} if answered else calls
        answered = set()
        for call in message.get("tool_calls") or ():
            calls[str(call.get("id"))] = index
    units: list[MessageRange] = []
    for index in range(len(messages)):
        start = index
        while units and units[-1].stop > starts[index]:
            start = units.pop().start
        units.append(MessageRange(start, index + 1))
    return units


def is_summary(message: Mapping[str, Any], headers: Sequence[str]) -> bool:
    """Whether a message is a summary of an earlier run: by its metadata, or, in files that keep none, by its beginning."""
    side = message.get("metadata")
    if side and SUMMARY_METADATA in side:
        return True
    content = message.get("content")
    return message["role"] == "user" and isinstance(content, str) and content.startswith(tuple(headers))


def _protected_messages(
    messages: Messages, turns: Sequence[MessageRange], settings: ProtectedSettings, headers: Sequence[str]
) -> Iterator[int]:
    firsts = {
        "system": settings.first_system,
        "human": settings.first_human,
        "gpt": settings.first_gpt,
        "tool": settings.first_tool,
    }
    wanted = {speaker for speaker, is_wanted in firsts.items() if is_wanted}
    for turn in turns:
        speaker = SPEAKERS[messages[turn.start]["role"]]
        # A summary is not the first turn of its speaker: a later compaction must protect the same turns as the first one.
        if speaker in wanted and not is_summary(messages[turn.start], headers):
            wanted.discard(speaker)
            yield from turn
    # Behind a summary there are no first turns any more: it stands for some that came before.
    opening = takewhile(lambda turn: not is_summary(messages[turn.start], headers), turns[: settings.first_n_turns])
    for turn in (*opening, *turns[max(0, len(turns) - settings.last_n_turns) :]):
        yield from turn


def _is_result(message: Mapping[str, Any]) -> bool:
    return SPEAKERS[message["role"]] == "tool"
