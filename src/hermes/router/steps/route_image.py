"""Step 5: what a picture is for. A message without one passes."""

from __future__ import annotations

from hermes.ports.images import Picture
from hermes.ports.inbox import Claim
from hermes.router.services import Services
from hermes.router.steps.resolve_user import Person


async def route_image(claim: Claim, person: Person, services: Services) -> Picture | None:
    """Look at the picture. Raises ImageTooLarge and ImageUnreadable."""
    return await services.images.look(claim.envelope.event, person.user, person.language)
