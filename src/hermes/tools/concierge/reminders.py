"""Things to be reminded of."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from hermes.tools.concierge.desk import Concierge, spoken, zone
from hermes.tools.parameters import AtMost
from hermes.tools.registry import Effect, Errand, ToolProblem, ToolReach, tool

FARTHEST = timedelta(days=366)


@tool(Effect.WRITES, ToolReach.PERSON)
async def set_reminder(
    concierge: Concierge,
    errand: Errand,
    *,
    text: Annotated[str, "What to remind of.", AtMost(200)],
    at: Annotated[datetime, "YYYY-MM-DDTHH:MM, the user's local time."],
) -> str:
    """Send the user a message at a later time."""
    when = at if at.tzinfo else at.replace(tzinfo=zone(errand.user.timezone))
    now = errand.user.now
    if not text:
        raise ToolProblem("text is empty; ask the user what to remind them of")
    if when <= now:
        raise ToolProblem(f"{spoken(when)} is in the past; it is {spoken(now.astimezone(when.tzinfo))} for the user now")
    if when - now > FARTHEST:
        raise ToolProblem("reminders are kept for up to one year")
    reminder = await concierge.reminders.add(errand.tx, errand.user.user_id, errand.user.turn_id, when, text)
    return f"Reminder {reminder.code} is set for {spoken(when)}: {reminder.text}"
