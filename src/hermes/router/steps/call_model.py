"""Step 8: ask the model, once per turn however often the turn is driven. What was prepared first is what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hermes.ports.backends import Ask
from hermes.ports.calls import Source
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim
from hermes.ports.models import Caller, NoAnswer
from hermes.router.answered import Answered
from hermes.router.effects import Done, Effects
from hermes.router.services import Services
from hermes.router.steps.build_messages import Prompt
from hermes.router.steps.load_history import Past
from hermes.router.steps.resolve_user import Person

MOST_TOKENS = 1_000_000
"""The model's own limit holds."""


class EmptyAnswer(NoAnswer):
    """The model said nothing and asked for nothing."""


async def call_model(claim: Claim, prompt: Prompt, person: Person, past: Past, services: Services) -> tuple[Prompt, Answered]:
    """Return what was asked, and the answer. Raises NoAnswer, BudgetSpent, Paused; then nothing was paid, or what was paid is counted."""
    caller = caller_of(claim, person, past)

    prepared = prompt.to_bytes()

    def read(request: bytes) -> Prompt:
        return prompt if request == prepared else Prompt.from_bytes(request)

    async def run(request: bytes) -> Done:
        asked = read(request)
        return await ask(services, asked.messages, caller, tools=asked.tools, tool_choice=asked.tool_choice)

    effects = Effects(services.transactions, services.journal)
    request, result = await effects.once_asked(claim, "call_model", 0, prepared, run, is_repeatable=True)
    return read(request), Answered.from_bytes(result)


async def ask(
    services: Services,
    messages: Sequence[Mapping[str, Any]],
    caller: Caller,
    *,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] | None = None,
) -> Done:
    """One call through the gateway."""
    wanted = Ask(
        messages=messages, max_tokens=MOST_TOKENS, tools=tools, tool_choice=tool_choice, wants_tokens=True, user=str(caller.user_id)
    )
    try:
        answered = Answered.of(await services.models.complete(wanted, caller))
    except StoreUnavailable as error:
        # Nobody can say what is left of the budget, so it counts as spent; the store of the turn itself speaks up in its own steps.
        raise NoAnswer(f"the call could not be admitted: {error}") from error
    if not answered.text and (not answered.tool_calls or tool_choice == "none"):
        raise EmptyAnswer(f"{answered.model} said nothing ({answered.finish_reason})")
    return Done(answered.to_bytes(), answered.facts)


def caller_of(claim: Claim, person: Person, past: Past) -> Caller:
    return Caller(
        user_id=claim.user_id,
        account=claim.envelope.account,
        tier=person.tier,
        source=Source.ROUTER,
        turn_id=claim.turn_id,
        session_id=past.session.id,
        agent=person.agent.name,
    )
