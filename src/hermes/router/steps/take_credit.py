"""Step 2: reserve one credit for the turn. Step record posts it with an answer, and voids it with any other end."""

from __future__ import annotations

from hermes.ports.credits import is_reserved
from hermes.ports.inbox import Claim
from hermes.router.services import Services


async def take_credit(claim: Claim, services: Services) -> None:
    """Reserve a credit; a turn that is driven again keeps the one that it has. Raises OutOfCredit."""
    if claim.start is not None and claim.start.credit is not None:
        is_reserved(claim.start.credit, claim.user_id, claim.turn_id)
        return
    async with services.transactions.once() as tx:
        await services.credits.reserve(tx, claim.user_id, claim.turn_id)
