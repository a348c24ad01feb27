"""Chooses one of five sets of tools for a message: none, venue, food, booking, or full. In doubt, full.

Tools stand first in a prompt, so another set is another prefix, and everything behind it is paid for again. Therefore there are few sets,
in one fixed order, and a set stays as long as the vendor's cache holds it and it has what the message needs: a warm full prompt costs a
fifth of a cold small one. The choice is by words in sixteen languages, and errs on one side only: a tool too many costs a fraction of a
cent, a tool too few is a message that fails.

    small talk, nothing else in it              none
    a word of booking                           booking
    a word of places, none of food              venue
    a word of food, none of places              food
    reminders, rides, goods; both; neither      full"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hermes.tools.gate.smalltalk import is_small_talk
from hermes.tools.gate.words import BOOKING, FOOD, MEALS, OTHER, VENUE
from hermes.tools.vocabulary import fold

VENUE_TOOLS = ("venue_search", "create_booking", "get_ride", "save_preference", "recall_memory", "forget_memory")
BOOKING_TOOLS = (
    "venue_search",
    "create_booking",
    "check_booking",
    "cancel_booking",
    "get_user_bookings",
    "rate_booking",
    "set_reminder",
    "get_ride",
    "save_preference",
    "recall_memory",
    "forget_memory",
)
FOOD_TOOLS = ("venue_search", "calorie_scan", "get_nutrition_summary", "save_preference", "recall_memory", "forget_memory")
OTHER_TOOLS = (
    "dupe_search",
    "set_price_watcher",
    "get_delivery_quote",
    "book_delivery",
    "generate_card",
)

SUBSETS: Mapping[str, frozenset[str]] = {
    "none": frozenset(),
    "venue": frozenset(VENUE_TOOLS),
    "food": frozenset(FOOD_TOOLS),
    "booking": frozenset(BOOKING_TOOLS),
    "full": frozenset({*VENUE_TOOLS, *FOOD_TOOLS, *BOOKING_TOOLS, *OTHER_TOOLS}),
}

CODE_PATTERN = re.compile(r"\b[2-9A-HJKMNP-TV-Z]{6}\b")
"""What the code of a booking or an offer looks like."""
FIRST_CHARS, LAST_CHARS = 700, 300
"""Characters of a long message that are read: a wish stands before or behind what is pasted, and the words are hundreds to look for."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The choice. Without state: what was sent last is told to it."""

    subsets: Mapping[str, frozenset[str]] = field(default_factory=lambda: SUBSETS)

    def choose(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> str:
        """The name of the set that goes with a message. See `Tools.gate` for what the arguments mean."""
        wanted = smallest_set(text, language=language)
        if wanted == "none" and has_tool_history:
            # "Yes" after an offer is an order, and "thanks" after a search still has the search in its history.
            wanted = warm if warm not in {None, "none"} and warm in self.subsets else "full"
        if warm is None or warm not in self.subsets:
            return wanted
        # A session that outgrows its set gets all tools at once: then the next change of mind is free.
        return warm if self.subsets[warm] >= self.subsets[wanted] else "full"

    def members(self, name: str) -> frozenset[str]:
        """The names of the tools in a set; those of the whole pack for a set that is not known."""
        return self.subsets.get(name, self.subsets["full"])


def smallest_set(text: str, *, language: str) -> str:
    """The smallest set that surely has what a message needs."""
    text = text if len(text) <= FIRST_CHARS + LAST_CHARS else f"{text[:FIRST_CHARS]}\n{text[-LAST_CHARS:]}"
    folded = fold(text)
    if OTHER.is_in(folded) or CODE_PATTERN.search(text):
        return "full"
    has_food, has_meals, has_venue = FOOD.is_in(folded), MEALS.is_in(folded), VENUE.is_in(folded)
    if BOOKING.is_in(folded):
        return "full" if has_food else "booking"
    if has_venue or has_food or has_meals:
        is_clear = not has_meals and has_venue != has_food
        return ("venue" if has_venue else "food") if is_clear else "full"
    return "none" if is_small_talk(folded, language) else "full"
