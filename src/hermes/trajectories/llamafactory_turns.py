"""Messages as the turns that LLaMA-Factory's ShareGPT converter takes: an optional system turn, then the user's side and the model's side.

    system · human | observation · gpt | function_call · human | observation · gpt | function_call …

A row with two turns of one side in a row is skipped there. So messages that follow each other on the user's side are joined to one turn,
and between two messages of a model stands an empty human turn: to join those would train the first with the second. Worked example, with
a summary before a question, and tool results before another question:

    S  U(summary)  U  A(call)  T  T  U  A      turns: system  human  function_call  human(T T U)  gpt

LLaMA-Factory writes calls and results in the words of its template, so calls alone are JSON here and a result is bare. Knows no files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from hermes.graph.message import thaw
from hermes.trajectories.sharegpt_turns import ESCAPED, JOINED, REORDERED, TAGS, call_order, part_text, to_turns
from hermes.trajectories.text_rows import reasoning_of

TURNS_JOINED = "turns of one side joined to one"
HUMAN_ADDED = "empty human turn put between a model's turns"
SYSTEM_LATE = "a later system message written as a human turn"
CALLS_REWRITTEN = "arguments of calls written anew"
TOOLS_COMPLETED = "tool schemas completed"

SIDES = {"system": "system", "developer": "system", "user": "human", "assistant": "gpt", "tool": "observation", "function": "observation"}
RESULTS_JOIN = "\n</tool_response>\n<tool_response>\n"
"""Between results in one turn, as LLaMA-Factory joins them itself."""

_TAG = re.compile(rf"<(\\*)(/?(?:{TAGS}))>")
_TAG_IN_JSON = re.compile(rf"<(?=/?(?:{TAGS})>)")


@dataclass(slots=True)
class LlamaFactoryConversation:
    """A list of messages as turns."""

    turns: list[dict[str, str]] = field(default_factory=list)
    differences: dict[str, None] = field(default_factory=dict)
    """How the turns differ from the messages."""

    def add(self, speaker: str, value: str) -> None:
        self.turns.append({"from": speaker, "value": value})

    def note(self, difference: str) -> None:
        self.differences[difference] = None


def to_llamafactory(messages: Sequence[Mapping[str, Any]]) -> LlamaFactoryConversation:
    """Return messages, of which the last is an assistant's, as turns that alternate; the last turn holds the last message alone."""
    conversation = LlamaFactoryConversation()
    first = next((index for index, message in enumerate(messages) if SIDES[message["role"]] != "system"), len(messages))
    if first:
        conversation.add("system", "\n\n".join(_text(message, conversation.note) for message in messages[:first]))
        if first > 1:
            conversation.note(TURNS_JOINED)
    calls: Sequence[Any] = ()
    for is_model, run in groupby(messages[first:], lambda message: SIDES[message["role"]] == "gpt"):
        if not is_model:
            _add_user_side(list(run), calls, conversation)
            continue
        for message in run:
            if not conversation.turns or conversation.turns[-1]["from"] in ("system", "gpt", "function_call"):
                conversation.add("human", "")
                conversation.note(HUMAN_ADDED)
            conversation.add(*_model_turn(message, conversation.note))
            calls = _calls(message)
    return conversation


def complete_tools(tools: Sequence[Any]) -> list[Any]:
    """Return tool schemas in the one shape that every template of LLaMA-Factory reads: functions with a name, parameters and properties."""
    return [_complete_tool(thaw(tool)) for tool in tools]


# The user's side --------------------------------------------------------------------------------------------------


def _add_user_side(messages: Sequence[Mapping[str, Any]], calls: Sequence[Any], conversation: LlamaFactoryConversation) -> None:
    pieces: list[str] = []
    kinds = []
    for kind, group in groupby(messages, lambda message: SIDES[message["role"]]):
        members = list(group)
        kinds += [kind] * len(members)
        if kind != "observation":
            pieces += [_text(message, conversation.note) for message in members]
            continue
        order = call_order(members, calls)
        if list(order) != sorted(order):
            conversation.note(REORDERED)
        texts = [_guard(_text(message, conversation.note), conversation.note) for message in members]
        results = [text for _, text in sorted(zip(order, texts, strict=True))]
        if len(members) == len(messages):
            conversation.add("observation", RESULTS_JOIN.join(results))
            return
        pieces += [f"<tool_response>\n{RESULTS_JOIN.join(results)}\n</tool_response>"]
    if len(kinds) > 1:
        conversation.note(TURNS_JOINED)
    if "system" in kinds:
        conversation.note(SYSTEM_LATE)
    conversation.add("human", "\n\n".join(pieces))


# The model's side -------------------------------------------------------------------------------------------------


class _JsonCall(NamedTuple):
    text: str
    is_rewritten: bool


def _model_turn(message: Mapping[str, Any], note: Callable[[str], None]) -> tuple[str, str]:
    """Return speaker and value of a model's message.

    Calls alone are a function_call turn, which LLaMA-Factory writes as its template does. Not every template takes such a turn with words
    or a thought in it, so calls beside these are text in a gpt turn, as in ShareGPT."""
    thought, calls = reasoning_of(message), _calls(message)
    think = f"<think>\n{_guard(thought, note)}\n</think>\n\n" if thought else ""
    text = _guard(_text(message, note), note)
    if not calls:
        return "gpt", think + text
    written = list(_json_calls(calls))
    if not think and not text and len(written) == len(calls):
        if any(call.is_rewritten for call in written):
            note(CALLS_REWRITTEN)
        return "function_call", "[" + ", ".join(call.text for call in written) + "]"
    envelopes = to_turns([{"role": message["role"], "content": None, "tool_calls": calls}]).turns[0]["value"]
    return "gpt", think + (f"{text}\n" if text else "") + envelopes


def _calls(message: Mapping[str, Any]) -> Sequence[Any]:
    """Return the calls of a message, under either of OpenAI's two names."""
    former = message.get("function_call")
    return message.get("tool_calls") or ([{"function": former}] if isinstance(former, Mapping) else ())


def _json_calls(calls: Sequence[Any]) -> Iterator[_JsonCall]:
    """Yield the calls up to the first that is not a function with a JSON object as its arguments."""
    for call in calls:
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return
        sent = function.get("arguments", "")
        try:
            # The values as LLaMA-Factory will read and write them. Empty arguments are what many servers send for a call without any.
            arguments = json.loads(sent or "{}") if isinstance(sent, str) else thaw(sent)
            text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (ValueError, TypeError, RecursionError):
            return
        if not isinstance(arguments, dict):
            return
        whole = f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {text}}}'
        yield _JsonCall(_TAG_IN_JSON.sub(r"\\u003c", whole), isinstance(sent, str) and text != sent)


# Texts and tools --------------------------------------------------------------------------------------------------


def _text(message: Mapping[str, Any], note: Callable[[str], None]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not content:
        return ""
    note(JOINED)
    return "\n".join(part_text(part) for part in content)


def _guard(text: str, note: Callable[[str], None]) -> str:
    """Escape the tags that LLaMA-Factory, or its template, gives a meaning."""
    escaped = _TAG.sub(r"<\1\\\2>", text)
    if escaped != text:
        note(ESCAPED)
    return escaped


def _complete_tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return {"type": "function", "function": {"name": str(tool), "parameters": {"type": "object", "properties": {}}}}
    inner = tool.get("function", tool.get("custom"))
    function = inner if isinstance(inner, dict) else {key: value for key, value in tool.items() if key != "type"}
    parameters = function.get("parameters", function.get("input_schema"))
    parameters = parameters if isinstance(parameters, dict) else {}
    properties, name = parameters.get("properties"), function.get("name")
    if isinstance(inner, dict) and tool.get("type") == "function" and isinstance(properties, dict) and isinstance(name, str):
        return tool
    rest = {key: value for key, value in function.items() if key not in ("name", "parameters", "input_schema")}
    shape = {"type": "object", **parameters, "properties": properties if isinstance(properties, dict) else {}}
    known = name if isinstance(name, str) else str(tool.get("type", ""))
    return {"type": "function", "function": {"name": known, **rest, "parameters": shape}}
