"""Chooses one of five sets of tools for a message: none, venue, food, booking, or full. In doubt, full.

Tools stand first in a prompt, so another set is another prefix, and everything behind it is paid for again. Therefore there are few sets,
in one fixed order, and a set stays as long as the vendor's prompt cache holds it and it has the tools that the message needs: a full
prompt from the cache costs a fifth of a small one that is not cached. The gate looks for words in sixteen languages, and in doubt gives
more tools: a tool too many costs a fraction of a cent, a tool too few makes a message fail.

    small talk and nothing else                 none
    a word about booking                        booking
    a word about places, none about food        venue
    a word about food, none about places        food
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
"""The code of a booking or an offer."""
FIRST_CHARS, LAST_CHARS = 700, 300
"""How many characters of a long message are searched: a wish stands before or after pasted text, and the gate has hundreds of words."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Chooses the set. Has no state: the caller says which set was sent last."""

    subsets: Mapping[str, frozenset[str]] = field(default_factory=lambda: SUBSETS)

    def choose(self, text: str, *, language: str, warm: str | None, has_tool_history: bool) -> str:
        """Return the name of the set for a message. See `Tools.gate` for what the arguments mean."""
        needed = smallest_set(text, language=language)
        if needed == "none" and has_tool_history:
            # "Yes" after an offer is an order, and "thanks" after a search still has the search in its history.
            needed = warm if warm not in {None, "none"} and warm in self.subsets else "full"
        if warm is None or warm not in self.subsets:
            return needed
        # A session that outgrows its set gets all tools at once: the next change of topic then costs nothing.
        return warm if self.subsets[warm] >= self.subsets[needed] else "full"

    def members(self, name: str) -> frozenset[str]:
        """Return the names of the tools in a set; for an unknown set, those of the whole pack."""
        return self.subsets.get(name, self.subsets["full"])


def smallest_set(text: str, *, language: str) -> str:
    """Return the smallest set that surely has the tools that a message needs."""
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
