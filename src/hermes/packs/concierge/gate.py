"""Which of the concierge's tools go with a message, and what users want of pictures.

a word about booking                        booking
a word about places, none about food        venue
a word about food, none about places        food
reminders, rides, goods; both               full"""

from __future__ import annotations

from collections.abc import Sequence

from hermes.packs.concierge.words import BOOKING, CALORIES, DUPES, FOOD, MEALS, NEGATED, OTHER, VENUE
from hermes.tools.gate import ALL_TOOLS, GateRules
from hermes.tools.images import ImageIntent

VENUE_TOOLS = frozenset({"venue_search", "create_booking", "get_ride"})
BOOKING_TOOLS = VENUE_TOOLS | {"check_booking", "cancel_booking", "get_user_bookings", "rate_booking", "set_reminder"}
FOOD_TOOLS = frozenset({"venue_search", "calorie_scan", "get_nutrition_summary"})


def choose_set(folded: str) -> str | None:
    """Return the smallest set that surely has the tools that a folded message needs; None for a message without a word of ours."""
    if OTHER.is_in(folded):
        return ALL_TOOLS
    has_food, has_meals, has_venue = FOOD.is_in(folded), MEALS.is_in(folded), VENUE.is_in(folded)
    if BOOKING.is_in(folded):
        return ALL_TOOLS if has_food else "booking"
    if has_venue or has_food or has_meals:
        is_clear = not has_meals and has_venue != has_food
        return ("venue" if has_venue else "food") if is_clear else ALL_TOOLS
    return None


GATE = GateRules(sets={"venue": VENUE_TOOLS, "food": FOOD_TOOLS, "booking": BOOKING_TOOLS}, choose=choose_set)

SEE_FOOD = (
    "give every food and drink that you see as an item: its plain English name and its grams, as well as plates, cutlery and hands let you "
    "estimate them. `log` is true for what the user eats or ate, false for a mere question. Without any food in the picture, give no items."
)
SEE_GOODS = (
    "give as `product` the brand and name only where you can read or surely recognise them, then colour, material and shape; as `kind` the "
    "plain English word for such a thing; as `price` only what stands there or the user says."
)
IMAGE_INTENTS: Sequence[ImageIntent] = (
    ImageIntent(
        tool="calorie_scan",
        words=CALORIES,
        excluding=(NEGATED, BOOKING, VENUE),
        note=f"The user wants to know what is in the food of this picture. Call calorie_scan: {SEE_FOOD} "
        "In your answer say that amounts read off a picture are estimates.",
        choice=f"Food or drink: call calorie_scan; {SEE_FOOD}",
    ),
    ImageIntent(
        tool="dupe_search",
        words=DUPES,
        excluding=(NEGATED, BOOKING, VENUE),
        note=f"The user wants to buy what this picture shows, or something like it for less. Call dupe_search: {SEE_GOODS}",
        choice=f"Something that one can buy: call dupe_search; {SEE_GOODS}",
    ),
)
