"""ShareGPT rows: untouched turns stay as they are, a summary is a turn of its own, a cut tool result keeps its envelope.

If answers were sampled after the change, the row says so. A row of our own export has fields for that (`on_policy`,
`hermes.off_policy`); any other row gets

    "on_policy": false, "off_policy": the reason and the turns

`compression_metrics` is hermes-agent's name for the numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.graph import MessageGraph
from hermes.trajectories.compress.compaction import CompactionResult
from hermes.trajectories.compress.row_change import RewrittenRow, RowChange, change_of, replace_members
from hermes.trajectories.foreign_sharegpt import SPEAKERS, BadRow, members_of, read_turns, responses_in, shape_of
from hermes.trajectories.sharegpt_turns import SPEAKERS as SPEAKER_OF
from hermes.trajectories.sharegpt_turns import Rest, TurnError, to_messages, to_turns

MAX_CALL_BYTES = 100
"""The most bytes that a call counts beyond its text in the turn: its frame, and an id that Hermes gives it."""
SPARE_TOKENS_PER_TURN = 8
"""Tokens added for each turn to allow for rounding and for white space that the reader normalises."""

_ID = re.compile(r'"tool_call_id": *"([^"]*)"')


@dataclass(frozen=True, slots=True)
class ShareGptRow:
    """A row, and the messages of its turns."""

    raw: bytes
    value: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    places: Sequence[int]
    """For each message the index of its turn."""
    tools: Sequence[Any]
    rest: Sequence[Rest] | None
    """For a row of our own export, what its turns leave out; None for other rows."""

    def chat(self) -> MessageGraph:
        return MessageGraph(self.messages, seed="row")  # without samples: they matter only in graphs that are written, and this one is not

    def rewrite(self, chat: MessageGraph, result: CompactionResult, metrics: Mapping[str, Any] | None) -> RewrittenRow:
        change = change_of(self.messages, list(chat.versions[-1]))
        turns, rest, places = self._turns(change)
        off_policy = sorted({places[place] for place in change.off_policy})
        where = f"{'turn' if len(off_policy) == 1 else 'turns'} {', '.join(map(str, off_policy))}"
        reason = f"{result.off_policy_reason} ({where})" if off_policy else ""
        members: dict[str, Any] = {"conversations": turns}
        if off_policy:
            members["on_policy"] = False
        if self.rest is not None:
            members["hermes"] = self._hermes_member(change, rest, reason)
        elif off_policy:
            members["off_policy"] = "; ".join(filter(None, [self._text_member("off_policy"), reason]))
        if metrics is not None:
            members["compression_metrics"] = {**metrics, "off_policy_turns": off_policy}
        return RewrittenRow(replace_members(self.raw, members), off_policy)

    def _turns(self, change: RowChange) -> tuple[list[Any], list[Rest], list[int]]:
        """Return the turns, what they leave out, and for each message the index of its turn."""
        before: Sequence[Any] = self.value["conversations"]
        whole = to_turns(change.messages) if self.rest is not None else None
        turns: list[Any] = []
        rest: list[Rest] = []
        places: list[int] = []
        for origin, group in self._groups(change):
            if origin is None:
                turns.append(self._summary(change.messages[group[0]]))
            elif not change.changed.isdisjoint(group) or len(group) != self.places.count(origin):
                turns.append({**before[origin], "value": self._shortened_value(origin, group, change)})
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
        """Return for each turn to write its index before, None for a summary, and the messages that it holds."""
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
        word = next((turn["from"] for turn in turns if SPEAKERS[turn["from"]] == speaker), speaker)  # some files say user for human
        return {"from": word, "value": message["content"], **({"train": False} if any("train" in turn for turn in turns) else {})}

    def _shortened_value(self, turn: int, group: Sequence[int], change: RowChange) -> str:
        """Return the text of a tool turn after some of its results were cut."""
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

    def _hermes_member(self, change: RowChange, rest: Sequence[Rest], reason: str) -> dict[str, Any]:
        """Return the member `hermes` of a row of our own export: without removed responses, and with what the turns leave out."""
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

    def _text_member(self, key: str) -> str:
        value = self.value.get(key)
        return value if isinstance(value, str) else ""


def estimate_row(value: Mapping[str, Any], bytes_per_token: int, tokens_per_turn: int) -> tuple[int, int, int] | None:
    """Return about how many tokens a row has, how many it has at most, and its number of turns, by the lengths of its texts alone.

    None if it is not a readable row of this shape; then the caller must read the row itself."""
    turns = value.get("conversations")
    if not turns or not isinstance(turns, list):
        return None
    size = more = 0
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(text := turn.get("value"), str) or str(turn.get("from")) not in SPEAKERS:
            return None
        size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        calls = text.count("<tool_call>")
        if calls:  # a call is counted as JSON in JSON, with escaped quotes
            more += MAX_CALL_BYTES * calls + text.count('"') + text.count("\\")
        if "tool_call_id" in text:  # its id is counted again with the result
            more += sum(map(len, _ID.findall(text)))
    if value.get("tools"):
        schemas = len(json.dumps(value["tools"]))
        size, more = size + schemas, more + schemas // 3  # the row may have them without spaces
    if "hermes" in value:
        more += len(json.dumps(value["hermes"]))  # what the turns leave out
    tokens = size // bytes_per_token + tokens_per_turn * len(turns)
    return tokens, tokens + more // bytes_per_token + SPARE_TOKENS_PER_TURN * len(turns), len(turns)


def read_sharegpt(raw: bytes, value: Mapping[str, Any]) -> ShareGptRow:
    """Read a row of any ShareGPT shape; raise BadRow if it has no turns."""
    if shape_of(value) == "hermes":
        try:
            return _read_hermes_row(raw, value)
        except (TurnError, KeyError, TypeError, ValueError, AttributeError):
            pass  # the row was changed after its export: read it as any other
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
    """Put a shorter content into a block: hermes-agent wraps the content in an object, other programs write it as it is."""
    members = members_of(block)
    if members is None or "content" not in members or members.keys() - {"tool_call_id", "name", "content"}:
        return content
    texts = {key: text for key, (_, text) in members.items()} | {"content": json.dumps(content, ensure_ascii=block.isascii())}
    return "{" + ", ".join(f"{json.dumps(key)}: {text}" for key, text in texts.items()) + "}"
