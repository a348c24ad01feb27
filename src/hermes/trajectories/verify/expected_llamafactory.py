"""What `llamafactory.jsonl` and `dataset_info.json` hold: a row for each sample, with turns that alternate."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hermes.graph import MessageGraph
from hermes.trajectories.verify.expected import ExpectedSession
from hermes.trajectories.verify.expected_sharegpt import envelope
from hermes.trajectories.verify.expected_text import (
    REPLACED,
    TextExpectation,
    TextLayout,
    layout_texts,
    place_turn,
    replace_halves,
    turn_digest,
)
from hermes.trajectories.verify.llamafactory_reader import FILE, INFO, INFO_FILE
from hermes.trajectories.verify.source_samples import SourceSample

_MARK = re.compile(r"<(?P<slashes>\\*)(?P<name>/?(?:think|tool_call|tool_response))>")


class ExpectedLlamaFactory(TextExpectation):
    untrained = "only an assistant's messages are trained in this format"
    fixed: ClassVar[Mapping[str, Any]] = {INFO_FILE: INFO}

    def files(self) -> Sequence[str]:
        return (FILE,)

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession:  # noqa: ARG002
        out = ExpectedSession()
        rows = [row for sample in samples for row in layout_texts([sample], lambda message: bool(message["role"] == "assistant"))]
        for number, row in enumerate(rows):
            [sample] = row.samples
            turns, tools, reasons = _write_row(row, sample)
            value = {
                "conversations": turns,
                "tools": json.dumps(tools),
                "source": replace_halves(self.source),
                "id": replace_halves(f"{session}#{number}"),
                "on_policy": not reasons,
                "hermes": {
                    "session": replace_halves(session),
                    "rollout": replace_halves(row.rollout),
                    "row": number,
                    "response": sample.response_id,
                    "off_policy": "; ".join(reasons),
                    "left_out": row.left_out,
                },
            }
            out.values.append((FILE, value))
            out.off_policy |= {self.rows} if reasons else set()
            out.placed[sample] = place_turn(self.rows, [turn_digest(turn) for turn in turns], len(turns) - 1)
            self.rows += 1
        return out


def _write_row(row: TextLayout, sample: SourceSample) -> tuple[list[dict[str, str]], list[Any], list[str]]:
    """Return the turns of a row, its tools, and how it differs from what was sent."""
    overlay = sample.response.overlay
    reasons = dict.fromkeys(row.differences(has_reasoning=True))
    reasons.pop("reasoning of earlier turns put back", None)  # a row holds the context of one sample, so it holds what was sent
    last_user = max((at for at, message in enumerate(row.messages) if message["role"] == "user"), default=0)
    first_shown = {"all": 0, "none": len(row.messages) - 1}.get(overlay.keep_reasoning, last_user)
    written = _RowWriter(reasons)
    for at, message in enumerate(row.messages):
        written.add(message, shows_reasoning=at >= first_shown)
    given = [_plain(tool) for tool in overlay.tools or ()]
    tools = [_whole_tool(tool) for tool in given]
    if tools != given:
        reasons["tool schemas completed"] = None
    turns = [{"from": who, "value": replace_halves(text)} for who, text in written.turns]
    if [turn["value"] for turn in turns] != [text for _, text in written.turns]:
        reasons[REPLACED] = None
    return turns, tools, list(reasons)


class _RowWriter:
    """Takes messages one by one; what stands on the user's side waits until a model's message closes it."""

    def __init__(self, reasons: dict[str, None]) -> None:
        self.turns: list[tuple[str, str]] = []
        self._reasons = reasons
        self._waiting: list[Mapping[str, Any]] = []
        self._calls: list[Any] = []

    def add(self, message: Mapping[str, Any], *, shows_reasoning: bool) -> None:
        if message["role"] != "assistant":
            self._waiting.append(message)
            return
        self._close_side()
        if not self.turns or self.turns[-1][0] not in ("human", "observation"):
            self.turns.append(("human", ""))
            self._reasons["empty human turn put between a model's turns"] = None
        thought = (message.get("reasoning") or message.get("reasoning_content") or "") if shows_reasoning else ""
        calls = list(message.get("tool_calls") or ())
        if not calls and isinstance(message.get("function_call"), Mapping):
            calls = [{"function": message["function_call"]}]
        self._calls = calls
        self.turns.append(self._model(message, thought, calls))

    def _close_side(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not self.turns:
            opening = 0
            while opening < len(waiting) and waiting[opening]["role"] in ("system", "developer"):
                opening += 1
            if opening:
                self.turns.append(("system", "\n\n".join(map(self._content, waiting[:opening]))))
            if opening > 1:
                self._reasons["turns of one side joined to one"] = None
            waiting = waiting[opening:]
        if not waiting:
            return
        texts: list[str] = []
        at = 0
        while at < len(waiting):
            end = at
            while end < len(waiting) and waiting[end]["role"] in ("tool", "function"):
                end += 1
            if end == at:
                texts.append(self._content(waiting[at]))
                at += 1
                continue
            joined = "\n</tool_response>\n<tool_response>\n".join(self._results(waiting[at:end]))
            if end - at == len(waiting):
                self.turns.append(("observation", joined))
                return
            texts.append(f"<tool_response>\n{joined}\n</tool_response>")
            at = end
        if len(waiting) > 1:
            self._reasons["turns of one side joined to one"] = None
        if {message["role"] for message in waiting} & {"system", "developer"}:
            self._reasons["a later system message written as a human turn"] = None
        self.turns.append(("human", "\n\n".join(texts)))

    def _results(self, results: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the texts of results in the order of their calls; as they are listed unless each has a call of its own."""
        asked = [call.get("id") for call in self._calls]
        named = [result.get("tool_call_id") for result in results]
        order = list(range(len(results)))
        if len({*asked}) == len(asked) and len({*named}) == len(named) and not {*named} - {*asked}:
            order.sort(key=lambda at: asked.index(named[at]))
        if order != sorted(order):
            self._reasons["tool results put in the order of their calls"] = None
        texts = [self._mark(self._content(result)) for result in results]
        return [texts[at] for at in order]

    def _model(self, message: Mapping[str, Any], thought: str, calls: Sequence[Any]) -> tuple[str, str]:
        head = f"<think>\n{self._mark(thought)}\n</think>\n\n" if thought else ""
        text = self._mark(self._content(message))
        if not calls:
            return "gpt", head + text
        known = [found for found in map(_call_object, calls) if found is not None]
        if head or text or len(known) < len(calls):
            return "gpt", head + "\n".join([text] * bool(text) + [f"<tool_call>\n{envelope(call)}\n</tool_call>" for call in calls])
        if any(is_other for _, is_other in known):
            self._reasons["arguments of calls written anew"] = None
        return "function_call", f"[{', '.join(_guard_json(found) for found, _ in known)}]"

    def _content(self, message: Mapping[str, Any]) -> str:
        content = message.get("content") or ""
        if isinstance(content, str):
            return content
        self._reasons["parts of a content joined to one text"] = None
        return "\n".join(
            part["text"] if part.get("type") == "text" and isinstance(part.get("text"), str) else f"[{part['type']}]" for part in content
        )

    def _mark(self, text: str) -> str:
        marked = _MARK.sub(lambda found: f"<{found['slashes']}\\{found['name']}>", text)
        if marked != text:
            self._reasons["structural tags in a text escaped"] = None
        return marked


def _call_object(call: Mapping[str, Any]) -> tuple[str, bool] | None:
    """Return a call as LLaMA-Factory's JSON, and whether its arguments were written in another way; None if it is no such call."""
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    sent = function.get("arguments", "")
    try:
        arguments = _plain(sent) if not isinstance(sent, str) else json.loads(sent) if sent else {}
        again = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(arguments, dict):
        return None
    return json.dumps({"name": function["name"], "arguments": arguments}, ensure_ascii=False), isinstance(sent, str) and sent != again


def _guard_json(text: str) -> str:
    return re.sub(r"<(/?(?:think|tool_call|tool_response)>)", r"\\u003c\1", text)


def _whole_tool(tool: Any) -> Any:
    """Return a tool as a function with a name, parameters and properties."""
    if not isinstance(tool, dict):
        return {"type": "function", "function": {"name": str(tool), "parameters": {"type": "object", "properties": {}}}}
    inside = tool["function"] if "function" in tool else tool.get("custom")
    function = dict(inside) if isinstance(inside, dict) else {key: value for key, value in tool.items() if key != "type"}
    schema = function["parameters"] if "parameters" in function else function.get("input_schema")
    schema = schema if isinstance(schema, dict) else {}
    has_properties, has_name = isinstance(schema.get("properties"), dict), isinstance(function.get("name"), str)
    if isinstance(inside, dict) and tool.get("type") == "function" and has_properties and has_name:
        return tool
    name = function["name"] if has_name else str(tool.get("type", ""))
    others = {key: value for key, value in function.items() if key not in {"name", "parameters", "input_schema"}}
    filled = {"type": "object", **schema, "properties": schema["properties"] if has_properties else {}}
    return {"type": "function", "function": {"name": name, **others, "parameters": filled}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
