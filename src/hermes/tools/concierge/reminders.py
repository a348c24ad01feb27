"""A tool that sets reminders."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from hermes.tools.concierge.services import Concierge, format_time, zone_named
from hermes.tools.parameters import AtMost
from hermes.tools.registry import ToolContext, ToolEffect, ToolProblem, ToolReach, tool

MAX_AHEAD = timedelta(days=366)


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
