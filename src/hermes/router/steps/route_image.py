"""Step 5: find out what an image is for. A message without an image passes.

The caption decides first. If it does not, the model that sees the image decides by the tools that it calls; until then the intent is
general. A wrong intent costs no answer. Only an image that cannot be shown at all ends the turn here."""

from __future__ import annotations

from hermes.ports.inbox import Claim
from hermes.ports.tools import ImagePrompt
from hermes.router.services import Services


async def route_image(claim: Claim, services: Services) -> ImagePrompt | None:
    """Look at the image. Raises ImageTooLarge and ImageUnreadable.

    Returns None if an earlier attempt has asked the model: the journal has what it was shown, and the image may be gone by now."""
    if claim.attempt > 1 and claim.envelope.event.media_url is not None:
        async with services.transactions.once() as tx:
            if await services.journal.effect(tx, claim.turn_id, "call_model", 0) is not None:
                return None
    envelope = claim.envelope
    return await services.images.look(envelope.event, more=envelope.attachments, is_shared=envelope.is_shared)
