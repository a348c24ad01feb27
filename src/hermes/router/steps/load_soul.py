"""Step 3: load the soul: who the agent is, and what it knows about the user. Never fails: without any store it is the personality alone.

In a room that several people share the agent knows nothing about any of them but the single facts that a member shares with this room."""

from __future__ import annotations

from hermes.ports.inbox import Claim
from hermes.ports.memories import Soul
from hermes.router.services import Services
from hermes.router.steps.resolve_user import ResolvedUser


async def load_soul(claim: Claim, person: ResolvedUser, services: Services) -> Soul:
    if claim.envelope.is_shared:
        return await services.souls.for_room(person.user, person.agent, now=services.clock.now(), conversation_id=claim.conversation_id)
    text = claim.envelope.event.text
    return await services.souls.load(person.user, person.agent, text, now=services.clock.now(), conversation_id=claim.conversation_id)
