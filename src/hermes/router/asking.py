"""One call of a model in a turn: who asks, and what comes back. Whoever calls remembers it in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from hermes.ports.backends import Ask
from hermes.ports.calls import Source
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim
from hermes.ports.models import Caller, NoAnswer
from hermes.router.answered import Answered
from hermes.router.effects import Done
from hermes.router.services import Services
from hermes.router.steps.resolve_user import Person

MOST_TOKENS = 1_000_000
"""The model's own limit holds."""


class EmptyAnswer(NoAnswer):
    """The model said nothing and asked for nothing."""


async def ask(
    services: Services,
    messages: Sequence[Mapping[str, Any]],
    caller: Caller,
    *,
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] | None = None,
    max_tokens: int | None = None,
) -> Done:
    """One call through the gateway."""
    wanted = Ask(
        messages=messages,
        max_tokens=max_tokens or MOST_TOKENS,
        tools=tools,
        tool_choice=tool_choice,
        wants_tokens=True,
        user=str(caller.user_id),
    )
    try:
        answered = Answered.of(await services.models.complete(wanted, caller))
    except StoreUnavailable as error:
        # Nobody can say what is left of the budget, so it counts as spent; the store of the turn itself speaks up in its own steps.
        raise NoAnswer(f"the call could not be admitted: {error}") from error
    if not answered.text and (not answered.tool_calls or tool_choice == "none"):
        raise EmptyAnswer(f"{answered.model} said nothing ({answered.finish_reason})")
    return Done(answered.to_bytes(), answered.facts)


def caller_of(claim: Claim, person: Person, session_id: UUID) -> Caller:
    return Caller(
        user_id=claim.user_id,
        account=claim.envelope.account,
        tier=person.tier,
        source=Source.ROUTER,
        turn_id=claim.turn_id,
        session_id=session_id,
        agent=person.agent.name,
    )
