"""A first-time visitor without any key: the ten steps, the gate, the scripted concierge, and the tools on real tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from hermes.backends import ScriptedBackend
from hermes.packs.concierge import Concierge
from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import load_samples
from hermes.packs.concierge.ports import Booking
from hermes.packs.concierge.records import (
    PostgresBookings,
    PostgresNutrition,
    PostgresOrders,
    PostgresPriceWatchers,
    PostgresReminders,
)
from hermes.ports.backends import ModelRequest
from hermes.ports.memories import Soul
from hermes.ports.models import Answer, Caller
from hermes.ports.tools import ErasedFacts, ImagePrompt, PreferenceChange, ToolUser
from hermes.ports.users import UserState
from hermes.router.pipeline import handle_message
from hermes.router.services import Services
from hermes.soul.prompt_layers import SoulBase, message_note
from hermes.soul.sanitize import scan
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.journal import PostgresEffectRecords
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.offers import PostgresOffers
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.testing.memory import RouterHarness
from hermes.tools.executor import Toolbox
from hermes.turn import Platform
from tests.fakes.concierge import all_tools, concierge_gate, concierge_script

BALI = "Asia/Makassar"


@dataclass
class Scripted:
    """The port Models, with the concierge that ships behind it."""

    backend: ScriptedBackend = field(default_factory=lambda: ScriptedBackend(concierge_script()))

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        completion = await self.backend.complete(ask, "scripted", timeout_s=5)
        return Answer(uuid4(), completion, "scripted", "scripted", 0, {}, (), 1)


class InBali:
    """The port Souls, for somebody in Bali: the note is the real one."""

    async def load(self, *_: object, now: datetime, **__: object) -> Soul:
        return Soul("You are Hermes.", message_note(now, SoulBase("", BALI, ()), [], str), is_recall_used=False, load_ms=0, timezone=BALI)

    async def invalidate(self, _: object) -> None:
        return


class Blind:
    """The port Images, where nobody sends any."""

    async def look(self, *_: object, **__: object) -> ImagePrompt | None:
        return None


@dataclass
class Notes:
    """The port Notebook: a page for each user, shown whole."""

    known: dict[Any, dict[str, str]] = field(default_factory=dict)

    async def save(self, user: ToolUser, key: str, value: str, **_: object) -> PreferenceChange:
        page = self.known.setdefault(user.user_id, {})
        before, page[key] = page.get(key), value
        return PreferenceChange(before, value)

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        gone = [f"{key}: {value}" for key, value in self.known.get(user.user_id, {}).items() if not what or key in what]
        self.known[user.user_id] = {key: value for key, value in self.known.get(user.user_id, {}).items() if f"{key}: {value}" not in gone}
        return ErasedFacts(gone, was_said=False)

    async def search(self, user: ToolUser, _: str) -> Sequence[str]:
        return [f"{key}: {value}" for key, value in self.known.get(user.user_id, {}).items()]

    async def observe(self, *_: object) -> None:
        return


@dataclass
class Visit:
    """Somebody who talks to the concierge."""

    house: RouterHarness
    services: Services
    concierge: Concierge
    database: Database
    tools: Sequence[str] = ()
    """The tools that the last message needed."""

    async def say(self, text: str) -> str:
        ended = await handle_message(self.house.claim(text), self.services)
        assert ended.outcome == "answered"
        self.tools = [result.name for result in ended.transcript.results] if ended.transcript else []
        return ended.text

    async def approve(self) -> str:
        """Send the code of the newest offer, which Hermes shows below the answer."""
        async with self.database.begin() as tx:
            rows = await connection_of(tx).execute(b"select code from offers where state = 'offered' order by made_at desc limit 1")
            [[code]] = await rows.fetchall()
        return await self.say(str(code))

    async def bookings(self) -> Sequence[Booking]:
        async with self.database.begin() as tx:
            return await self.concierge.bookings.of(tx, self.house.user.id)


@pytest.fixture
async def visit(database: Database) -> Visit:
    keyring = Keyring(MasterKeys.parse([new_master_key()]))
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "web", Platform.WEB, "visitor", state=UserState.ACTIVE)
    concierge = Concierge(
        venues=PostgresVenues(),
        bookings=PostgresBookings(keyring),
        reminders=PostgresReminders(keyring),
        products=PostgresProducts(),
        watchers=PostgresPriceWatchers(),
        nutrition=PostgresNutrition(keyring),
        orders=PostgresOrders(keyring),
        notebook=Notes(),
    )
    await load_samples(database, concierge.venues, concierge.products, concierge.nutrition)
    tools = Toolbox(
        own=all_tools(concierge),
        gate_=concierge_gate(),
        transactions=database,
        outcomes=PostgresEffectRecords(keyring),
        offers=PostgresOffers(keyring),
        scan=scan,
    )
    house = RouterHarness(models=Scripted(), souls=InBali(), tools=tools, images=Blind(), user=user)
    house.credits.available[user.id] = 100
    services = replace(house.services, transactions=database, offers=PostgresOffers(keyring))
    return Visit(house, services, concierge, database)


def tomorrow(at: str) -> str:
    """A time of tomorrow in Bali, as the tools write it."""
    day = datetime.now(UTC).astimezone(ZoneInfo(BALI)) + timedelta(days=1)
    return f"{day:%a} {day.day} {day:%b %Y}, {at}"


async def test_a_visitor_finds_a_bar_books_a_table_and_changes_their_mind(visit: Visit) -> None:
    assert await visit.say("hi") == "Hello! What can I find for you today?"
    found = await visit.say("find me a sunset bar in Canggu")
    assert visit.tools == ["venue_search"]
    lines = found.splitlines()
    assert [line.partition(":")[0] for line in lines if line[:1].isdigit()] == [
        "1. Salt & Ember",
        "2. Driftwood Deck",
        "3. The Tamarind Roof",
        "4. Kelapa Sunset Club",
    ]
    assert "[" not in found, "ids are for models"
    assert await visit.say("book the second one for 4") == "On which day, and at what time?"
    offer = f"Driftwood Deck in Canggu, {tomorrow('19:00')}, 4 people"
    assert await visit.say("tomorrow at 7pm") == f"I can offer you this: {offer}."
    assert (await visit.say("yes please")).startswith("Please approve it yourself")
    assert await visit.bookings() == []
    done = await visit.approve()
    [booking] = await visit.bookings()
    assert done == f"Done: {offer}. The venue has not confirmed yet. Your booking has the code {booking.code}."
    assert await visit.say("show my bookings") == f"These are your bookings:\n\n• {booking.code}: {offer}, requested"
    assert await visit.say(f"cancel {booking.code}") == f"I can cancel this: {offer}."
    assert [each.state for each in await visit.bookings()] == ["requested"]
    assert await visit.approve() == f"Cancelled: {offer}."
    assert [each.state for each in await visit.bookings()] == ["cancelled"]


async def test_a_table_that_cannot_be_had_is_mended_in_the_next_message(visit: Visit) -> None:
    refused = await visit.say("book a table at Salt & Ember for two tomorrow at 9am")
    assert refused == (
        f"I am afraid that does not work: Salt & Ember is closed at {tomorrow('09:00')}; its hours: Mo-Su 16:00-01:00. "
        "On which day, and at what time?"
    )
    assert await visit.say("at 8 in the evening") == (f"I can offer you this: Salt & Ember in Canggu, {tomorrow('20:00')}, 2 people.")
    assert (await visit.say("no")).startswith("All right, nothing is booked")
    assert await visit.bookings() == []
    unknown = await visit.say("book a table at Nowhere Bar for two tomorrow at 8pm")
    assert unknown == "I cannot book that: there is no venue 'Nowhere Bar'. Which place shall I book?"
    assert "Salt & Ember in Canggu" in await visit.say("Salt & Ember")


async def test_a_place_in_another_language_and_an_area_that_nobody_knows(visit: Visit) -> None:
    assert (await visit.say("cari bar sunset di Canggu")).startswith("Ini yang aku temukan:\n\n1. Salt & Ember: bar in Canggu")
    assert (await visit.say("trouve un bar à Paris")).startswith("Je n'ai rien trouvé qui convienne là-bas. Je connais des endroits à Bali")
    assert (await visit.say("Ubud")).startswith("Voici ce que j'ai trouvé :\n\n1. ")
    assert (await visit.say("在仓古找一家酒吧")).startswith("我找到了这些")


async def test_reminders_preferences_goods_food_rides_and_cards(visit: Visit) -> None:
    said = {
        "remind me tomorrow at 9 to call mum": f"Done. I will remind you on {tomorrow('09:00')}: call mum",
        "I'm vegetarian": "Noted, I will remember that: vegetarian.",
        "what do you know about me?": "This is what I know:\n\n• diet: vegetarian",
        "a cheaper alternative to the Valmont & Rey Arc Leather Tote": (
            "Here is what I found:\n\n1. The original: Valmont & Rey Arc Leather Tote: USD 1,450 at Valmont & Rey\n"
            "2. Toko Kulit Everyday Tote: USD 95, 93% less"
        ),
        "watch the price of the Stride Cloud Runner 5": "Below which price shall I tell you?",
        "120": "Watcher ",
        "I ate nasi goreng": "It is in your food diary:\n\n• Fried rice, 300 g: 504 kcal",
        "how many calories today?": "504 kcal, protein 14 g",
        "I need a ride from Canggu to Ubud": "Ride from Canggu to Ubud, ",
        "how much is it to deliver a surfboard from Canggu to Ubud?": "Delivery from Canggu to Ubud, ",
        "make a birthday card for Ana saying See you at the beach!": "Card ",
    }
    answers = {text: await visit.say(text) for text in said}
    assert {text: answer[: len(said[text])] for text, answer in answers.items()} == said
    ordered = await visit.approve()
    assert ordered.startswith("Noted as a request ")
    assert ordered.endswith("No driver is on the way: no ride company is connected here.")
    assert "See you at the beach!" in answers["make a birthday card for Ana saying See you at the beach!"]
