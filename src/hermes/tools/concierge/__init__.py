"""The concierge pack: eighteen tools in a fixed order, so that a prompt with them has the same bytes every time."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.tools.concierge.bookings import cancel_booking, check_booking, create_booking, get_user_bookings, rate_booking
from hermes.tools.concierge.cards import generate_card
from hermes.tools.concierge.food import calorie_scan, get_nutrition_summary
from hermes.tools.concierge.memory import forget_memory, recall_memory, save_preference
from hermes.tools.concierge.products import dupe_search, set_price_watcher
from hermes.tools.concierge.reminders import set_reminder
from hermes.tools.concierge.services import Concierge
from hermes.tools.concierge.transport import book_delivery, get_delivery_quote, get_ride
from hermes.tools.concierge.venues import venue_search
from hermes.tools.registry import Tool, UnboundTool

PACK: Sequence[UnboundTool[Concierge]] = (
    venue_search,
    create_booking,
    check_booking,
    cancel_booking,
    get_user_bookings,
    rate_booking,
    set_reminder,
    save_preference,
    recall_memory,
    forget_memory,
    dupe_search,
    set_price_watcher,
    calorie_scan,
    get_nutrition_summary,
    get_ride,
    get_delivery_quote,
    book_delivery,
    generate_card,
)


def concierge_tools(concierge: Concierge) -> list[Tool]:
    """Return the eighteen tools, bound to these services."""
    return [recipe.of(concierge) for recipe in PACK]


__all__ = ["PACK", "Concierge", "concierge_tools"]
