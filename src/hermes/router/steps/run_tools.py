"""Step 9: do what the model asked for, one round of it, and let it say what came of it.

Where it cannot say it any more, the user is told what the tools brought, with a word of warning before it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from hermes.ports.backends import BackendError
from hermes.ports.budgets import BudgetSpent, CallsPaused
from hermes.ports.inbox import Claim
from hermes.ports.models import NoAnswer
from hermes.ports.tools import ToolCall, ToolResult, ToolUser
from hermes.router.effects import EffectResult, Effects
from hermes.router.model_call import JournaledAnswer, ask_model, make_caller
from hermes.router.replies import ReplyKind, reply
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.gate_tools import tools_for
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser

MAX_TOOL_CALLS = 12
"""Calls of one round; each of them may take its whole time, and the user waits for all of them."""
TOO_MANY_CALLS = "Error: this was not done; there were too many calls at once. Ask for the rest in the next message."


@dataclass(frozen=True, slots=True)
class TurnTranscript:
    """All that was said in a turn: to the model, by it, by its tools."""

    prompt: Prompt
    first: JournaledAnswer
    results: Sequence[ToolResult] = ()
    second: JournaledAnswer | None = None
    raw: str | None = None
    """What the tools brought, where the model could not put it into words."""

    @property
    def text(self) -> str:
        return self.raw or (self.second or self.first).text

    @property
    def is_sampled(self) -> bool:
        """Whether a model or a tool did something for it: an answer out of the cache alone is a copy."""
        return bool(self.results) or self.first.copy_of is None

    @property
    def answers(self) -> list[JournaledAnswer]:
        return [self.first] if self.second is None else [self.first, self.second]


async def run_tools(
    claim: Claim, asked: tuple[Prompt, JournaledAnswer], person: ResolvedUser, past: LoadedHistory, services: Services
) -> TurnTranscript:
    """Return the whole exchange. Of tools nothing is raised; a second call that fails costs its words, and not the answer."""
    prompt, answered = asked
    calls = answered.tool_calls
    if not calls:
        return TurnTranscript(prompt, answered)
    user = ToolUser(claim.user_id, claim.envelope.account, person.language, str(person.zone), claim.turn_id, services.clock.now())
    results = [await run_tool(claim, at, call, user, services) for at, call in enumerate(calls[:MAX_TOOL_CALLS])]
    results += [ToolResult(call.id, call.name, TOO_MANY_CALLS, is_error=True, ms=0) for call in calls[MAX_TOOL_CALLS:]]
    said = prompt.then([answered.message, *(message_of(result) for result in results)])

    async def conclude(_: bytes) -> EffectResult:
        async with asyncio.timeout(services.model_s):
            return await ask_model(services, said, make_caller(claim, person, past.session.id), tools=prompt.tools, tool_choice="none")

    effects = Effects(services.transactions, services.journal)
    try:
        # What is sent follows from the first request, its answer and the results, which the journal has word for word; not once more here.
        request = json.dumps({"after": answered.call_id}).encode()
        concluded = await effects.once(claim, "call_model", 1, request, conclude, is_repeatable=True)
    except (NoAnswer, BackendError, BudgetSpent, CallsPaused, TimeoutError):
        return TurnTranscript(prompt, answered, results, raw=raw_output(results, person.language))
    return TurnTranscript(prompt, answered, results, JournaledAnswer.from_bytes(concluded))


async def run_tool(claim: Claim, index: int, call: ToolCall, user: ToolUser, services: Services) -> ToolResult:
    """Run a tool, and remember what it brought. A tool does what it does once by itself, so it may be asked again."""

    async def run(request: bytes) -> EffectResult:
        result = await tools_for(claim, services).run(ToolCall(**json.loads(request)), index, user)
        return EffectResult(json.dumps(asdict(result)).encode(), {"name": result.name, "is_error": result.is_error, "ms": result.ms})

    effects = Effects(services.transactions, services.journal)
    done = await effects.once(claim, "run_tools", index, json.dumps(asdict(call)).encode(), run, is_repeatable=True)
    return ToolResult(**json.loads(done))


def message_of(result: ToolResult) -> Mapping[str, Any]:
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.text}


def raw_output(results: Sequence[ToolResult], language: str) -> str:
    spoken = partial(reply, ReplyKind.TOOL_DISCLAIMER, language)
    return "\n".join([spoken(), *(result.text for result in results)])
