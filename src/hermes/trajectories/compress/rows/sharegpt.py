"""ShareGPT rows: turns that were not touched stay as they are, a summary is a turn of its own, a shorter tool result stays in its envelope.

What was added says so. A row of our own export has its place for that (`on_policy`, `hermes.off_policy`); any other gets

    "on_policy": false, "off_policy": why, and at which turns

unless nothing was sampled behind the change. `compression_metrics` is hermes-agent's name for the numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.graph import MessageGraph
from hermes.trajectories.compress.result import CompactionResult
from hermes.trajectories.compress.rows.change import RewrittenRow, RowChange, change_of, replace_members
from hermes.trajectories.foreign_sharegpt import SPEAKERS, BadRow, members_of, read_turns, responses_in, shape_of
from hermes.trajectories.sharegpt_turns import SPEAKERS as SPEAKER_OF
from hermes.trajectories.sharegpt_turns import Rest, TurnError, to_messages, to_turns

MAX_CALL_BYTES = 100
"""What a call takes at most beyond its text in a turn, when it is counted: its frame, and an id that we give it."""
SPARE_TOKENS_PER_TURN = 8
"""Tokens of a turn that are lost to rounding, and to white space that is put in order."""

_ID = re.compile(r'"tool_call_id": *"([^"]*)"')


@dataclass(frozen=True, slots=True)
class ShareGptRow:
    """A row, and the messages that its turns hold."""

    raw: bytes
    value: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    places: Sequence[int]
    """For each message its turn."""
    tools: Sequence[Any]
    rest: Sequence[Rest] | None
    """What turns of our own making leave unsaid; None for everybody else's."""

    def chat(self) -> MessageGraph:
        return MessageGraph(self.messages, seed="row")  # what was sampled matters to graphs only, and this one is not written

    def written(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:
        change = change_of(self.messages, list(chat.versions[-1]))
        turns, rest, places = self._turns(change)
        late = sorted({places[place] for place in change.off_policy})
        reason = f"{result.off_policy_reason} ({'turn' if len(late) == 1 else 'turns'} {', '.join(map(str, late))})" if late else ""
        members: dict[str, Any] = {"conversations": turns}
        if late:
            members["on_policy"] = False
        if self.rest is not None:
            members["hermes"] = self._own(change, rest, reason)
        elif late:
            members["off_policy"] = "; ".join(filter(None, [self._said("off_policy"), reason]))
        if metrics is not None:
            members["compression_metrics"] = {**metrics, "off_policy_turns": late}
        return RewrittenRow(replace_members(self.raw, members), late)

    def _turns(self, change: RowChange) -> tuple[list[Any], list[Rest], list[int]]:
        """Return the turns, what they leave unsaid, and for each message its turn."""
        before: Sequence[Any] = self.value["conversations"]
        whole = to_turns(change.messages) if self.rest is not None else None
        turns: list[Any] = []
        rest: list[Rest] = []
        places: list[int] = []
        for origin, group in self._groups(change):
            if origin is None:
                turns.append(self._summary(change.messages[group[0]]))
            elif not change.changed.isdisjoint(group) or len(group) != self.places.count(origin):
                turns.append({**before[origin], "value": self._shorter(origin, group, change)})
            else:
                turns.append(before[origin])
            if self.rest is not None and whole is not None:
                is_kept = turns[-1] is before[origin] if origin is not None else False
                at = whole.places[group[0]]
                rest.append(self.rest[origin] if is_kept and origin is not None and origin < len(self.rest) else whole.rest[at])
                if not is_kept:
                    turns[-1] = {**turns[-1], "value": whole.turns[at]["value"]}
            places += [len(turns) - 1] * len(group)
        return turns, rest, places

    def _groups(self, change: RowChange) -> list[tuple[int | None, list[int]]]:
        """Return for each turn to write the turn it was, None for a summary, and the messages that it holds."""
        groups: list[tuple[int | None, list[int]]] = []
        for place, origin in enumerate(change.origins):
            turn = None if origin is None else self.places[origin]
            if turn is not None and groups and groups[-1][0] == turn:
                groups[-1][1].append(place)
            else:
                groups.append((turn, [place]))
        return groups

    def _summary(self, message: Mapping[str, Any]) -> dict[str, Any]:
        speaker = SPEAKER_OF[message["role"]]
        turns: Sequence[Mapping[str, Any]] = self.value["conversations"]
        word = next((turn["from"] for turn in turns if SPEAKERS[turn["from"]] == speaker), speaker)  # some say user for human
        return {"from": word, "value": message["content"], **({"train": False} if any("train" in turn for turn in turns) else {})}

    def _shorter(self, turn: int, group: Sequence[int], change: RowChange) -> str:
        """Return the text of a tool turn some of whose results were cut."""
        value: str = self.value["conversations"][turn]["value"]
        first = self.places.index(turn)
        blocks = responses_in(value)
        if not blocks:
            return str(change.messages[group[0]]["content"])
        texts = []
        for place in group:
            origin = change.origins[place]
            block = blocks[origin - first] if origin is not None else ""
            texts.append(_replace_content(block, str(change.messages[place]["content"])) if place in change.changed else block)
        return "\n".join(f"<tool_response>\n{text}\n</tool_response>" for text in texts)

    def _own(self, change: RowChange, rest: Sequence[Rest], reason: str) -> dict[str, Any]:
        """Return `hermes` of a row of our own: without the responses that are in it no more, and with what its turns leave unsaid."""
        about: Mapping[str, Any] = self.value["hermes"]
        turns: Sequence[Mapping[str, Any]] = self.value["conversations"]
        kept = {self.places[origin] for origin in change.origins if origin is not None}
        trained = [index for index, turn in enumerate(turns) if turn["train"]]
        known = about["responses"]
        if len(known) == len(trained):
            known = [response for response, index in zip(known, trained, strict=True) if index in kept]
        return {
            **about,
            "responses": known,
            "off_policy": "; ".join(filter(None, [about.get("off_policy"), reason])),
            "rest": json.dumps(rest, separators=(",", ":")) if any(rest) else "[]",
        }

    def _said(self, key: str) -> str:
        value = self.value.get(key)
        return value if isinstance(value, str) else ""


def estimate_row(value: Mapping[str, Any], bytes_per_token: int, tokens_per_turn: int) -> tuple[int, int, int] | None:
    """Return about how many tokens a row has, how many it has at most, and its turns, by the lengths of its texts alone.

    None if it is no row of this shape that can be read; then it takes a closer look."""
    turns = value.get("conversations")
    if not turns or not isinstance(turns, list):
        return None
    size = more = 0
    for turn in turns:
        if not isinstance(turn, dict) or turn.get("from") not in SPEAKERS or not isinstance(text := turn.get("value"), str):
            return None
        size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        calls = text.count("<tool_call>")
        if calls:  # counted as JSON in JSON: quotes are escaped
            more += MAX_CALL_BYTES * calls + text.count('"') + text.count("\\")
        if "tool_call_id" in text:  # and with its result's id
            more += sum(map(len, _ID.findall(text)))
    if value.get("tools"):
        schemas = len(json.dumps(value["tools"]))
        size, more = size + schemas, more + schemas // 3  # they may be written without spaces
    if "hermes" in value:
        more += len(json.dumps(value["hermes"]))  # what turns leave unsaid
    tokens = size // bytes_per_token + tokens_per_turn * len(turns)
    return tokens, tokens + more // bytes_per_token + SPARE_TOKENS_PER_TURN * len(turns), len(turns)


def read_sharegpt(raw: bytes, value: Mapping[str, Any]) -> ShareGptRow:
    """Read a row of any ShareGPT shape; raise BadRow if there are no turns in it."""
    if shape_of(value) == "hermes":
        try:
            return _read_hermes_row(raw, value)
        except (TurnError, KeyError, TypeError, ValueError, AttributeError):
            pass  # changed since it was exported: read as any other
    reading = read_turns(value, 1)
    drafts = reading.drafts
    return ShareGptRow(
        raw,
        value,
        [draft.message for draft in drafts],
        [draft.turn for draft in drafts],
        reading.tools,
        None,
    )


def _read_hermes_row(raw: bytes, value: Mapping[str, Any]) -> ShareGptRow:
    turns, rest = value["conversations"], json.loads(value["hermes"]["rest"])
    messages = to_messages(turns, rest)
    if not messages:
        raise BadRow("no turns in it")
    places = to_turns(messages).places
    if not isinstance(value["hermes"]["responses"], list) or not all("train" in turn for turn in turns):
        raise TurnError("no row of our export")
    return ShareGptRow(raw, value, messages, places, json.loads(value["tools"]), rest)


def _replace_content(block: str, content: str) -> str:
    """Put a shorter content into a block: hermes-agent wraps it in an object, others write it as it is."""
    members = members_of(block)
    if members is None or "content" not in members or members.keys() - {"tool_call_id", "name", "content"}:
        return content
    texts = {key: text for key, (_, text) in members.items()} | {"content": json.dumps(content, ensure_ascii=block.isascii())}
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in texts.items()) + "}"
