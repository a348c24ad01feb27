"""The concierge: finds places, books tables, reminds, finds cheaper products, counts calories, quotes rides and deliveries.

ports        what the tools need, as Protocols, and the things they speak of
services     the stores behind the tools; rides, deliveries and cards without a provider
catalogue    places, products and foods on PostgreSQL
records      what users booked, watch, ate and ordered, on PostgreSQL
venues, bookings, reminders, products, food, orders    the tools
hours        opening hours of places
gate         which tools go with a message, and what pictures are for
words        the words of sixteen languages for both
fact_keys    the structural memory keys
data_files   places from files, and the sample data
commands     `hermes venues`"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import resources

from hermes.packs import Pack, PackServices
from hermes.packs.concierge.bookings import cancel_booking, check_booking, create_booking, get_user_bookings, rate_booking
from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import load_samples
from hermes.packs.concierge.fact_keys import FACT_KEYS
from hermes.packs.concierge.food import calorie_scan, get_nutrition_summary
from hermes.packs.concierge.gate import GATE, IMAGE_INTENTS
from hermes.packs.concierge.orders import book_delivery, generate_card, get_delivery_quote, get_ride
from hermes.packs.concierge.products import dupe_search, set_price_watcher
from hermes.packs.concierge.records import PostgresBookings, PostgresNutrition, PostgresOrders, PostgresPriceWatchers, PostgresReminders
from hermes.packs.concierge.reminders import set_reminder, take_price_drops, take_reminders
from hermes.packs.concierge.services import Concierge
from hermes.packs.concierge.venues import venue_search
from hermes.router.proactive import TakeDue
from hermes.stores.postgres.users import UserTable
from hermes.tools.registry import Tool, UnboundTool

TOOLS: Sequence[UnboundTool[Concierge]] = (
    venue_search,
    create_booking,
    check_booking,
    cancel_booking,
    get_user_bookings,
    rate_booking,
    set_reminder,
    dupe_search,
    set_price_watcher,
    calorie_scan,
    get_nutrition_summary,
    get_ride,
    get_delivery_quote,
    book_delivery,
    generate_card,
)
"""In a fixed order, so that a prompt with them has the same bytes every time."""


def concierge_on(services: PackServices) -> Concierge:
    """Return the concierge's services on PostgreSQL."""
    keyring = services.keyring
    return Concierge(
        venues=PostgresVenues(),
        bookings=PostgresBookings(keyring),
        reminders=PostgresReminders(keyring),
        products=PostgresProducts(),
        watchers=PostgresPriceWatchers(),
        nutrition=PostgresNutrition(keyring),
        orders=PostgresOrders(keyring),
        notebook=services.notebook,
    )


def concierge_tools(concierge: Concierge) -> list[Tool]:
    """Return the tools, bound to these services."""
    return [recipe.of(concierge) for recipe in TOOLS]


def due_messages(services: PackServices) -> Sequence[TakeDue]:
    concierge = concierge_on(services)
    return [partial(take_reminders, concierge.reminders), partial(take_price_drops, concierge.watchers)]


async def load_missing_samples(services: PackServices) -> None:
    concierge = concierge_on(services)
    await load_samples(services.transactions, concierge.venues, concierge.products, concierge.nutrition, only_if_empty=True)


PACK = Pack(
    name="concierge",
    role="concierge",
    tools=lambda services: concierge_tools(concierge_on(services)),
    gate=GATE,
    image_intents=IMAGE_INTENTS,
    fact_keys=FACT_KEYS,
    due_messages=due_messages,
    migrations=resources.files(__package__) / "migrations",
    user_tables=(
        UserTable("bookings"),
        UserTable("reminders", has_turns=True),
        UserTable("price_watchers", has_turns=True),
        UserTable("meals"),
        UserTable("orders"),
    ),
    load_samples=load_missing_samples,
    script=resources.files(__package__) / "script.toml",
    commands={"venues": "hermes.packs.concierge.commands:venues_commands"},
)

__all__ = ["PACK", "TOOLS", "Concierge", "concierge_on", "concierge_tools"]
