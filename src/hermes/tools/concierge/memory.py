"""Tools that remember, look up and forget what the user said about themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from hermes.tools.concierge.services import Concierge
from hermes.tools.parameters import AtMost
from hermes.tools.registry import Tool, ToolContext, ToolEffect, ToolProblem, ToolReach, UnboundTool, tool

NOTHING_KNOWN = "Nothing is known about that."


@dataclass(slots=True)
class OwnTransactionTool(UnboundTool[Concierge]):
    """A tool that the executor runs without a transaction, because its service opens its own transactions.

    Inside a transaction it would hold one connection and wait for a second. If all connections of a pool are held so, it deadlocks."""

    def of(self, services: Concierge) -> Tool:
        return replace(UnboundTool.of(self, services), is_foreign=True)


def with_own_transactions(recipe: UnboundTool[Concierge]) -> OwnTransactionTool:
    return OwnTransactionTool(recipe.name, recipe.description, recipe.effect, recipe.reach, recipe.parameters, recipe.function)


@with_own_transactions
@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def save_preference(
    concierge: Concierge,
    context: ToolContext,
    *,
    key: Annotated[str, "What it is about: diet, allergies, home_area, budget_level, favorite_category, ...", AtMost(50)],
    value: Annotated[str, "The preference.", AtMost(200)],
    no_longer: Annotated[bool, "True if it held before and does not any more."] = False,
) -> str:
    """Remember something lasting that the user said about themselves."""
    if not key or not value:
        raise ToolProblem("key and value must both say something")
    try:
        change = await concierge.notebook.save(context.user, key, value, no_longer=no_longer)
    except ValueError as error:
        raise ToolProblem(str(error)) from None
    if no_longer:
        return NOTHING_KNOWN if change.before == change.after else f"Noted: {key} is no longer {value}."
    is_replaced = change.before is not None and change.before != change.after and change.before not in (change.after or "")
    return f"Updated: {key} is {value}, no longer {change.before}." if is_replaced else f"Remembered: {key} is {value}."


@with_own_transactions
@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def forget_memory(
    concierge: Concierge,
    context: ToolContext,
    *,
    what: Annotated[str, "What to forget: a key such as allergies, or the user's words for it.", AtMost(200)] = "",
    everything: Annotated[bool, "True only if the user asks to forget all that is known about them."] = False,
) -> str:
    """Forget for good what the user asks you to forget about themselves. Say what was forgotten, as the result tells it."""
    if not what.strip() and not everything:
        raise ToolProblem("say what to forget, or that it is everything")
    erased = await concierge.notebook.forget(context.user, "" if everything else what)
    if everything:
        return f"Forgotten: everything that was known, {len(erased.lines)} facts."
    if erased.lines:
        return f"Forgotten: {'; '.join(erased.lines)}."
    return f"Forgotten: what was said about {what}." if erased.was_said else NOTHING_KNOWN


@with_own_transactions
@tool(ToolEffect.READS, ToolReach.PERSON)
async def recall_memory(concierge: Concierge, context: ToolContext, *, query: Annotated[str, "What to look for."]) -> str:
    """Look up what the user told in earlier conversations."""
    found = await concierge.notebook.search(context.user, query)
    return "\n".join(f"- {each}" for each in found[:10]) or NOTHING_KNOWN
