"""Step 8: ask the model, once per turn however often the turn is driven. What was prepared first is what is asked."""

from __future__ import annotations

from hermes.ports.inbox import Claim
from hermes.router.asking import Answered, ask, caller_of
from hermes.router.effects import Done, Effects
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import Past
from hermes.router.steps.resolve_user import Person


async def call_model(claim: Claim, prompt: Prompt, person: Person, past: Past, services: Services) -> tuple[Prompt, Answered]:
    """Return what was asked, and the answer. Raises NoAnswer, BudgetSpent, Paused; then nothing was paid, or what was paid is counted."""
    caller = caller_of(claim, person, past.session.id)

    prepared = prompt.to_bytes()

    def read(request: bytes) -> Prompt:
        return prompt if request == prepared else Prompt.from_bytes(request)

    async def run(request: bytes) -> Done:
        asked = read(request)
        return await ask(services, asked.messages, caller, tools=asked.tools, tool_choice=asked.tool_choice)

    effects = Effects(services.transactions, services.journal)
    request, result = await effects.once_asked(claim, "call_model", 0, prepared, run, is_repeatable=True)
    return read(request), Answered.from_bytes(result)
