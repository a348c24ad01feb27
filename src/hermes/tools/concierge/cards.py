"""A tool that makes cards: invitations, greetings, thanks."""

from __future__ import annotations

from typing import Annotated

from hermes.ports.concierge import Card, OrderKind
from hermes.tools.concierge.services import Concierge
from hermes.tools.parameters import AtMost
from hermes.tools.registry import ToolContext, ToolEffect, ToolReach, tool


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def generate_card(
    concierge: Concierge,
    context: ToolContext,
    *,
    title: Annotated[str, "Its headline.", AtMost(60)],
    message: Annotated[str, "What it says.", AtMost(300)],
    occasion: Annotated[str, "Birthday, wedding, thanks, ...", AtMost(40)] = "",
    sender: Annotated[str, "Who signs it.", AtMost(60)] = "",
) -> str:
    """Make a card that the user can send on: an invitation, a greeting, thanks."""
    drawn = await concierge.cards.draw(Card(occasion=occasion, title=title, message=message, sender=sender), key=context.key)
    details = {"title": title, "text": drawn.text, "svg": drawn.svg, "url": drawn.url}
    order = await concierge.orders.add(
        context.tx, context.user.user_id, OrderKind.CARD, provider=concierge.cards.name, reference="", details=details
    )
    return f"Card {order.code}: {drawn.url}" if drawn.url else f"Card {order.code}, as text to send on:\n{drawn.text}"
