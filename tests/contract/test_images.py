"""What a model sees, as the arguments of a tool on the real tables: from a picture to numbers and prices, through all ten steps."""

from typing import Any, cast

import pytest

from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import load_samples
from hermes.packs.concierge.gate import IMAGE_INTENTS
from hermes.packs.concierge.records import (
    PostgresBookings,
    PostgresNutrition,
    PostgresOrders,
    PostgresPriceWatchers,
    PostgresReminders,
)
from hermes.packs.concierge.services import Concierge
from hermes.ports.tools import ToolCall
from hermes.ports.users import User
from hermes.router.pipeline import handle_message
from hermes.soul.sanitize import scan
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.journal import PostgresEffectRecords
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.offers import PostgresOffers
from hermes.testing import RouterHarness, ScriptedModel, call_tool
from hermes.tools.executor import Toolbox
from hermes.tools.images import MessageImages
from tests.fakes.concierge import all_tools, concierge_gate
from tests.unit.tools.images.model import OneAddress
from tests.unit.tools.people import MemoryNotebook, somebody

ADDRESS = "https://example.com/x.png"


@pytest.fixture
async def tools(database: Database, keyring: Keyring) -> Toolbox:
    """The concierge's tools on stocked tables."""
    concierge = Concierge(
        venues=PostgresVenues(),
        bookings=PostgresBookings(keyring),
        reminders=PostgresReminders(keyring),
        products=PostgresProducts(),
        watchers=PostgresPriceWatchers(),
        nutrition=PostgresNutrition(keyring),
        orders=PostgresOrders(keyring),
        notebook=MemoryNotebook(),
    )
    await load_samples(database, concierge.venues, concierge.products, concierge.nutrition)
    outcomes, offers = PostgresEffectRecords(keyring), PostgresOffers(keyring)
    return Toolbox(own=all_tools(concierge), gate_=concierge_gate(), transactions=database, outcomes=outcomes, offers=offers, scan=scan)


def house(tools: Toolbox, user: User, *answers: Any) -> RouterHarness:
    images = MessageImages(web=OneAddress(), scan=scan, intents=IMAGE_INTENTS)
    made = RouterHarness(models=ScriptedModel([*answers]), tools=tools, images=images, user=user)
    made.credits.available[user.id] = 3
    return made


def brought(made: RouterHarness) -> str:
    """What the tool brought, as the model was told it."""
    result = cast("ScriptedModel", made.models).requests[-1].messages[-1]
    assert result["role"] == "tool"
    return str(result["content"])


async def test_a_plate_is_weighed_against_the_food_table_and_kept_in_the_diary(tools: Toolbox, user: User) -> None:
    plate = [
        {"food": "steamed white rice", "grams": 180},
        {"food": "grilled chicken breast", "grams": "120"},
        {"food": "fried egg", "grams": 50},
        {"food": "lontong sayur", "grams": 90, "kcal": 110},
        {"food": "moon dust"},
    ]
    made = house(tools, user, call_tool("calorie_scan", items=plate), "About 600 kcal.")
    claim = made.claim("berapa kalori makan siangku?", media_url=ADDRESS)
    assert (await handle_message(claim, made.services)).text == "About 600 kcal."
    assert brought(made) == (
        "- White rice, cooked, 180 g: 234 kcal\n- Chicken breast, grilled, 120 g: 198 kcal\n- Egg, fried, 50 g: 98 kcal\n"
        "- lontong sayur (estimate), 90 g: 110 kcal\n"
        "Together: 640 kcal, protein 49 g, fat 12 g, carbohydrates 51 g, fibre 1 g\nOf an estimate only the calories are counted.\n"
        "Not in the food table: moon dust\nKept in the diary."
    )
    assert made.credits.turns[claim.turn_id][1] == "posted"
    # The same turn again, as after a crash: one meal.
    made.journal.requests.clear()
    made.journal.results.clear()
    made.models = ScriptedModel([call_tool("calorie_scan", items=plate), "About 600 kcal."])
    made.graphs.graphs.clear()
    made.sessions.sessions.clear()
    await handle_message(claim, made.services)
    assert "4 entries" in (await summary(tools, made)), "kept once"


async def summary(tools: Toolbox, made: RouterHarness) -> str:
    now = made.services.clock.now()
    return (await tools.run(ToolCall("c2", "get_nutrition_summary", "{}"), 1, somebody(made.user.id, now=now, timezone="UTC"))).text


async def test_a_picture_without_food_is_said_to_have_none_and_nothing_is_kept(tools: Toolbox, user: User) -> None:
    made = house(tools, user, call_tool("calorie_scan", items=[]), "I see no food there.")
    await handle_message(made.claim("how many calories?", media_url=ADDRESS), made.services)
    assert brought(made) == "Error: items is empty; name at least one food, or tell the user that none is to be seen"
    assert await summary(tools, made) == "The diary is empty for that time."


async def test_a_mere_question_is_answered_and_not_kept(tools: Toolbox, user: User) -> None:
    made = house(tools, user, call_tool("calorie_scan", items=["croissant"], log=False), "244 kcal.")
    await handle_message(made.claim("what would the calories be?", media_url=ADDRESS), made.services)
    assert brought(made).endswith("Not kept in the diary.")
    assert await summary(tools, made) == "The diary is empty for that time."


TOKO = "Toko Kulit Everyday Tote [toko-kulit-everyday-tote]: USD 95"


@pytest.mark.parametrize(
    ("seen", "lines"),
    [
        # The brand can be read: the very product, and what is like it.
        (
            {"product": "Valmont & Rey Arc tote, black leather", "kind": "handbag", "limit": 1},
            ["The original: - Valmont & Rey Arc Leather Tote", "Dupes, the most alike first:", f"- {TOKO}, 93% less"],
        ),
        # No brand: what looks like it, the cheapest first; with a price, only what costs less.
        (
            {"product": "structured black leather", "kind": "tote bag"},
            ["Alike, the cheapest first:", f"- {TOKO} at", "- Valmont & Rey Arc"],
        ),
        (
            {"product": "structured black leather", "kind": "tote bags", "price": 400, "currency": "USD"},
            ["Alike, the cheapest first:", f"- {TOKO}, 76% less at"],
        ),
        (
            {"product": "structured black leather", "kind": "tote", "price": 80, "currency": "USD"},
            ["Nothing that is much like it costs less."],
        ),
        # A price of no currency says nothing; one of another currency has nothing to compare with.
        ({"product": "structured black leather", "kind": "tote", "price": 80}, ["Alike, the cheapest first:", f"- {TOKO} at", "- Valmont"]),
        (
            {"product": "black leather", "kind": "tote", "price": 1_500_000, "currency": "IDR"},
            ["Nothing in the catalogue is like it. Ask for the kind of product, its material or its colour."],
        ),
        # The user's own limit is looked for, and not only looked at: what fits best below it.
        (
            {"product": "structured black leather", "kind": "tote", "max_price": 50},
            ["Alike, the cheapest first:", "- Wayfare Canvas Market Tote"],
        ),
        ({"product": "structured black leather", "kind": "tote", "max_price": 5}, ["Nothing that is much like it costs less."]),
        # One or several: the catalogue says loafers of one and Loafer of the other.
        (
            {"product": "brown leather", "kind": "loafer"},
            ["Alike, the cheapest first:", "- Toko Kulit Penny Loafer", "- Corso Leather Loafer"],
        ),
        # A kind that nobody sells: said so, and what is near by its other words.
        (
            {"product": "red silk", "kind": "scarf"},
            ["The catalogue has no scarf. By its other words these are the nearest:", "- Linea Silk Slip Dress"],
        ),
        ({"product": "a dupe", "kind": "submarine"}, ["Nothing in the catalogue is like it."]),
        # The user's own limit holds beside the original's price.
        (
            {"product": "Maison Lune Cloud Matte", "kind": "lipstick", "max_price": 6, "currency": "USD"},
            ["The original: - Maison Lune Cloud Matte Lipstick 04", "Dupes, the most alike first:", "- Nona Daily Matte Lipstick"],
        ),
    ],
)
async def test_what_is_seen_is_looked_up_in_the_catalogue(tools: Toolbox, user: User, seen: dict[str, Any], lines: list[str]) -> None:
    made = house(tools, user, call_tool("dupe_search", **seen), "Here is one.")
    await handle_message(made.claim("any dupes for this?", media_url=ADDRESS), made.services)
    found = brought(made).splitlines()
    assert [line[: len(start)] for line, start in zip(found, lines, strict=False)] == lines
    assert len(found) == len(lines)
