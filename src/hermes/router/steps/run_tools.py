"""Step 9: run the tools that the model called, one round of them, and ask the model again with their results.

If that second call fails, the user gets the raw output of the tools, after a disclaimer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hermes.ports.backends import BackendError
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.inbox import Claim
from hermes.ports.models import CallPurpose, NoAnswer
from hermes.ports.tools import ToolCall, ToolResult, ToolUser
from hermes.router.effects import EffectResult, JournaledAnswer, ask_model, make_caller, run_once
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.gate_tools import tools_for
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser

MAX_TOOL_CALLS = 12
"""Calls of one round. They run one after the other, each may take its full time limit, and the user waits for all of them."""
TOO_MANY_CALLS = "Error: this was not done; there were too many calls at once. Ask for the rest in the next message."


@dataclass(frozen=True, slots=True)
class TurnTranscript:
    """Everything that a turn exchanged with the model and its tools."""

    prompt: Prompt
    first: JournaledAnswer
    results: Sequence[ToolResult] = ()
    second: JournaledAnswer | None = None
    raw: str | None = None
    """The output of the tools, if the second model call failed."""

    @property
    def text(self) -> str:
        return self.raw or (self.second or self.first).text

    @property
    def is_sampled(self) -> bool:
        """Whether a model or a tool worked for this answer; False for an answer from the cache without tools."""
        return bool(self.results) or self.first.copy_of is None

    @property
    def answers(self) -> list[JournaledAnswer]:
        return [self.first] if self.second is None else [self.first, self.second]


async def run_tools(
    claim: Claim, first_call: tuple[Prompt, JournaledAnswer], person: ResolvedUser, past: LoadedHistory, services: Services
) -> TurnTranscript:
    """Return the turn's transcript. A tool never raises; if the second model call fails, the transcript has the raw output instead."""
    prompt, first = first_call
    calls = first.tool_calls
    if not calls:
        return TurnTranscript(prompt, first)
    user = ToolUser(claim.user_id, claim.envelope.account, person.language, str(person.zone), claim.turn_id, services.clock.now())
    results = [await run_tool(claim, at, call, user, services) for at, call in enumerate(calls[:MAX_TOOL_CALLS])]
    results += [ToolResult(call.id, call.name, TOO_MANY_CALLS, is_error=True, ms=0) for call in calls[MAX_TOOL_CALLS:]]
    messages = prompt.then([first.message, *(message_of(result) for result in results)])

    async def conclude(_: bytes) -> EffectResult:
        async with asyncio.timeout(services.model_s):
            caller = make_caller(claim, person, past.session.id, CallPurpose.CONCLUDE)
            return await ask_model(services, messages, caller, tools=prompt.tools, tool_choice="none")

    try:
        # The journal already has the first request, its answer and the results word for word, and this request follows from them.
        request = json.dumps({"after": first.call_id}).encode()
        _, concluded = await run_once(claim, "call_model", 1, request, conclude, services=services)
    except (NoAnswer, BackendError, BudgetSpent, CallsPaused, TimeoutError):
        return TurnTranscript(prompt, first, results, raw=raw_output(results, person.language))
    return TurnTranscript(prompt, first, results, JournaledAnswer.from_bytes(concluded))


async def run_tool(claim: Claim, index: int, call: ToolCall, user: ToolUser, services: Services) -> ToolResult:
    """Run a tool, and store its result in the journal."""

    async def run(request: bytes) -> EffectResult:
        asked = ToolCall(**json.loads(request))
        with services.tracer.tool(asked) as span:
            result = await tools_for(claim, services).run(asked, index, user)
            span.note_result(result)
        return EffectResult(json.dumps(asdict(result)).encode(), {"name": result.name, "is_error": result.is_error, "ms": result.ms})

    _, done = await run_once(claim, "run_tools", index, json.dumps(asdict(call)).encode(), run, services=services)
    return ToolResult(**json.loads(done))


def message_of(result: ToolResult) -> Mapping[str, Any]:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def raw_output(results: Sequence[ToolResult], language: str) -> str:
    disclaimer = reply(ReplyKind.TOOL_DISCLAIMER, language)
    return "\n".join([disclaimer, *(result.text for result in results)])
