"""The recorded request of a turn, or of a call of the completions API, word for word; and what was answered and what its tools brought.

The journal has it for turns, as the worker asked it; the message graph has it for the completions API, as the sample's own context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hermes.graph import Response
from hermes.graph.context import KeepReasoning, Overlay
from hermes.ports.errors import DataDamaged, NotFound
from hermes.ports.replays import EffectReader, GraphReader, ReplayChange, ReplaySource
from hermes.ports.runtime import Transaction
from hermes.ports.tools import ToolCall, ToolResult
from hermes.router.effects import JournaledAnswer
from hermes.router.steps.build_messages import SECOND_CALL_REASONING, Prompt
from hermes.router.steps.run_tools import MAX_TOOL_CALLS

Message = Mapping[str, Any]


UNREADABLE = "it cannot be opened: its key is missing, or its bytes were changed"


class NotReplayable(NotFound):
    """The request is not there any more, or never was."""


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """A tool call of the recorded turn, with its result."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPrompt:
    """What a model was asked, and what came of it."""

    system: str
    """The system text; empty if there is none that stands alone."""
    messages: Sequence[Message]
    """The rest of the messages."""
    tools: Sequence[Mapping[str, Any]]
    tool_choice: str | Mapping[str, Any] | None = None
    sampling: Mapping[str, Any]
    goes_on: bool
    """Whether Hermes runs the tools and asks again, as in a turn. A client of the completions API does that itself."""
    keep_reasoning: KeepReasoning = "none"
    answers: Sequence[JournaledAnswer] = ()
    results: Sequence[RecordedTool] = ()

    def first(self) -> list[dict[str, Any]]:
        """The messages of the first call."""
        return Overlay(system=self.system, keep_reasoning=self.keep_reasoning).render(self.messages)

    def then(self, added: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages of the call after the tools."""
        return Overlay(system=self.system, keep_reasoning=SECOND_CALL_REASONING).render([*self.messages, *added])

    @property
    def tool_names(self) -> list[str]:
        return [tool_name(tool) for tool in self.tools]

    @property
    def text(self) -> str:
        """The text of the last answer; empty if no model answered."""
        return self.answers[-1].text if self.answers else ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        return self.answers[0].tool_calls if self.answers else []

    def changed(self, change: ReplayChange) -> ReplayPrompt:
        """The request as the replay asks it."""
        tools = self.tools if change.tools is None else [tool for tool in self.tools if tool_name(tool) in change.tools]
        forced = self.tool_choice if isinstance(self.tool_choice, Mapping) else None
        is_gone = forced is not None and (forced.get("function") or {}).get("name") not in {tool_name(tool) for tool in tools}
        return replace(
            self,
            system=self.system if change.system is None else change.system,
            tools=tools,
            tool_choice=None if is_gone or not tools else self.tool_choice,
            sampling={**self.sampling, **change.sampling},
        )


def tool_name(tool: Mapping[str, Any]) -> str:
    return str((tool.get("function") or {}).get("name", ""))


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """Reads recorded requests. It can change nothing."""

    effects: EffectReader
    graphs: GraphReader

    async def read(self, tx: Transaction, source: ReplaySource) -> ReplayPrompt:
        """Return the request. Raises NotReplayable with the reason, and UserErased."""
        if source.why_not:
            raise NotReplayable(source.why_not)
        try:
            return await (self._of_turn(tx, source) if source.turn_id is not None else self._of_call(tx, source))
        except DataDamaged:
            raise NotReplayable(UNREADABLE) from None

    async def _of_turn(self, tx: Transaction, source: ReplaySource) -> ReplayPrompt:
        asked = await self.effects.effect(tx, source.id, "call_model", 0)
        if asked is None or not asked.request:
            raise NotReplayable("expired")
        prompt = Prompt.from_bytes(asked.request)
        second = await self.effects.effect(tx, source.id, "call_model", 1)
        answers = [JournaledAnswer.from_bytes(each.result) for each in (asked, second) if each is not None and each.result is not None]
        results = []
        for index in range(MAX_TOOL_CALLS):
            tool = await self.effects.effect(tx, source.id, "run_tools", index)
            if tool is None:
                break
            if tool.result is not None:
                results.append(RecordedTool(ToolCall(**json.loads(tool.request)), ToolResult.from_bytes(tool.result)))
        return ReplayPrompt(
            system=prompt.system,
            messages=[*prompt.history, prompt.question],
            tools=prompt.tools,
            tool_choice=prompt.tool_choice,
            sampling={},
            goes_on=True,
            answers=answers,
            results=results,
        )

    async def _of_call(self, tx: Transaction, source: ReplaySource) -> ReplayPrompt:
        if source.session_id is None:
            raise NotReplayable("no answer was recorded")
        graph = await self.graphs.load(tx, source.session_id)
        response = next((each for each in graph.responses() if each.sample_id == str(source.call_id)), None)
        if response is None or response.redacted:
            raise NotReplayable("no answer was recorded" if response is None else "erased")
        system, messages = split_system(response.context)
        return ReplayPrompt(
            system=system,
            messages=messages,
            tools=response.overlay.tools or (),
            sampling=dict((response.call.sampling if response.call is not None else None) or {}),
            goes_on=False,
            keep_reasoning="all",
            answers=[answer_of(response, source)],
        )


def split_system(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The system text and the messages after it, if it is plain text at the beginning; else nothing and all of them."""
    if (
        messages
        and messages[0].keys() == {"role", "content"}
        and messages[0]["role"] == "system"
        and isinstance(messages[0]["content"], str)
    ):
        return messages[0]["content"], messages[1:]
    return "", messages


def answer_of(response: Response, source: ReplaySource) -> JournaledAnswer:
    """A recorded sample in the form in which the journal keeps answers."""
    call = response.call
    return JournaledAnswer(
        message={name: value for name, value in response.message.items() if name != "metadata"},
        call_id=str(source.call_id),
        model=(call.model if call is not None else None) or source.model,
        backend="",
        finish_reason=(call.finish_reason if call is not None else None) or "",
        tokens_in=source.tokens_in,
        tokens_out=source.tokens_out,
        micro_usd=source.micro_usd,
        rate={},
        latency_ms=source.latency_ms,
        attempts=(),
    )
