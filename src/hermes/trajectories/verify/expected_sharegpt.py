"""What `sharegpt.jsonl` holds: turns with their tags and escapes, and beside them what turns have no place for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from hermes.graph import MessageGraph
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_text import (
    REASONING,
    TextExpectation,
    is_text,
    layout_texts,
    part_text,
    place_turn,
    replace_halves,
    turn_digest,
)
from hermes.trajectories.verify.source_samples import SourceSample

FILE = "sharegpt.jsonl"
SPEAKERS = {"system": "system", "developer": "system", "user": "human", "assistant": "gpt", "tool": "tool", "function": "tool"}
ROLES_OF_SPEAKERS = {"system": "system", "human": "user", "gpt": "assistant", "tool": "tool"}
_HALF = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"<(\\*)(/?(?:think|tool_call|tool_response)>)")
_HALF_WRITTEN = re.compile(r"<(\\+)(ud[89a-f][0-9a-f]{2}>)")
_SHORT_TAG = re.compile(r"<(?=/?(?:think|tool_call|tool_response)>)")
_SHORT_TAG_WRITTEN = re.compile(r"\\u003c(?=/?(?:think|tool_call|tool_response)>)", re.IGNORECASE)
_ANY_ESCAPE = re.compile(r"<\\+(?:/?(?:think|tool_call|tool_response)|ud[89a-f][0-9a-f]{2})>")


class ExpectedShareGpt(TextExpectation):
    untrained = "a sampled tool result shares its turn with others in this format"

    def files(self) -> Sequence[str]:
        return (FILE,)

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        for number, row in enumerate(layout_texts(samples, lambda message: SPEAKERS[message["role"]] != "tool")):
            turns = _Turns()
            for message in row.messages:
                turns.add(message)
            turns.end_results()
            trained = {turns.places[index]: sample for index, sample in row.trained.items()}
            written = [{**turn, "train": place in trained} for place, turn in enumerate(turns.turns)]
            differences = [*row.differences(has_reasoning=True), *turns.differences]
            value = {
                "conversations": written,
                "tools": json.dumps(row.tools or []),
                "source": replace_halves(self.source),
                "id": replace_halves(f"{session}#{number}"),
                "on_policy": not differences,
                "hermes": {
                    "session": replace_halves(session),
                    "rollout": replace_halves(row.rollout),
                    "row": number,
                    "responses": [sample.response_id for sample in row.samples],
                    "off_policy": "; ".join(differences),
                    "left_out": row.left_out,
                    "rest": json.dumps(turns.rest, separators=(",", ":")) if any(turns.rest) else "[]",
                },
            }
            out.values.append((FILE, value))
            out.off_policy |= {self.rows} if differences else set()
            digests = [turn_digest(turn) for turn in written]
            out.placed |= {sample: place_turn(self.rows, digests, place) for place, sample in trained.items()}
            self.rows += 1
        return out


@dataclass(slots=True)
class _Turns:
    """The turns of a conversation, grown message by message."""

    turns: list[dict[str, str]] = field(default_factory=list)
    rest: list[dict[str, Any]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """For each message its turn."""
    differences: dict[str, None] = field(default_factory=dict)
    calls: Sequence[Any] = ()
    """The calls that results may answer."""
    results: list[Mapping[str, Any]] = field(default_factory=list)
    """Results that go into one turn."""

    def add(self, message: Mapping[str, Any]) -> None:
        speaker = SPEAKERS[message["role"]]
        if speaker == "tool":
            self.results.append(message)
            self.places.append(len(self.turns))
            return
        self.end_results()
        if speaker == "gpt":
            value, entry = _model_turn(message)
            self.calls = message.get("tool_calls") or ()
        else:
            text, entry = _content(message)
            value, self.calls = _HALF.sub(_write_half, _HALF_WRITTEN.sub(r"<\1\\\2", text)), ()
        self.places.append(len(self.turns))
        self._append(speaker, value, entry, [message])

    def end_results(self) -> None:
        if not self.results:
            return
        order = _order(self.results, self.calls)
        contents = [_content(result) for result in self.results]
        blocks = {place: f"<tool_response>\n{_escape(text)}\n</tool_response>" for place, (text, _) in zip(order, contents, strict=True)}
        entry: dict[str, Any] = {"results": [rest for _, rest in contents]}
        if order != sorted(order):
            entry["order"] = order
            self.differences["tool results put in the order of their calls"] = None
        self._append("tool", "\n".join(blocks[place] for place in sorted(blocks)), entry, self.results)
        self.results, self.calls = [], ()

    def _append(self, speaker: str, value: str, entry: dict[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
        self.turns.append({"from": speaker, "value": value})
        self.rest.append(entry)
        if speaker in ("gpt", "tool") and (_ANY_ESCAPE.search(value) or _SHORT_TAG_WRITTEN.search(value)):
            self.differences["structural tags in a text escaped"] = None
        if any(isinstance(message.get("content"), list) for message in messages):
            self.differences["parts of a content joined to one text"] = None


def _order(results: Sequence[Mapping[str, Any]], calls: Sequence[Any]) -> list[int]:
    """Return the place of each result in its turn: that of its call, if ids say so without doubt."""
    ids = [call.get("id") for call in calls]
    answered = [result.get("tool_call_id") for result in results]
    if len(set(ids)) < len(ids) or len(set(answered)) < len(answered) or not set(answered) <= set(ids):
        return list(range(len(results)))
    ranks = sorted(ids.index(name) for name in answered)
    return [ranks.index(ids.index(name)) for name in answered]


def _content(message: Mapping[str, Any], *elsewhere: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a message, and what is kept beside its turn; fields `elsewhere` are in the turn."""
    content, rest = message.get("content", "absent"), dict[str, Any]()
    if isinstance(content, list):
        rest["content"] = [{**part, "text": len(part["text"])} if is_text(part) else part for part in content]
        text = "\n".join(part_text(part) for part in content)
    elif isinstance(content, str) and "content" in message:
        text = content
    else:
        rest["content"], text = content, ""
    if message["role"] != ROLES_OF_SPEAKERS[SPEAKERS[message["role"]]]:
        rest["role"] = message["role"]
    fields = {key: value for key, value in message.items() if key not in ("role", "content", "metadata", *elsewhere)}
    return text, rest | ({"fields": fields} if fields else {})


def _model_turn(message: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    thought = next((message[name] for name in REASONING if message.get(name)), "")
    names = [name for name in REASONING if thought and message.get(name) == thought]
    calls = message.get("tool_calls") or []
    text, rest = _content(message, *names, *(["tool_calls"] if calls else []))
    if names and names != ["reasoning"]:
        rest["think"] = names
    if calls:
        rest["calls"] = [_beside(call) for call in calls]
    pieces = [_escape(text)] if text else []
    pieces += [f"<tool_call>\n{envelope(call)}\n</tool_call>" for call in calls]
    think = f"<think>\n{_escape(thought)}\n</think>\n" if thought else ""
    return think + "\n".join(pieces), rest


def _beside(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not (isinstance(function, Mapping) and isinstance(function.get("name"), str) and isinstance(function.get("arguments"), str)):
        return {"whole": call}
    return {**call, "function": {key: value for key, value in function.items() if key not in ("name", "arguments")}}


def envelope(call: Mapping[str, Any]) -> str:
    """Return a call as JSON inside a turn's text."""
    function = call["function"] if isinstance(call.get("function"), Mapping) else call.get("custom", call)
    known = function if isinstance(function, Mapping) else {}
    name = known.get("name")
    arguments = known.get("arguments", known.get("input", ""))
    arguments = arguments if isinstance(arguments, str) else json.dumps(arguments)
    is_text_argument = not _is_json(arguments) or arguments.lstrip().startswith('"') or _SHORT_TAG_WRITTEN.search(arguments)
    written = _SHORT_TAG.sub(r"\\u003c", json.dumps(arguments) if is_text_argument else arguments)
    label = _SHORT_TAG.sub(r"\\u003c", json.dumps(name if isinstance(name, str) else ""))
    return f'{{"name": {label}, "arguments": {written}}}'


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return not _HALF.search(text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _escape(text: str) -> str:
    """Escape structural tags and halves of surrogate pairs."""
    return _HALF.sub(_write_half, _HALF_WRITTEN.sub(r"<\1\\\2", _TAG.sub(r"<\1\\\2", text)))


def _write_half(match: re.Match[str]) -> str:
    return f"<\\u{ord(match[0]):04x}>"
