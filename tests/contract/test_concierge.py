# ruff: noqa: RUF001  # people write in other scripts
"""The concierge on the real tables: its ports, and the eighteen tools as a model calls them."""

import asyncio
import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.packs.concierge import PACK, Concierge
from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import SampleCounts, load_samples, sample_products, sample_venues
from hermes.packs.concierge.ports import BookingState, GeoPoint, MealItem, OrderKind, Product, Venue, VenueQuery
from hermes.packs.concierge.records import (
    PostgresBookings,
    PostgresNutrition,
    PostgresOrders,
    PostgresPriceWatchers,
    PostgresReminders,
)
from hermes.ports.errors import DataDamaged, NotFound
from hermes.ports.runtime import Transactions
from hermes.ports.tools import (
    EffectRecord,
    EffectRecords,
    NewOffer,
    OfferNotice,
    OfferNotOpen,
    Offers,
    OfferState,
    OfferView,
    TakenOffer,
    ToolCall,
    ToolUser,
)
from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.journal import PostgresEffectRecords
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.offers import PostgresOffers
from hermes.stores.postgres.users import PostgresUsers
from hermes.tools.executor import Toolbox
from hermes.turn import Platform
from tests.fakes.concierge import all_tools, concierge_gate
from tests.unit.tools.people import NOON, MemoryNotebook, MemoryOffers, MemoryOutcomes, MemoryTransactions, later, somebody


@dataclass
class House:
    """Tools on a stocked database, and somebody who uses them."""

    database: Database
    keyring: Keyring
    concierge: Concierge
    tools: Toolbox
    user: ToolUser

    async def ask(self, tool: str, user: ToolUser | None = None, index: int = 0, /, **arguments: Any) -> str:
        """Call a tool in a turn of its own, unless it is said in whose and where."""
        result = await self.tools.run(ToolCall("call", tool, json.dumps(arguments)), index, user or later(self.user))
        return result.text

    async def rows(self, query: str) -> list[Any]:
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()


@pytest.fixture
async def house(database: Database, keyring: Keyring, user: User) -> House:
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
    tools = Toolbox(
        own=all_tools(concierge),
        gate_=concierge_gate(),
        transactions=database,
        outcomes=PostgresEffectRecords(keyring),
        offers=PostgresOffers(keyring),
        scan=lambda _: None,
    )
    return House(database, keyring, concierge, tools, somebody(user.id))


def names(text: str) -> list[str]:
    """The places of a result."""
    return [line.removeprefix("- ").split(" [")[0] for line in text.splitlines()]


# --- effects and offers, on both adapters

Effects = tuple[EffectRecords, Offers, Transactions, ToolUser]


@pytest.fixture(params=["postgres", "memory"])
def effects(request: pytest.FixtureRequest) -> Effects:
    if request.param == "memory":
        memory = MemoryTransactions()
        return MemoryOutcomes(memory), MemoryOffers(memory), memory, somebody()
    user, keyring = request.getfixturevalue("user"), request.getfixturevalue("keyring")
    return PostgresEffectRecords(keyring), PostgresOffers(keyring), request.getfixturevalue("database"), somebody(user.id)


async def test_an_effect_is_begun_once_and_its_first_outcome_stands(effects: Effects) -> None:
    outcomes, _, transactions, user = effects
    async with transactions.begin() as tx:
        assert await outcomes.begin(tx, user, 0, "pay") == EffectRecord(is_new=True, text=None)
    async with transactions.begin() as tx:
        assert await outcomes.begin(tx, user, 0, "pay") == EffectRecord(is_new=False, text=None)
        await outcomes.finish(tx, user, 0, "paid 5 ü")
    async with transactions.begin() as tx:
        assert await outcomes.begin(tx, user, 0, "pay") == EffectRecord(is_new=False, text="paid 5 ü")
        assert await outcomes.begin(tx, user, 1, "pay") == EffectRecord(is_new=True, text=None)
        assert await outcomes.begin(tx, later(user), 0, "pay") == EffectRecord(is_new=True, text=None)


async def test_an_effect_that_failed_was_never_begun(effects: Effects) -> None:
    outcomes, _, transactions, user = effects

    async def interrupted() -> None:
        async with transactions.begin() as tx:
            await outcomes.begin(tx, user, 0, "pay")
            raise KeyError

    with pytest.raises(KeyError):
        await interrupted()
    async with transactions.begin() as tx:
        assert await outcomes.begin(tx, user, 0, "pay") == EffectRecord(is_new=True, text=None)


async def test_an_offer_is_taken_once_by_its_user_in_another_turn(effects: Effects) -> None:
    _, offers, transactions, user = effects
    offered = NewOffer("pay", "pay 5 to Ü", {"amount": 5, "to": "Ü"})
    async with transactions.begin() as tx:
        notice = await offers.put(tx, user, 3, offered, valid_s=60)
    assert (notice.tool, notice.text, notice.expires_at) == ("pay", "pay 5 to Ü", user.now + timedelta(seconds=60))
    code, after = notice.code, later(user, seconds=30)
    for wrong, given, state in (
        (user, code, None),
        (after, "NCCCCC", None),
        (replace(after, user_id=uuid4()), code, None),
        (later(user, seconds=90), code, OfferState.EXPIRED),
    ):
        with pytest.raises(OfferNotOpen) as refused:
            async with transactions.begin() as tx:
                await offers.take(tx, wrong, given)
        assert refused.value.state is state
    taken = TakenOffer("pay", offered.terms, f"{user.turn_id}/3", is_new=True, result=None)
    async with transactions.begin() as tx:
        assert await offers.take(tx, after, code) == taken
        assert await offers.take(tx, after, code) == replace(taken, is_new=False), "a turn that is driven again finds it begun"
        await offers.finish(tx, after, code, "paid ü")
    async with transactions.begin() as tx:
        assert await offers.take(tx, after, code) == replace(taken, is_new=False, result="paid ü")
        assert await offers.look(tx, after, code) == OfferView("pay", "pay 5 to Ü", OfferState.OFFERED), "for this turn it goes on"
        assert await offers.look(tx, later(after), code) == OfferView("pay", "pay 5 to Ü", OfferState.APPROVED)
    for act in (offers.take, offers.refuse):
        with pytest.raises(OfferNotOpen):
            async with transactions.begin() as tx:
                await act(tx, later(after), code)


async def test_what_is_stored_of_an_offer_is_what_was_offered(house: House) -> None:
    offers = PostgresOffers(house.keyring)
    async with house.database.begin() as tx:
        notice = await offers.put(tx, house.user, 0, NewOffer("pay", "pay 5", {"amount": 5}), valid_s=60)
    await house.rows("update offers set tool = 'transfer' returning code")
    with pytest.raises(DataDamaged):
        async with house.database.begin() as tx:
            await offers.take(tx, later(house.user, seconds=1), notice.code)


# --- places


async def test_the_founding_wish_finds_the_sunset_bars_of_canggu(house: House) -> None:
    found = names(await house.ask("venue_search", query="sunset bar in Canggu"))
    assert found == ["Salt & Ember", "Driftwood Deck", "The Tamarind Roof", "Kelapa Sunset Club"]
    whole = await house.ask("venue_search", query="find me a sunset bar in Canggu", limit=1)
    assert whole == (
        "- Salt & Ember [canggu-salt-ember]: bar in Canggu, Bali; $$; closed now (Mo-Su 16:00-01:00); Barefoot bar on the sand at Echo "
        "Beach, grilled fish and cold beer while the sun goes down.; tags: sunset, beach, surf, seafood"
    )


@pytest.mark.parametrize(
    "query",
    [
        "在仓古找一家看日落的酒吧",
        "carikan bar matahari terbenam di Canggu",
        "ابحث عن بار في تشانغو لمشاهدة غروب الشمس",
        "бар на закате в Чангу",
    ],
)
async def test_other_languages_find_the_same(house: House, query: str) -> None:
    assert set(names(await house.ask("venue_search", query=query))) == {
        "Salt & Ember",
        "Driftwood Deck",
        "The Tamarind Roof",
        "Kelapa Sunset Club",
    }


async def test_places_by_area_price_distance_words_and_hours(house: House) -> None:
    assert names(await house.ask("venue_search", query="quiet café", area="Ubud")) == ["Monkey Path Coffee", "Green Canopy"]
    assert names(await house.ask("venue_search", query="restaurant in Seminyak", max_price=2)) == ["Gado Lane", "Tacos del Sol"]
    assert names(await house.ask("venue_search", query="somewhere with lobster"))[0] == "Coral Table"
    near = await house.ask("venue_search", query="spa", near="-8.6466,115.1350", limit=2)
    assert names(near) == ["Padma Springs Spa", "Bali Bloom Spa"]
    assert "0.0 km away" in near
    # Twelve o'clock in Bali: what opens at four or five in the afternoon is left out.
    assert names(await house.ask("venue_search", query="sunset bar in Canggu", open_now=True)) == ["Driftwood Deck", "Kelapa Sunset Club"]
    at_ten = replace(house.user, turn_id=uuid4(), now=NOON + timedelta(hours=10))
    assert "open now until 01:00" in await house.ask("venue_search", at_ten, query="sunset bar in Canggu", limit=1)
    assert (await house.ask("venue_search", query="curling hall in Canggu")).startswith(
        "No place fits. Areas with places: Bali, Canggu, Jakarta"
    )


async def test_an_area_with_little_is_searched_around(house: House) -> None:
    async with house.database.begin() as tx:
        far = Venue(
            id="berawa-pho",
            name="Pho",
            category="restaurant",
            area="Berawa",
            city="Bali",
            at=GeoPoint(-8.66, 115.14),
            timezone="Asia/Makassar",
        )
        assert await house.concierge.venues.put(tx, [far]) == 1
        assert await house.concierge.venues.put(tx, [replace(far, name="Pho Berawa")]) == 0
        assert [found.venue for found in await house.concierge.venues.search(tx, VenueQuery(area="Berawa", words=("pho",)))] == [
            replace(far, name="Pho Berawa")
        ]
    around = names(await house.ask("venue_search", query="restaurants in Berawa", limit=3))
    assert around[0] == "Pho Berawa"
    assert len(around) == 3


async def test_the_sample_set_is_put_once_and_left_alone_where_there_is_something(house: House) -> None:
    concierge = house.concierge
    shelf = (house.database, concierge.venues, concierge.products, concierge.nutrition)
    assert await load_samples(*shelf) == SampleCounts(0, 0, 0)
    await house.rows("delete from foods returning id")
    assert await load_samples(*shelf, only_if_empty=True) == SampleCounts(0, 0, 152)
    async with house.database.begin() as tx:
        assert await concierge.venues.list(tx, area="ubud", limit=1) == [next(v for v in sample_venues() if v.name == "Batu Suci Temple")]
        assert set(await concierge.venues.areas(tx)) >= {"canggu", "ubud", "bali", "jakarta", "kota tua"}


# --- bookings


async def offered(house: House, tool: str, user: ToolUser | None = None, /, **arguments: Any) -> OfferNotice:
    """Call a tool that spends, and return its offer."""
    result = await house.tools.run(ToolCall("call", tool, json.dumps(arguments)), 0, user or later(house.user))
    assert result.offer is not None, result.text
    return result.offer


async def approved(house: House, offer: OfferNotice, user: ToolUser | None = None) -> str:
    result = await house.tools.carry_out(offer.code, ToolCall("offer", offer.tool, ""), user or later(house.user))
    return result.text


async def booked(house: House, **wishes: Any) -> str:
    """Book a table, and return its code."""
    wishes = {"venue": "Salt & Ember", "day": "2026-03-07", "at": "19:30", "party_size": 4, **wishes}
    return (await approved(house, await offered(house, "create_booking", **wishes))).split(": ", 1)[1].split(":", maxsplit=1)[0]


async def test_a_table_is_offered_confirmed_looked_up_cancelled(house: House) -> None:
    wishes = {"venue": "[canggu-salt-ember]", "day": "2026-03-07", "at": "19:30", "party_size": "4", "name": "Ada", "note": "by the sea"}
    offer = await offered(house, "create_booking", **wishes)
    shown = "Offer: Salt & Ember in Canggu, Sat 7 Mar 2026, 19:30, 4 people, name Ada, note: by the sea; venue: [canggu-salt-ember]"
    assert offer.text == shown, "with every text that the model wrote"
    assert await house.rows("select count(*) from bookings") == [(0,)]
    done = await approved(house, offer)
    [[code, at, state]] = await house.rows("select code, at, state from bookings")
    assert (at, state) == (datetime(2026, 3, 7, 11, 30, tzinfo=UTC), "requested")
    line = f"{code}: Salt & Ember in Canggu, Sat 7 Mar 2026, 19:30, 4 people"
    assert done == f"Booking requested: {line}, requested, note: by the sea. The venue has not confirmed yet."
    assert await house.ask("check_booking", code=code.lower()) == f"{line}, requested, note: by the sea"
    assert await house.ask("get_user_bookings") == f"- {line}, requested, note: by the sea"
    cancel = await offered(house, "cancel_booking", code=code)
    assert cancel.text == f"Offer: cancel {line}, requested, note: by the sea"
    assert await house.rows("select state from bookings") == [("requested",)]
    assert await approved(house, cancel) == f"Cancelled: {line}, cancelled, note: by the sea"
    again = await house.ask("cancel_booking", code=code)
    assert again == f"Error: nothing is left to cancel; it was cancelled before: {line}, cancelled, note: by the sea"
    assert await house.ask("get_user_bookings") == "The user has no upcoming bookings."
    assert await house.ask("get_user_bookings", which="all") == f"- {line}, cancelled, note: by the sea"


async def test_an_order_that_is_driven_again_is_one_order(house: House) -> None:
    offer = await offered(house, "create_booking", venue="Salt & Ember", day="2026-03-07", at="19:30", party_size=2)
    turn = later(house.user)
    results = await asyncio.gather(*(approved(house, offer, turn) for _ in range(5)))
    assert len(set(results)) == 1
    assert results[0].startswith("Booking requested")
    two_turns = await asyncio.gather(*(approved(house, offer) for _ in range(2)))
    assert two_turns == ["Error: nothing was done now: the offer is approved"] * 2
    other = await offered(house, "create_booking", venue="Salt & Ember", day="2026-03-08", at="19:30", party_size=2)
    pressed = await asyncio.gather(*(approved(house, other) for _ in range(5)))
    assert sum(text.startswith("Booking requested") for text in pressed) == 1, "five presses at once are one booking"
    assert await house.rows("select count(*) from bookings where at > '2026-03-08' and at < '2026-03-09'") == [(1,)]
    await house.rows("delete from bookings where at > '2026-03-08' returning code")
    assert await house.rows("select count(*) from bookings") == [(1,)]


async def test_a_table_that_cannot_be_is_refused_with_a_reason(house: House) -> None:
    async def offer(**wishes: Any) -> str:
        return await house.ask("create_booking", **{"venue": "Salt & Ember", "day": "2026-03-07", "at": "19:30", "party_size": 4, **wishes})

    assert await offer(day="2026-03-05") == "Error: Thu 5 Mar 2026, 19:30 is in the past; it is Fri 6 Mar 2026, 12:00 there now"
    assert await offer(at="11:00") == "Error: Salt & Ember is closed at Sat 7 Mar 2026, 11:00; its hours: Mo-Su 16:00-01:00"
    assert await offer(day="2028-03-07") == "Error: bookings are taken for up to one year ahead"
    assert await offer(party_size=80) == "Error: party_size must be between 1 and 50"
    assert await offer(venue="Atlantis") == "Error: there is no venue 'Atlantis'; look it up with venue_search first"
    assert (await offer(venue="spa")).startswith("Error: several venues fit: ")
    assert await house.rows("select count(*) from offers") == [(0,)]


async def test_a_visit_is_rated_afterwards(house: House) -> None:
    code = await booked(house)
    assert (
        await house.ask("rate_booking", code=code, rating=5) == "Error: this booking is for Sat 7 Mar 2026, 19:30, which is still to come"
    )
    after = later(house.user, days=2)
    assert await house.ask("rate_booking", after, code=code, rating=5, comment="lovely") == "Rated 5/5: Salt & Ember."
    assert await house.ask("get_user_bookings", later(after)) == "The user has no upcoming bookings."
    assert "rated 5/5" in await house.ask("get_user_bookings", later(after), which="all")
    async with house.database.begin() as tx:
        booking = await house.concierge.bookings.get(tx, house.user.user_id, code)
    assert (booking.rating, booking.comment, booking.state) == (5, "lovely", BookingState.REQUESTED)
    assert str(booking.at.tzinfo) == "Asia/Makassar"


async def test_nobody_sees_the_bookings_of_others(house: House) -> None:
    code = await booked(house)
    async with house.database.begin() as tx:
        other, _ = await PostgresUsers(house.keyring).find_or_create(tx, "bali", Platform.TELEGRAM, "99", state=UserState.ACTIVE)
    stranger = somebody(other.id)
    assert await house.ask("check_booking", stranger, code=code) == f"Error: the user has no booking {code!r}; get_user_bookings lists them"
    assert await house.ask("get_user_bookings", stranger, which="all") == "The user has no bookings."
    assert (await house.ask("cancel_booking", stranger, code=code)).startswith("Error")


async def test_words_are_sealed_and_gone_with_the_user(house: House) -> None:
    await booked(house, note="my secret wish")
    await house.ask("set_reminder", text="my secret wish", at="2026-03-07T09:00")
    await house.ask("generate_card", title="my secret wish", message="my secret wish")
    await house.ask("calorie_scan", items=["nasi goreng"])
    for table in ("bookings", "reminders", "orders", "tool_effects", "offers", "meals"):
        text = str(await house.rows(f"table {table}"))
        assert "secret" not in text
        assert "Fried" not in text
    async with house.database.begin() as tx:
        await PostgresUsers(house.keyring, PACK.user_tables).forget(tx, house.user.user_id)
    for table in ("bookings", "reminders", "orders", "tool_effects", "offers", "meals"):
        assert await house.rows(f"table {table}") == []
    async with house.database.begin() as tx:
        assert await house.concierge.bookings.of(tx, house.user.user_id) == []
        assert await house.concierge.reminders.take_due(tx, NOON + timedelta(days=9)) == []


# --- reminders, memory


async def test_a_reminder_is_due_once(house: House) -> None:
    turn = later(house.user)
    text = await house.ask("set_reminder", turn, text="call mum", at="2026-03-06T18:00")
    [[code]] = await house.rows("select code from reminders")
    assert text == f"Reminder {code} is set for Fri 6 Mar 2026, 18:00: call mum"
    assert (await house.ask("set_reminder", text="x", at="2026-03-06T11:00")).startswith("Error: Fri 6 Mar 2026, 11:00 is in the past")
    reminders = house.concierge.reminders
    async with house.database.begin() as tx:
        assert await reminders.take_due(tx, datetime(2026, 3, 6, 9, 59, tzinfo=UTC)) == []
        [due] = await reminders.take_due(tx, datetime(2026, 3, 6, 10, 0, tzinfo=UTC))
        assert (due.code, due.user_id, due.turn_id, due.text) == (code, house.user.user_id, turn.turn_id, "call mum")
        assert await reminders.take_due(tx, datetime(2026, 3, 7, tzinfo=UTC)) == []


async def test_preferences_are_kept_and_found(house: House) -> None:
    assert await house.ask("save_preference", key="diet", value="vegan") == "Remembered: diet is vegan."
    assert await house.ask("recall_memory", query="diet") == "- diet: vegan"
    assert await house.ask("recall_memory", query="shoes") == "Nothing is known about that."
    assert await house.ask("save_preference", key="colour of the moon", value="grey") == "Error: nobody needs to know that"
    assert await house.ask("save_preference", key="diet", value="") == "Error: key and value must both say something"


async def test_a_preference_that_changes_or_no_longer_holds_is_told_as_that(house: House) -> None:
    assert await house.ask("save_preference", key="diet", value="vegan") == "Remembered: diet is vegan."
    assert await house.ask("save_preference", key="diet", value="halal") == "Updated: diet is halal, no longer vegan."
    assert await house.ask("save_preference", key="diet", value="vegan", no_longer=True) == "Nothing is known about that."
    assert await house.ask("save_preference", key="diet", value="halal", no_longer=True) == "Noted: diet is no longer halal."


async def test_what_was_forgotten_is_told_as_it_was_known(house: House) -> None:
    await house.ask("save_preference", key="diet", value="vegan")
    assert await house.ask("forget_memory", what="shoes") == "Nothing is known about that."
    assert await house.ask("forget_memory", what="diet") == "Forgotten: diet: vegan."
    assert await house.ask("forget_memory", what="diet") == "Nothing is known about that."
    assert await house.ask("forget_memory", everything=True) == "Forgotten: everything that was known, 0 facts."
    assert await house.ask("forget_memory", what=" ") == "Error: say what to forget, or that it is everything"


# --- goods


async def test_dupes_are_alike_and_cost_less(house: House) -> None:
    text = await house.ask("dupe_search", product="a dupe for the Maison Lune Cloud Matte lipstick", limit=2)
    assert text.splitlines()[0].startswith(
        "The original: - Maison Lune Cloud Matte Lipstick 04 [maison-lune-cloud-matte-lipstick-04]: USD 39 "
    )
    assert [line.split(" [")[0] for line in text.splitlines()[2:]] == [
        "- Petal Velvet Matte Lip Rosewood",
        "- Nona Daily Matte Lipstick",
    ]
    assert "USD 8.50, 78% less" in text
    kind = await house.ask("dupe_search", product="noise cancelling headphones", limit=2)
    assert kind.splitlines()[1].startswith("- Hush One Over-Ear [hush-one-over-ear]: USD 89 at Hush Audio")
    assert (await house.ask("dupe_search", product="submarine")).startswith("Nothing in the catalogue")


async def test_a_price_that_comes_down_is_told_once(house: House) -> None:
    assert (await house.ask("set_price_watcher", product="Torrent Cyclone Hair Dryer", target_price=400)).endswith(
        "now USD 429, waits for 400."
    )
    assert (await house.ask("set_price_watcher", product="[torrent-cyclone-hair-dryer]", target_price=300)).endswith("waits for 300.")
    assert (await house.ask("set_price_watcher", product="Hush Mini Buds", target_price=50)).startswith("No watcher is needed")
    assert (await house.ask("set_price_watcher", product="lipstick", target_price=5)).startswith(
        "Error: it is not clear which product is meant"
    )
    watchers, products = house.concierge.watchers, house.concierge.products
    dryer = next(product for product in sample_products() if product.id == "torrent-cyclone-hair-dryer")
    async with house.database.begin() as tx:
        assert await watchers.take_due(tx) == []
        await products.put(tx, [replace(dryer, price=299.5)])
        [due] = await watchers.take_due(tx)
        assert (due.user_id, due.target, due.product) == (house.user.user_id, 300.0, replace(dryer, price=299.5))
        assert await watchers.take_due(tx) == []
        with pytest.raises(NotFound):
            await watchers.add(tx, house.user.user_id, uuid4(), "no-such-thing", 1)
        assert isinstance(due.product, Product)


# --- food


async def test_what_was_eaten_is_summed_up_in_the_users_zone(house: House) -> None:
    plate = [{"food": "Nasi Goreng", "grams": 250}, {"food": "fried eggs", "servings": 2}, "unobtainium"]
    assert await house.ask("calorie_scan", items=plate) == (
        "- Fried rice, 250 g: 420 kcal\n- Egg, fried, 100 g: 196 kcal\n"
        "Together: 616 kcal, protein 25 g, fat 29 g, carbohydrates 63 g, fibre 2 g\nNot in the food table: unobtainium\nKept in the diary."
    )
    one = await house.ask("calorie_scan", items=[{"food": "banana"}], log="false")
    assert one == "- Banana, 120 g: 107 kcal, protein 1 g, fat 0 g, carbohydrates 28 g, fibre 3 g\nNot kept in the diary."
    yesterday = later(house.user, hours=-13)  # eleven in the evening there, and another day
    await house.ask("calorie_scan", yesterday, items=["croissant"])
    today = "2 entries, today: 616 kcal, protein 25 g, fat 29 g, carbohydrates 63 g, fibre 2 g. Last: Fried rice, Egg, fried."
    assert await house.ask("get_nutrition_summary") == today
    week = await house.ask("get_nutrition_summary", period="week")
    assert week.startswith("3 entries, week: 860 kcal")
    assert "On average 430 kcal on 2 days." in week
    assert await house.ask("get_nutrition_summary", later(house.user, days=60)) == "The diary is empty for that time."
    assert (await house.ask("calorie_scan", items=["unobtainium"])).startswith("Error: not in the food table: unobtainium")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("apples", "Apple"),
        ("香蕉", "Banana"),
        ("一碗米饭", "White rice, cooked"),
        ("grilled chicken breast with herbs", "Chicken breast, grilled"),
        ("Сыр", "Cheese, cheddar"),
        ("scoop of vanilla ice cream", "Ice cream, vanilla"),
        ("avocado toast", "Avocado toast"),
        ("moon dust", None),
        ("", None),
    ],
)
async def test_foods_are_found_by_what_people_call_them(house: House, said: str, meant: str | None) -> None:
    async with house.database.begin() as tx:
        food = await house.concierge.nutrition.find(tx, said)
    assert (food.name if food else None) == meant


async def test_a_diary_comes_back_as_it_was_written(house: House) -> None:
    portion = MealItem(food="Tea", grams=240, kcal=2.4, protein_g=0, fat_g=0, carbs_g=0.7, fibre_g=0, at=NOON)
    nutrition, user_id = house.concierge.nutrition, house.user.user_id
    async with house.database.begin() as tx:
        await nutrition.log(tx, user_id, [portion])
        assert await nutrition.meal_items(tx, user_id, NOON, NOON + timedelta(seconds=1)) == [portion]
        assert await nutrition.meal_items(tx, user_id, NOON - timedelta(days=1), NOON) == []


# --- rides, deliveries, cards


async def test_a_ride_is_quoted_and_noted_honestly(house: House) -> None:
    made = await offered(house, "get_ride", pickup="Canggu", dropoff="Denpasar airport", service="car")
    offer = made.text
    assert "car IDR" in offer
    assert "These are estimates from the distance, not a provider's prices." in offer
    done = await approved(house, made)
    assert done.startswith("Noted as a request ")
    assert "No driver is on the way: no ride company is connected here" in done
    [[code]] = await house.rows("select code from orders")
    async with house.database.begin() as tx:
        order = await house.concierge.orders.get(tx, house.user.user_id, code)
    assert (order.kind, order.provider, order.currency, order.details["to"]) == (OrderKind.RIDE, "estimate", "IDR", "Denpasar airport")
    assert order.price > 50_000
    assert (await house.ask("get_ride", pickup="Canggu", dropoff="Paris")).startswith("Error: 'Paris' is not a place that is known here")
    assert (await house.ask("get_ride", pickup="Canggu", dropoff="Jakarta")).startswith("Error: that is 9")


async def test_a_delivery_is_quoted_for_nothing_and_ordered_on_a_word(house: House) -> None:
    quote = await house.ask("get_delivery_quote", pickup="Warung Ibu Sari", dropoff="-8.66,115.14")
    assert quote.startswith("Delivery from Warung Ibu Sari to -8.66,115.14, 2.1 km: courier IDR 15,000, about 25 min.")
    assert await house.rows("select count(*) from offers") == [(0,)]
    offer = await offered(house, "book_delivery", pickup="Warung Ibu Sari", dropoff="Ubud", items="two nasi campur")
    assert offer.text.startswith("Offer: two nasi campur, from Warung Ibu Sari to Ubud, courier IDR ")
    assert (await approved(house, offer)).startswith("Noted as a request ")
    assert await house.rows("select kind from orders") == [("delivery",)]


async def test_a_card_is_made_once_and_kept(house: House) -> None:
    turn = later(house.user)
    first = await house.ask("generate_card", turn, title="Come over", message="Saturday at eight", sender="Ada")
    assert await house.ask("generate_card", turn, title="Come over", message="Saturday at eight", sender="Ada") == first
    [[code]] = await house.rows("select code from orders")
    assert first.splitlines()[0] == f"Card {code}, as text to send on:"
    async with house.database.begin() as tx:
        card = await house.concierge.orders.get(tx, house.user.user_id, code)
        with pytest.raises(NotFound):
            await house.concierge.orders.get(tx, UUID(int=0), code)
    assert card.details["svg"].startswith("<svg")


async def test_every_tool_answers_whatever_a_model_writes(house: House) -> None:
    for tool in house.tools.own:
        for arguments in (
            "",
            "{}",
            "[]",
            "null",
            '{"code": 1, "items": {}, "query": [], "at": "x"}',
            '{"confirmation_code": "ZZZZZZ"}',
            "\0",
        ):
            result = await house.tools.run(ToolCall("c", tool.name, arguments), 0, later(house.user))
            assert result.text
            assert "not available right now" not in result.text  # what the broad except says
    assert asdict(house.user)["account"] == "bali"
