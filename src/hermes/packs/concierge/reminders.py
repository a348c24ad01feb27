"""A tool that sets reminders, and the messages that Hermes sends by itself: reminders that are due, prices that came down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from importlib import resources
from typing import Annotated

from hermes.packs.concierge.ports import PriceWatchers, Reminders
from hermes.packs.concierge.services import Concierge, format_time, zone_named
from hermes.ports.runtime import Transaction
from hermes.router.proactive import DueMessage
from hermes.router.replies import Money, PackReplies
from hermes.tools.parameters import AtMost
from hermes.tools.registry import ToolContext, ToolEffect, ToolProblem, ToolReach, tool

MAX_AHEAD = timedelta(days=366)
REPLIES = PackReplies(
    resources.files(__package__) / "replies.toml", {"reminder": ("text",), "price_drop": ("product", "price", "shop", "link")}
)


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def set_reminder(
    concierge: Concierge,
    context: ToolContext,
    *,
    text: Annotated[str, "What to remind of.", AtMost(200)],
    at: Annotated[datetime, "YYYY-MM-DDTHH:MM, the user's local time."],
) -> str:
    """Send the user a message at a later time."""
    when = at if at.tzinfo else at.replace(tzinfo=zone_named(context.user.timezone))
    now = context.user.now
    if not text:
        raise ToolProblem("text is empty; ask the user what to remind them of")
    if when <= now:
        raise ToolProblem(f"{format_time(when)} is in the past; it is {format_time(now.astimezone(when.tzinfo))} for the user now")
    if when - now > MAX_AHEAD:
        raise ToolProblem("reminders are kept for up to one year")
    reminder = await concierge.reminders.add(context.tx, context.user.user_id, context.user.turn_id, when, text)
    return f"Reminder {reminder.code} is set for {format_time(when)}: {reminder.text}"


async def take_reminders(reminders: Reminders, tx: Transaction, now: datetime, limit: int) -> Sequence[DueMessage]:
    """Return the reminders that are due, in the users' own words."""
    return [
        DueMessage(due.turn_id, f"reminder/{due.code}", partial(REPLIES.reply, "reminder", text=due.text))
        for due in await reminders.take_due(tx, now, limit=limit)
    ]


async def take_price_drops(watchers: PriceWatchers, tx: Transaction, _: datetime, limit: int) -> Sequence[DueMessage]:
    """Return the products that have come down to the price that a user waits for."""
    return [
        DueMessage(
            due.turn_id,
            f"price/{due.code}",
            partial(
                REPLIES.reply,
                "price_drop",
                product=f"{due.product.brand} {due.product.name}",
                price=Money(due.product.price, due.product.currency),
                shop=due.product.shop,
                link=due.product.url or None,
            ),
        )
        for due in await watchers.take_due(tx, limit=limit)
    ]
