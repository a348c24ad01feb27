"""Tools for the calories and nutrients of food, and for the user's food diary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Annotated, Literal

from hermes.packs.concierge.ports import Food, MealItem
from hermes.packs.concierge.services import Concierge, zone_named
from hermes.tools.parameters import AtMost, Between
from hermes.tools.registry import ToolContext, ToolEffect, ToolProblem, ToolReach, tool

DAYS = {"today": 1, "week": 7, "month": 30}
ESTIMATE_SUFFIX = " (estimate)"


@dataclass(frozen=True, slots=True)
class Portion:
    """One food of a meal."""

    food: Annotated[str, "Its plain name.", AtMost(80)]
    grams: Annotated[float | None, Between(0, 5_000)] = None
    servings: Annotated[float | None, Between(0.1, 50)] = None
    kcal: Annotated[float | None, "Your own estimate, for food that a table may not have.", Between(0, 20_000)] = None


@tool(ToolEffect.WRITES, ToolReach.PERSON)
async def calorie_scan(
    concierge: Concierge,
    context: ToolContext,
    *,
    items: Annotated[list[Portion], "What is on the plate; one usual serving where no amount is known."],
    log: Annotated[bool, "Whether the user ate it; false for a mere question."] = True,
) -> str:
    """Say the calories and nutrients of food that the user describes or photographed, and keep it in their diary."""
    if not items:
        raise ToolProblem("items is empty; name at least one food, or tell the user that none is to be seen")
    now = context.user.now
    eaten, unknown = [], []
    for item in items:
        food = await concierge.nutrition.find(context.tx, item.food)
        if food is not None:
            eaten.append(known_food(food, item, now))
        elif item.kcal is not None:
            eaten.append(estimated_food(item, item.kcal, now))
        else:
            unknown.append(item.food)
    if not eaten:
        raise ToolProblem(f"not in the food table: {', '.join(unknown)}; try a plainer name, or estimate and say that it is an estimate")
    if log:
        await concierge.nutrition.log(context.tx, context.user.user_id, eaten)
    lines = [f"- {amount(each)}: {each.kcal:.0f} kcal" for each in eaten]
    if len(eaten) > 1 or unknown:
        lines.append(f"Together: {totals(eaten)}")
    else:
        lines[0] = f"- {amount(eaten[0])}: {totals(eaten)}"
    if any(each.food.endswith(ESTIMATE_SUFFIX) for each in eaten):
        lines.append("Of an estimate only the calories are counted.")
    lines += [f"Not in the food table: {', '.join(unknown)}"] if unknown else []
    return "\n".join([*lines, "Kept in the diary." if log else "Not kept in the diary."])


@tool(ToolEffect.READS, ToolReach.PERSON)
async def get_nutrition_summary(
    concierge: Concierge, context: ToolContext, *, period: Annotated[Literal["today", "week", "month"], "How far back."] = "today"
) -> str:
    """Sum up what the user ate according to their diary."""
    local = context.user.now.astimezone(zone_named(context.user.timezone))
    midnight = datetime.combine(local.date(), time(), local.tzinfo)
    since = midnight - timedelta(days=DAYS[period] - 1)
    eaten = await concierge.nutrition.meal_items(context.tx, context.user.user_id, since, midnight + timedelta(days=1))
    if not eaten:
        return "The diary is empty for that time."
    days = len({each.at.astimezone(local.tzinfo).date() for each in eaten})
    average = f" On average {sum(each.kcal for each in eaten) / days:.0f} kcal on {days} days." if days > 1 else ""
    return f"{len(eaten)} entries, {period}: {totals(eaten)}.{average} Last: {', '.join(each.food for each in eaten[-5:])}."


def known_food(food: Food, item: Portion, at: datetime) -> MealItem:
    """Return the nutrients of an amount of a known food."""
    grams = item.grams or food.serving_g * (item.servings or 1.0)
    share = grams / 100
    return MealItem(
        food=food.name,
        grams=round(grams, 1),
        kcal=round(food.kcal * share, 1),
        protein_g=round(food.protein_g * share, 1),
        fat_g=round(food.fat_g * share, 1),
        carbs_g=round(food.carbs_g * share, 1),
        fibre_g=round(food.fibre_g * share, 1),
        at=at,
    )


def estimated_food(item: Portion, kcal: float, at: datetime) -> MealItem:
    """Return the model's estimate for a food that the table does not have; the diary marks it as an estimate."""
    nothing = {"protein_g": 0.0, "fat_g": 0.0, "carbs_g": 0.0, "fibre_g": 0.0}
    return MealItem(food=f"{item.food}{ESTIMATE_SUFFIX}", grams=item.grams or 0.0, kcal=round(kcal, 1), at=at, **nothing)


def amount(eaten: MealItem) -> str:
    return f"{eaten.food}, {eaten.grams:.0f} g" if eaten.grams else eaten.food


def totals(eaten: Sequence[MealItem]) -> str:
    kcal, protein, fat = (sum(getattr(each, name) for each in eaten) for name in ("kcal", "protein_g", "fat_g"))
    carbs, fibre = (sum(getattr(each, name) for each in eaten) for name in ("carbs_g", "fibre_g"))
    return f"{kcal:.0f} kcal, protein {protein:.0f} g, fat {fat:.0f} g, carbohydrates {carbs:.0f} g, fibre {fibre:.0f} g"
