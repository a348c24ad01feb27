"""An answer put together from the deltas so far: for streams that broke off before their end."""

from __future__ import annotations

from typing import Any

from hermes.ports.backends import Delta, ReasoningDelta, TextDelta, ToolCallDelta


class PartialAnswer:
    """Collects deltas. Adding is cheap: the texts are joined only when `message` is read."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallDelta(index, call_id, name, arguments):
                call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
                call["id"] = call_id or call["id"]
                call["name"] = name or call["name"]
                call["arguments"].append(arguments)

    def __bool__(self) -> bool:
        return bool(self._text or self._reasoning or self._calls)

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message so far. A tool call may break off in the middle of its arguments."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
                for _, call in sorted(self._calls.items())
            ]
        return message
