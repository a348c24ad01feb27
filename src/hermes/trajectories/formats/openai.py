"""OpenAI fine-tuning JSONL: `openai.jsonl`, one conversation a line; `weight` is 1 on assistant messages trained there, 0 on others.

    {"messages": [{"role", "content", "tool_calls"?, "tool_call_id"?, "name"?, "refusal"?, "weight"?}], "tools"?, "parallel_tool_calls"?}

OpenAI refuses unknown keys, so the other facts of a row are in `openai.rows.jsonl`, line by line. The format has no field for reasoning,
so it is left out. Half a surrogate pair becomes U+FFFD."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hermes.graph.message import thaw
from hermes.trajectories.formats.files import LineFile, spaced_json
from hermes.trajectories.ledger import Placement, dump
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.text_rows import REPLACED, TextRow, is_assistant, replace_surrogates, text_digest, text_placement, text_rows

FILE_NAME = "openai.jsonl"
ROWS_FILE_NAME = "openai.rows.jsonl"

FIELDS = {
    "system": ("content", "name"),
    "developer": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "tool_calls", "function_call", "refusal", "name"),
    "tool": ("tool_call_id", "content"),
    "function": ("name", "content"),
}


class OpenAiWriter:
    """Streams conversations into one file, and the facts about them into another."""

    untrained = "only an assistant's messages have a weight in this format"

    def __init__(self, folder: Path | None, settings: ExportSettings) -> None:  # noqa: ARG002  # every writer takes the settings
        self._file = LineFile(folder, FILE_NAME)
        self._about = LineFile(folder, ROWS_FILE_NAME, has_rows=True)
        self.files = (self._file, self._about)
        self.rows = 0

    def write(self, plan: SessionPlan) -> Iterator[Placement]:
        for row in text_rows(plan.calls, is_assistant):
            line, differences = record(row)
            self._file.write(spaced_json(line).encode("ascii") + b"\n")
            self._about.write(dump(about(self.rows, row, differences)))
            digests = [text_digest(message) for message in line["messages"]]
            for index, call in row.trained.items():
                yield Placement(call, text_placement(self.rows, digests, index), differs=bool(differences))
            self.rows += 1

    def close(self) -> None:
        self._file.close()
        self._about.close()


def record(row: TextRow) -> tuple[dict[str, Any], list[str]]:
    """Return one line of the file, and how it differs from what was sent."""
    ids = _OpenCalls()
    messages = []
    for index, message in enumerate(row.messages):
        written = _message(message, index, ids)
        if message["role"] == "assistant":
            written["weight"] = int(index in row.trained)
        messages.append(written)
    line: dict[str, Any] = {"messages": messages}
    if row.tools:
        line |= {"tools": thaw(row.tools), "parallel_tool_calls": _may_call_in_parallel(row)}
    written = replace_surrogates(line)
    return written, [*row.differences(has_reasoning=False), *([REPLACED] if written != line else [])]


def about(number: int, row: TextRow, differences: Sequence[str]) -> dict[str, Any]:
    """Return the facts about a row that its line has no keys for."""
    return {
        "row": number,
        "session": row.session,
        "rollout": row.rollout,
        "responses": [call.response_id for call in row.calls],
        "on_policy": not differences,
        "off_policy": "; ".join(differences),
        "left_out": row.left_out,
    }


class _OpenCalls:
    """Ids of calls that still have no result, so that a result without an id gets the id of the first of them."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def answer(self, named: str | None, fallback: str) -> str:
        name = named or (self.open[0] if self.open else fallback)
        self.open = [other for other in self.open if other != name]
        return name


def _message(message: Mapping[str, Any], index: int, ids: _OpenCalls) -> dict[str, Any]:
    role = message["role"]
    written: dict[str, Any] = {"role": role}
    written |= {key: thaw(message[key]) for key in FIELDS[role] if message.get(key) is not None}
    if not written.get("tool_calls", True):
        del written["tool_calls"]  # OpenAI refuses an empty list
    calls = written.get("tool_calls")
    if calls:
        written["tool_calls"] = [_call(call, f"call_{index}_{place}") for place, call in enumerate(calls)]
        ids.open = [call["id"] for call in written["tool_calls"]]
    if "content" not in written:
        has_more = any(key in written for key in ("tool_calls", "function_call", "refusal"))
        written["content"] = None if has_more else ""
    if role == "tool":
        written["tool_call_id"] = ids.answer(message.get("tool_call_id"), f"call_{index}")
    if role == "function":
        written.setdefault("name", "function")
    return written


def _call(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a tool call with the fields that OpenAI requires."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {"id": name, "type": "function", **call}
    arguments = function.get("arguments", "")
    return {
        "id": call["id"] if isinstance(call.get("id"), str) else name,
        "type": "function",
        "function": {
            "name": str(function.get("name") or ""),
            "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
        },
    }


def _may_call_in_parallel(row: TextRow) -> bool:
    """Return the recorded `parallel_tool_calls` of the row's calls; True, which is OpenAI's default, if none was recorded."""
    for call in row.calls:
        sent = call.response.call.sampling if call.response.call is not None else None
        if sent is not None and isinstance(sent.get("parallel_tool_calls"), bool):
            return bool(sent["parallel_tool_calls"])
    return True
