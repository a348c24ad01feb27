"""Step 8: ask the model, once per turn however often the turn is driven. Every attempt asks what the first one prepared."""

from __future__ import annotations

from hermes.ports.inbox import Claim
from hermes.ports.models import CallPurpose
from hermes.router.effects import EffectResult, JournaledAnswer, OpenEffect, ask_model, call_once, make_caller
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser


async def call_model(
    claim: Claim, prompt: Prompt, person: ResolvedUser, past: LoadedHistory, services: Services
) -> tuple[Prompt, JournaledAnswer]:
    """Return the prompt that was sent, and the answer. Raises NoAnswer, BudgetSpent, CallsPaused; a call that was paid is counted."""
    caller = make_caller(claim, person, past.session.id, CallPurpose.ANSWER)
    prepared = prompt.to_bytes()

    def read(request: bytes) -> Prompt:
        return prompt if request == prepared else Prompt.from_bytes(request)

    async def run(request: bytes, effect: OpenEffect) -> EffectResult:
        sent = read(request)
        return await ask_model(
            effect,
            sent.messages,
            caller,
            tools=sent.tools,
            tool_choice=sent.tool_choice,
            may_leave_out_tools=sent.may_leave_out_tools,
        )

    request, result = await call_once(claim, "call_model", 0, prepared, run, services=services)
    return read(request), JournaledAnswer.from_bytes(result)
