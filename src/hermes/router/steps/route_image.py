"""Step 5: what a picture is for. A message without one passes.

Its caption decides first. Where it does not, the model that sees it decides with the tools that it calls, and until then it is general:
what goes wrong with the decision costs the decision, and not the answer. Only what cannot be shown at all ends here."""

from __future__ import annotations

from hermes.ports.images import ImagePrompt
from hermes.ports.inbox import Claim
from hermes.router.services import Services


async def route_image(claim: Claim, services: Services) -> ImagePrompt | None:
    """Look at the picture. Raises ImageTooLarge and ImageUnreadable.

    Not again where the model was asked already: what it was shown is in the journal, and its address may be gone by now."""
    if claim.attempt > 1 and claim.envelope.event.media_url is not None:
        async with services.transactions.once() as tx:
            if await services.journal.effect(tx, claim.turn_id, "call_model", 0) is not None:
                return None
    envelope = claim.envelope
    return await services.images.look(envelope.event, more=envelope.attachments, is_shared=envelope.is_shared)
