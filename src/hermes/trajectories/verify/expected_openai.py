"""What `openai.jsonl` and `openai.rows.jsonl` hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hermes.graph import MessageGraph
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_text import (
    REPLACED,
    TextExpectation,
    TextLayout,
    layout_texts,
    place_turn,
    replace_halves,
    turn_digest,
)
from hermes.trajectories.verify.source_samples import SourceSample

FILE = "openai.jsonl"
ABOUT = "openai.rows.jsonl"
KNOWN_FIELDS = {
    **dict.fromkeys(("system", "developer", "user"), ("content", "name")),
    "assistant": ("content", "tool_calls", "function_call", "refusal", "name"),
    "tool": ("tool_call_id", "content"),
    "function": ("name", "content"),
}


class ExpectedOpenAi(TextExpectation):
    untrained = "only an assistant's messages have a weight in this format"

    def files(self) -> Sequence[str]:
        return FILE, ABOUT

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        for row in layout_texts(samples, lambda message: bool(message["role"] == "assistant")):
            line: dict[str, Any] = {"messages": _messages(row)}
            if row.tools:
                line |= {"tools": row.tools, "parallel_tool_calls": _parallel(row)}
            written = replace_halves(line)
            differences = [*row.differences(has_reasoning=False), *([REPLACED] if written != line else [])]
            about = {
                "row": self.rows,
                "session": session,
                "rollout": row.rollout,
                "responses": [sample.response_id for sample in row.samples],
                "on_policy": not differences,
                "off_policy": "; ".join(differences),
                "left_out": row.left_out,
            }
            out.values += [(FILE, written), (ABOUT, about)]
            out.off_policy |= {self.rows} if differences else set()
            digests = [turn_digest(message) for message in written["messages"]]
            out.placed |= {sample: place_turn(self.rows, digests, index) for index, sample in row.trained.items()}
            self.rows += 1
        return out


def _messages(row: TextLayout) -> list[dict[str, Any]]:
    written = []
    unanswered: list[str] = []
    for index, message in enumerate(row.messages):
        role = message["role"]
        out = {"role": role} | {key: message[key] for key in KNOWN_FIELDS[role] if message.get(key) is not None}
        if "tool_calls" in out and not out["tool_calls"]:
            del out["tool_calls"]
        if "tool_calls" in out:
            out["tool_calls"] = [_call(call, f"call_{index}_{place}") for place, call in enumerate(out["tool_calls"])]
            unanswered = [call["id"] for call in out["tool_calls"]]
        if "content" not in out:
            out["content"] = None if out.keys() & {"tool_calls", "function_call", "refusal"} else ""
        if role == "tool":
            name = message.get("tool_call_id") or (unanswered[0] if unanswered else f"call_{index}")
            unanswered = [other for other in unanswered if other != name]
            out["tool_call_id"] = name
        if role == "function":
            out.setdefault("name", "function")
        if role == "assistant":
            out["weight"] = 1 if index in row.trained else 0
        written.append(out)
    return written


def _call(call: Mapping[str, Any], name: str) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, Mapping):
        return {"id": name, "type": "function", **call}
    arguments = function.get("arguments", "")
    called = {"name": str(function.get("name") or ""), "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)}
    return {"id": call["id"] if isinstance(call.get("id"), str) else name, "type": "function", "function": called}


def _parallel(row: TextLayout) -> bool:
    """Return the first recorded `parallel_tool_calls`; OpenAI's default is True."""
    stated = ((sample.record.sampling or {}).get("parallel_tool_calls") for sample in row.samples)
    return next((value for value in stated if isinstance(value, bool)), True)
