"""Compare a list of messages before and after compression, and write a row with some of its members replaced."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.graph.message import METADATA
from hermes.trajectories.compress.turns import SUMMARY_METADATA, turns_of
from hermes.trajectories.foreign_sharegpt import members_of


@dataclass(frozen=True, slots=True)
class RewrittenRow:
    """A row after compression."""

    line: bytes
    off_policy: Sequence[int] = ()
    """Its turns (messages, in rows that have messages) that were sampled in another context than they have now."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """The messages after compression, and the place of each before."""

    messages: Sequence[Mapping[str, Any]]
    origins: Sequence[int | None]
    """For each message its place before; None for a summary, which is new."""
    changed: frozenset[int]
    """Places of messages that are new or different."""

    @property
    def off_policy(self) -> list[int]:
        """Places of answers that were sampled in another context than they have now."""
        first = min(self.changed, default=len(self.messages))
        return [
            place
            for place, message in enumerate(self.messages)
            if place > first and self.origins[place] is not None and message.get("role") == "assistant"
        ]


def change_of(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> RowChange:
    """Return where each message of `after` was in `before`. A summary replaces turns, and says how many; a tool result may be cut.

    Raises ValueError for any other difference: then a message cannot be assigned to a turn of the row."""
    turns = turns_of(before)
    places = {turn.start: place for place, turn in enumerate(turns)}
    origins: list[int | None] = []
    at = 0
    for message in after:
        if at < len(before) and _is_from(message, before[at]):
            origins.append(at)
            at += 1
            continue
        count = ((message.get(METADATA) or {}).get(SUMMARY_METADATA) or {}).get("turns", 0)
        if at not in places or not 0 < count <= len(turns) - places[at]:
            raise ValueError("the compressed conversation is not a shorter form of the row")
        origins.append(None)
        at = turns[places[at] + count - 1].stop
    if at != len(before):
        raise ValueError("the compressed conversation leaves out the end of the row")
    kept = ((place, origin) for place, origin in enumerate(origins) if origin is not None)
    same = {place for place, origin in kept if _is_same(after[place], before[origin])}
    return RowChange(after, origins, frozenset(range(len(after))) - same)


def _is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or _without_metadata(one) == _without_metadata(other)


def _is_from(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether a message is unchanged, or a tool result that was cut."""
    if _is_same(now, before):
        return True
    return now.get("role") == before.get("role") in ("tool", "function") and _without_content(now) == _without_content(before)


def _without_metadata(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != METADATA}


def _without_content(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in (METADATA, "content")}


def replace_members(raw: bytes, members: Mapping[str, Any]) -> bytes:
    """Return a row with these members replaced, or added at the end. The other members and the line's end keep their bytes."""
    text = raw.decode("utf-8-sig")
    body = text.rstrip()
    known = members_of(body)
    if known is None:
        raise ValueError("the row is not a JSON object")
    texts = {key: text for key, (_, text) in known.items()} | {key: _json(value, is_ascii=raw.isascii()) for key, value in members.items()}
    line = "{" + ", ".join(f"{_json(key, is_ascii=raw.isascii())}: {value}" for key, value in texts.items()) + "}"
    return (line + text[len(body) :]).encode()


def _json(value: Any, *, is_ascii: bool) -> str:
    """Return a value as JSON, in ASCII if its row is; half a surrogate pair can only be written in ASCII."""
    text = json.dumps(value, ensure_ascii=is_ascii)
    return json.dumps(value) if not is_ascii and any("\ud800" <= letter <= "\udfff" for letter in text) else text
