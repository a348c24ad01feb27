"""What the user told before."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from hermes.tools.concierge.desk import Concierge
from hermes.tools.parameters import AtMost
from hermes.tools.registry import Effect, Errand, Recipe, Tool, ToolProblem, ToolReach, tool


@dataclass(slots=True)
class Outside(Recipe[Concierge]):
    """A tool that the executor runs without a transaction, because its service opens some of its own.

    Inside one it would hold a connection while it waits for a second; a pool whose connections are all held so stands still."""

    def of(self, services: Concierge) -> Tool:
        return replace(Recipe.of(self, services), is_foreign=True)


def outside(recipe: Recipe[Concierge]) -> Outside:
    return Outside(recipe.name, recipe.description, recipe.effect, recipe.reach, recipe.parameters, recipe.function)


@outside
@tool(Effect.WRITES, ToolReach.PERSON)
async def save_preference(
    concierge: Concierge,
    errand: Errand,
    *,
    key: Annotated[str, "What it is about: diet, allergies, home_area, budget_level, favorite_category, ...", AtMost(50)],
    value: Annotated[str, "The preference.", AtMost(200)],
) -> str:
    """Remember something lasting that the user said about themselves."""
    if not key or not value:
        raise ToolProblem("key and value must both say something")
    try:
        await concierge.notebook.save(errand.user, key, value)
    except ValueError as error:
        raise ToolProblem(str(error)) from None
    return f"Remembered: {key} is {value}."


@outside
@tool(Effect.READS, ToolReach.PERSON)
async def recall_memory(concierge: Concierge, errand: Errand, *, query: Annotated[str, "What to look for."]) -> str:
    """Look up what the user told in earlier conversations."""
    found = await concierge.notebook.search(errand.user, query)
    return "\n".join(f"- {each}" for each in found[:10]) or "Nothing is known about that."
