"""What a replay has brought so far, as it is stored, sealed: answers with their calls, and what tools brought. A worker that takes a replay
over goes on from here, and asks for no answer that was paid."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hermes.ports.tools import ToolCall, ToolResult
from hermes.router.effects import JournaledAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTool:
    """What became of a tool call of a replay."""

    call: ToolCall
    result: ToolResult | None
    """None: it was not run."""
    is_recorded: bool = False
    """The result is the one of the recorded turn; False: the tool ran now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """The answers of a replay and the results of its tools."""

    answers: Sequence[JournaledAnswer] = ()
    tools: Sequence[ReplayTool] = ()

    @property
    def text(self) -> str:
        """The text of the last answer."""
        return self.answers[-1].text if self.answers else ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self.answers[0].tool_calls if self.answers else []

    @property
    def not_run(self) -> list[ToolCall]:
        """The calls at which it diverged."""
        return [tool.call for tool in self.tools if tool.result is None]

    def with_answer(self, answer: JournaledAnswer) -> ReplayProgress:
        return replace(self, answers=(*self.answers, answer))

    def with_tools(self, tools: Sequence[ReplayTool]) -> ReplayProgress:
        return replace(self, tools=tuple(tools))

    @classmethod
    def from_bytes(cls, body: bytes | None) -> ReplayProgress:
        if body is None:
            return cls()
        written: Mapping[str, Any] = json.loads(body)
        answers = tuple(JournaledAnswer(**answer) for answer in written["answers"])
        return cls(answers=answers, tools=tuple(read_tool(tool) for tool in written["tools"]))

    def to_bytes(self) -> bytes:
        answers = [json.loads(answer.to_bytes()) for answer in self.answers]
        return json.dumps({"answers": answers, "tools": [tool_json(tool) for tool in self.tools]}, separators=(",", ":")).encode()


def tool_json(tool: ReplayTool) -> dict[str, Any]:
    return {"call": asdict(tool.call), "result": tool.result and tool.result.to_json(), "is_recorded": tool.is_recorded}


def read_tool(written: Mapping[str, Any]) -> ReplayTool:
    result = written["result"]
    return ReplayTool(
        call=ToolCall(**written["call"]),
        result=None if result is None else ToolResult.from_json(result),
        is_recorded=written["is_recorded"],
    )
