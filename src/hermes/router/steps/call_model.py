"""Step 8: ask the model, once per turn however often the turn is driven. What was prepared first is what is asked."""

from __future__ import annotations

from hermes.ports.inbox import Claim
from hermes.router.effects import EffectResult, Effects
from hermes.router.model_call import JournaledAnswer, ask_model, make_caller
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import LoadedHistory
from hermes.router.steps.resolve_user import ResolvedUser


async def call_model(
    claim: Claim, prompt: Prompt, person: ResolvedUser, past: LoadedHistory, services: Services
) -> tuple[Prompt, JournaledAnswer]:
    """Return what was asked, and the answer. Raises NoAnswer, BudgetSpent, Paused; then nothing was paid, or what was paid is counted."""
    caller = make_caller(claim, person, past.session.id)

    prepared = prompt.to_bytes()

    def read(request: bytes) -> Prompt:
        return prompt if request == prepared else Prompt.from_bytes(request)

    async def run(request: bytes) -> EffectResult:
        asked = read(request)
        return await ask_model(services, asked.messages, caller, tools=asked.tools, tool_choice=asked.tool_choice)

    effects = Effects(services.transactions, services.journal)
    request, result = await effects.once_with_request(claim, "call_model", 0, prepared, run, is_repeatable=True)
    return read(request), JournaledAnswer.from_bytes(result)
