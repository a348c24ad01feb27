"""Tools that remember, look up, forget and share what the user said about themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from hermes.ports.tools import FactSharing, Notebook
from hermes.tools.parameters import AtMost
from hermes.tools.registry import Offer, Tool, ToolContext, ToolEffect, ToolProblem, ToolReach, tool

NOTHING_KNOWN = "Nothing is known about that."


def memory_tools(notebook: Notebook, keys: Sequence[str]) -> list[Tool]:
    """Return the tools. `keys` are the keys whose values have a form; the model is told their names."""
    described = replace(save_preference, description=f"{save_preference.description} Known keys: {', '.join(keys)}.")
    return [each.of(notebook) for each in (described, recall_memory, forget_memory)]


@tool(ToolEffect.WRITES, ToolReach.PERSON, has_own_transactions=True)
async def save_preference(
    notebook: Notebook,
    context: ToolContext,
    *,
    key: Annotated[str, "What it is about: a known key, or a word or two of your own.", AtMost(50)],
    value: Annotated[str, "The preference.", AtMost(200)],
    no_longer: Annotated[bool, "True if it held before and does not any more."] = False,
) -> str:
    """Remember something lasting that the user said about themselves."""
    if not key or not value:
        raise ToolProblem("key and value must both say something")
    try:
        change = await notebook.save(context.user, key, value, no_longer=no_longer)
    except ValueError as error:
        raise ToolProblem(str(error)) from None
    if no_longer:
        return NOTHING_KNOWN if change.before == change.after else f"Noted: {key} is no longer {value}."
    is_replaced = change.before is not None and change.before != change.after and change.before not in (change.after or "")
    return f"Updated: {key} is {value}, no longer {change.before}." if is_replaced else f"Remembered: {key} is {value}."


@tool(ToolEffect.WRITES, ToolReach.PERSON, has_own_transactions=True)
async def forget_memory(
    notebook: Notebook,
    context: ToolContext,
    *,
    what: Annotated[str, "What to forget: a key such as allergies, or the user's words for it.", AtMost(200)] = "",
    everything: Annotated[bool, "True only if the user asks to forget all that is known about them."] = False,
) -> str:
    """Forget for good what the user asks you to forget about themselves. Say what was forgotten, as the result tells it."""
    if not what.strip() and not everything:
        raise ToolProblem("say what to forget, or that it is everything")
    erased = await notebook.forget(context.user, "" if everything else what)
    if everything:
        return f"Forgotten: everything that was known, {len(erased.lines)} facts."
    if erased.lines:
        return f"Forgotten: {'; '.join(erased.lines)}."
    return f"Forgotten: what was said about {what}." if erased.was_said else NOTHING_KNOWN


@tool(ToolEffect.SPENDS, ToolReach.MEMBER)
async def share_fact(
    sharing: FactSharing,
    context: ToolContext,
    *,
    what: Annotated[str, "Which fact: a key such as allergies, or the person's own words for it.", AtMost(200)],
    stop: Annotated[bool, "True if the person takes back what they shared here."] = False,
) -> Offer:
    """Offer the person who writes to share one lasting fact about themselves with this group, or to take it back, if they ask for it."""
    facts = await sharing.find(context.tx, context.user, what)
    if not facts:
        raise ToolProblem("nothing is known about that, or too much at once; ask for one fact by its key or in a few words")
    lines = "; ".join(fact.line for fact in facts)
    act = "no longer tell the group in which you asked for it" if stop else "tell everyone in the group in which you asked for it"
    return Offer(f"Offer: {act}: {lines}", {"turn": str(context.user.turn_id), "facts": [str(fact.id) for fact in facts], "stop": stop})


@share_fact.confirmed
async def _(sharing: FactSharing, context: ToolContext, terms: Mapping[str, Any]) -> str:
    asked_in, facts = UUID(terms["turn"]), [UUID(each) for each in terms["facts"]]
    if terms["stop"]:
        await sharing.take_back(context.tx, context.user, asked_in, facts)
        return "Taken back: the group is no longer told it. What was said there stays said."
    lines = await sharing.share(context.tx, context.user, asked_in, facts)
    return f"Shared with the group: {'; '.join(lines)}." if lines else "Nothing was shared: it does not hold any more."


@tool(ToolEffect.READS, ToolReach.PERSON, has_own_transactions=True)
async def recall_memory(notebook: Notebook, context: ToolContext, *, query: Annotated[str, "What to look for."]) -> str:
    """Look up what the user told in earlier conversations."""
    found = await notebook.search(context.user, query)
    return "\n".join(f"- {each}" for each in found[:10]) or NOTHING_KNOWN
