"""Step 9: run the tools that the model called, one round of them, and ask the model again with their results.

If that second call fails, the user gets the raw output of the tools, after a disclaimer. If the message approved an offer, that offer is
carried out instead, before the model is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hermes.ports.backends import BackendError, ToolSchema
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.inbox import Claim
from hermes.ports.models import CallPurpose, NoAnswer
from hermes.ports.tools import UNKNOWN_TOOL, OfferNotice, ToolCall, ToolResult, ToolUser
from hermes.router.approvals import Approval, private_chat, tool_user
from hermes.router.effects import EffectResult, JournaledAnswer, OpenEffect, ask_model, call_once, make_caller, run_once
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.call_model import call_model
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
    first: JournaledAnswer | None
    """None: an approved offer was carried out, and no model could put its result into words."""
    results: Sequence[ToolResult] = ()
    second: JournaledAnswer | None = None
    raw: str | None = None
    """The output of the tools, if the model call after them failed."""
    approved: ToolResult | None = None
    """What the offer brought that the user's message approved. The question has it as text."""

    @property
    def text(self) -> str:
        last = self.second or self.first
        return self.raw or (last.text if last is not None else "")

    @property
    def is_sampled(self) -> bool:
        """Whether a model or a tool worked for this answer; False for an answer from the cache without tools."""
        return bool(self.ran) or self.first is None or self.first.copy_of is None

    @property
    def ran(self) -> list[ToolResult]:
        """The results of all tools that ran in the turn."""
        return [*self.results, *([self.approved] if self.approved is not None else ())]

    @property
    def offers(self) -> list[OfferNotice]:
        """The offers that the turn made."""
        return [result.offer for result in self.results if result.offer is not None]

    @property
    def answers(self) -> list[JournaledAnswer]:
        return [answer for answer in (self.first, self.second) if answer is not None]


async def run_tools(
    claim: Claim, first_call: tuple[Prompt, JournaledAnswer], person: ResolvedUser, past: LoadedHistory, services: Services
) -> TurnTranscript:
    """Return the turn's transcript. A tool never raises; if the second model call fails, the transcript has the raw output instead."""
    prompt, first = first_call
    calls = first.tool_calls
    if not calls:
        return TurnTranscript(prompt, first)
    user = tool_user(claim, person, services)
    if claim.envelope.is_shared:
        async with services.transactions.begin() as tx:
            user = replace(user, has_private_chat=await private_chat(tx, claim, services) is not None)
    results = [await run_tool(claim, at, call, user, services) for at, call in enumerate(calls[:MAX_TOOL_CALLS])]
    results += refuse_calls(calls, prompt.tools)
    messages = messages_after_tools(prompt, first, results)

    async def conclude(_: bytes, effect: OpenEffect) -> EffectResult:
        async with asyncio.timeout(services.model_s):
            caller = make_caller(claim, person, past.session.id, CallPurpose.CONCLUDE)
            return await ask_model(effect, messages, caller, tools=prompt.tools, tool_choice="none")

    try:
        # The journal already has the first request, its answer and the results word for word, and this request follows from them.
        request = json.dumps({"after": first.call_id}).encode()
        _, concluded = await call_once(claim, "call_model", 1, request, conclude, services=services)
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
        return EffectResult(result.to_bytes(), {"name": result.name, "is_error": result.is_error, "ms": result.ms})

    _, done = await run_once(claim, "run_tools", index, json.dumps(asdict(call)).encode(), run, services=services)
    return ToolResult.from_bytes(done)


async def carry_out_offer(claim: Claim, approval: Approval, person: ResolvedUser, services: Services) -> ToolResult:
    """Carry out the offer that this message approved, exactly as it was shown, and store its result in the journal. A tool never raises."""
    user = tool_user(claim, person, services)

    async def run(_: bytes) -> EffectResult:
        with services.tracer.tool(approval.call) as span:
            result = await services.tools.carry_out(approval.code, approval.call, user)
            span.note_result(result)
        return EffectResult(result.to_bytes(), {"name": result.name, "is_error": result.is_error, "ms": result.ms, "is_approved": True})

    _, done = await run_once(claim, "run_tools", 0, json.dumps(asdict(approval.call)).encode(), run, services=services)
    return ToolResult.from_bytes(done)


async def conclude_offer(  # noqa: PLR0917  # as the other steps
    claim: Claim, prompt: Prompt, result: ToolResult, person: ResolvedUser, past: LoadedHistory, services: Services
) -> TurnTranscript:
    """Ask the model to tell the user how the approved offer ended; the prompt says it. If it cannot be asked, the user gets the result
    itself."""
    try:
        prompt, answer = await call_model(claim, prompt, person, past, services)
    except (NoAnswer, BackendError, BudgetSpent, CallsPaused, TimeoutError):
        return TurnTranscript(prompt, None, raw=raw_output([result], person.language), approved=result)
    return TurnTranscript(prompt, answer, approved=result)


def refuse_calls(calls: Sequence[ToolCall], offered: Sequence[ToolSchema]) -> list[ToolResult]:
    """The results of those calls of a round that are too many. They are not in the journal: they follow from the calls."""
    names = {tool["function"]["name"] for tool in offered}
    return [
        ToolResult(call.id, call.name if call.name in names else UNKNOWN_TOOL, TOO_MANY_CALLS, is_error=True, ms=0)
        for call in calls[MAX_TOOL_CALLS:]
    ]


def messages_after_tools(prompt: Prompt, first: JournaledAnswer, results: Sequence[ToolResult]) -> list[dict[str, Any]]:
    """What the model is sent after its tools have run; also for readers of the journal, which has the parts and not the whole."""
    return prompt.then([first.message, *(message_of(result) for result in results)])


def message_of(result: ToolResult) -> Mapping[str, Any]:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def raw_output(results: Sequence[ToolResult], language: str) -> str:
    disclaimer = reply(ReplyKind.TOOL_DISCLAIMER, language)
    return "\n".join([disclaimer, *(result.text for result in results)])
