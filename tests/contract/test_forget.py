"""What is left of a user who was erased: which rows are gone, which stay and why, and that no other user loses one."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from hermes.packs.concierge import PACK
from hermes.packs.concierge.catalogue import PostgresProducts, PostgresVenues
from hermes.packs.concierge.data_files import sample_products, sample_venues
from hermes.packs.concierge.ports import MealItem, OrderKind
from hermes.packs.concierge.records import (
    PostgresBookings,
    PostgresNutrition,
    PostgresOrders,
    PostgresPriceWatchers,
    PostgresReminders,
)
from hermes.ports.errors import ClaimLost
from hermes.ports.inbox import Claim
from hermes.ports.memories import Dream, DreamDepth, DreamKind, FactChange, FactOrigin, NewFact
from hermes.ports.replays import NewReplay
from hermes.ports.tools import NewOffer
from hermes.ports.users import UserChannel, UserDataCounts, UserState
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresEffectRecords, PostgresInteractions, PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.memories import PostgresDreams, PostgresMemories
from hermes.stores.postgres.offers import PostgresOffers
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.replays import PostgresReplays
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Envelope, MessageEvent, Platform
from tests.contract.turns import new_claim
from tests.unit.tools.people import somebody

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)

STAYS: Mapping[str, str] = {
    "audit": "what operators did and opened: ids, names and reasons, no word of the user; the log only grows",
    "calls": "money: what models cost, without a word of what was said",
    "conversations": "the frame of what was said; the channel's name is gone",
    "credit_balances": "money",
    "credit_entries": "money: the ledger is append-only",
    "erasures": "that the user was erased, so that a restored backup erases them again: ids and times",
    "inbox": "its content is deleted; the turn's number keeps the ledger and the journal whole",
    "interactions": "numbers without text",
    "memory_versions": "a random number, by which other processes notice that the facts are gone",
    "outbox": "its content and its address are deleted",
    "runs": "numbers without text",
    "sessions": "a frame without a graph: a tombstone",
}
"""Tables that may still name a forgotten user's id, each with the reason."""
NO_RECORDS = {table.name: 0 for table in PACK.user_tables}
NOTHING = UserDataCounts(records=NO_RECORDS)


@pytest.fixture
async def shop(database: Database) -> None:
    async with database.begin() as tx:
        await PostgresVenues().put(tx, sample_venues()[:1])
        await PostgresProducts().put(tx, sample_products()[:1])


async def live(database: Database, keyring: Keyring, channel: str) -> UUID:
    """Let somebody do all that a user can do; return who."""
    claim = await new_claim(database, keyring, "I am vegan", channel=channel)
    who, tools = claim.user_id, somebody(claim.user_id)
    async with database.begin() as tx:
        session = await PostgresSessions(keyring).current(tx, claim.conversation_id, who)
        bank = PostgresCredits()
        await bank.grant(tx, who, 10, f"signup:{who}")
        await bank.reserve(tx, who, claim.turn_id)
        await bank.post(tx, claim.turn_id)
        await PostgresJournal(keyring).begin(tx, claim, "call_model", 0, b"asked")
        await PostgresInteractions().add(tx, claim, session.id, {"outcome": "answered"})
        await PostgresOutbox(keyring).put(tx, claim, ["Noted."])
        await PostgresInbox(keyring).finish(tx, claim)
        memories = PostgresMemories(keyring)
        [old] = await memories.change(tx, who, [FactChange(fact=NewFact(text="vegetarian", key="diet", origin=FactOrigin.SAID))], now=NOW)
        newer = NewFact(text="vegan", key="diet", origin=FactOrigin.SAID)
        await memories.change(tx, who, [FactChange(fact=newer, supersedes=(old.id,))], now=NOW)
        [kept] = await memories.structural(tx, who, now=NOW)
        assert await memories.share(tx, who, claim.turn_id, [kept.id, old.id], now=NOW) == [kept], "what holds, and nothing else"
        assert await memories.shared(tx, who, claim.conversation_id, now=NOW) == [kept]
        [mistake] = await memories.change(tx, who, [FactChange(fact=NewFact(text="likes boats", origin=FactOrigin.SAID))], now=NOW)
        assert await memories.delete(tx, who, mistake.id)
        await memories.mark_forgotten(tx, who, claim.turn_id, [("allergies", ("peanut",))])
        dreams = [Dream(kind=DreamKind.INSIGHT, text="eats out on Fridays")]
        await PostgresDreams(keyring).add(tx, who, DreamDepth.DEEP, date(2026, 11, 9), dreams, now=NOW)
        await PostgresEffectRecords(keyring).begin(tx, tools, 0, "create_booking")
        await PostgresOffers(keyring).put(tx, tools, 0, NewOffer("book_delivery", "to home", {"to": "home"}), valid_s=60)
        [venue] = await PostgresVenues().list(tx)
        await PostgresBookings(keyring).add(tx, who, venue, NOW + timedelta(days=1), 2, name="Alice")
        await PostgresReminders(keyring).add(tx, who, claim.turn_id, NOW, "call mum")
        await PostgresPriceWatchers().add(tx, who, claim.turn_id, sample_products()[0].id, 1.0)
        eaten = MealItem(food="tempeh", grams=100, kcal=190, protein_g=19, fat_g=11, carbs_g=9, fibre_g=0, at=NOW)
        await PostgresNutrition(keyring).log(tx, who, [eaten])
        await PostgresOrders(keyring).add(
            tx, who, OrderKind.RIDE, provider="gojek", reference="GJ-1", price=3.0, currency="USD", details={}
        )
        row = {"user_id": who, "session_id": session.id, "digest": b"0" * 16}
        await connection_of(tx).execute(
            "insert into door_samples (user_id, session_id, length, shown, whole, echo) "
            "values (%(user_id)s, %(session_id)s, 1, %(digest)s, %(digest)s, %(digest)s)",
            row,
        )
        await connection_of(tx).execute(
            "insert into calls (id, user_id, account_id, source, tier, model, tokens_in, tokens_out, cache_read, cache_write, "
            "cache_write_1h, micro_usd, is_estimated, cache_hit, outcome, latency_ms, day) "
            "values (%s, %s, 'shop', 'router', 'free', 'm', 1, 1, 0, 0, 0, 1, false, false, 'answered', 1, current_date)",
            [uuid4(), who],
        )
        await connection_of(tx).execute(
            "insert into audit (operator, role, face, action, subject_kind, subject, user_id, account_id) "
            "values ('olga', 'operator', 'console', 'content.open', 'conversation', 'c', %s, 'shop')",
            [who],
        )
        # As a process of the version before 0036 may still write it.
        await connection_of(tx).execute(
            b"insert into tool_offers (user_id, code, turn_id, tool, terms, valid_until) values (%s, 'CCCCCC', %s, 'pay', '', now())",
            [who, claim.turn_id],
        )
        replays = PostgresReplays(keyring)
        [source] = await replays.sources(tx, [claim.turn_id])
        await replays.add(tx, NewReplay(id=uuid4(), source=source, by="olga", model="m"))
    return who


async def rows_of(database: Database, who: UUID) -> dict[str, int]:
    """How many rows of each table that names users name this one."""
    async with database.begin() as tx:
        named = """select relname, attname from pg_class join pg_attribute on attrelid = pg_class.oid
            where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition and attname = 'user_id'"""
        tables = await (await connection_of(tx).execute(named)).fetchall()
        found = {}
        for table, column in tables:
            [[count]] = await (await connection_of(tx).execute(f"select count(*) from {table} where {column} = %s", [who])).fetchall()  # noqa: S608
            found[table] = count
    return found


@pytest.mark.usefixtures("shop")
async def test_every_row_that_names_a_forgotten_user_is_gone_or_has_a_reason_to_stay(database: Database, keyring: Keyring) -> None:
    alice, ben = await live(database, keyring, "alice"), await live(database, keyring, "ben")
    before = await rows_of(database, alice)
    assert [table for table, count in before.items() if not count] == [], "a table that no test fills proves nothing"
    async with database.begin() as tx:
        await PostgresUsers(keyring, PACK.user_tables).forget(tx, alice)
        await PostgresUsers(keyring, PACK.user_tables).forget(tx, alice)
    after = await rows_of(database, alice)
    assert sorted(table for table, count in after.items() if count) == sorted(STAYS)
    kept = {table: before[table] for table in STAYS} | {"erasures": before["erasures"] + 1}
    assert {table: count for table, count in after.items() if count} == kept, "the erasure is noted once"
    assert await rows_of(database, ben) == before, "and nobody else's"
    async with database.begin() as tx:
        assert await (await connection_of(tx).execute("select count(*) from dreams")).fetchone() == (1,)
        assert await PostgresCredits().audit(tx) == []
    assert await sealed_rows(database) == {ben}, "what was sealed for the erased user is deleted, and nothing of another"


async def sealed_rows(database: Database) -> set[UUID]:
    """The users for whom something sealed is stored."""
    query = """
        select user_id from data_keys
        union select user_id from inbox where length(envelope) > 0
        union select user_id from outbox where length(body) > 0
        union select inbox.user_id from run_events join inbox on inbox.turn_id = run_events.turn_id
            where coalesce(request, result) is not null
        union select user_id from sessions where length(seed) > 0 or erased is not null
        union select sessions.user_id from graph_messages join sessions on sessions.id = session_id
        union select sessions.user_id from graph_samples join sessions on sessions.id = session_id"""
    async with database.begin() as tx:
        return {row[0] for row in await (await connection_of(tx).execute(query)).fetchall()}


@pytest.mark.usefixtures("shop")
async def test_what_is_kept_is_counted(database: Database, keyring: Keyring) -> None:
    alice, people = await live(database, keyring, "alice"), PostgresUsers(keyring, PACK.user_tables)
    await live(database, keyring, "ben")
    async with database.begin() as tx:
        kept = await people.count_data(tx, alice)
    assert kept == UserDataCounts(
        facts=2, conversations=1, messages=1, records={"bookings": 1, "reminders": 1, "price_watchers": 1, "meals": 1, "orders": 1}
    )


async def test_a_deletion_and_a_message_at_once_do_not_wait_for_each_other(database: Database, keyring: Keyring) -> None:
    """Both take the channel before its user. The other way round, one of them would be the victim of a deadlock."""
    people, claim = PostgresUsers(keyring, PACK.user_tables), await new_claim(database, keyring, channel="alice")

    async def delete() -> None:
        async with database.begin() as tx:
            await people.forget(tx, claim.user_id)

    async with database.begin() as tx:
        user, _ = await people.find_or_create(tx, "shop", Platform.REST, "alice", state=UserState.ACTIVE)
        deletion = asyncio.create_task(delete())
        while not await waits_for_a_lock(database):  # noqa: ASYNC110  # the server rings no bell for it
            await asyncio.sleep(0.02)
        await connection_of(tx).execute("set local lock_timeout = '300ms'")
        receipt = await PostgresInbox(keyring).accept(tx, replace(claim.envelope, event_key="second"), uuid4())
    await deletion
    async with database.begin() as tx:
        assert (receipt.is_new, (await people.get(tx, user.id)).state) == (True, UserState.DELETED)


async def waits_for_a_lock(database: Database) -> bool:
    async with database.begin() as tx:
        asked = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
        [[is_waiting]] = await (await connection_of(tx).execute(asked)).fetchall()
    return bool(is_waiting)


async def test_somebody_new_on_a_forgotten_channel_inherits_nothing(database: Database, keyring: Keyring) -> None:
    people, channel = PostgresUsers(keyring, PACK.user_tables), UserChannel("shop", Platform.REST, "alice")
    claim = await new_claim(database, keyring, channel="alice")
    async with database.begin() as tx:
        await people.forget(tx, claim.user_id)
        assert await people.find(tx, channel) is None
        newcomer, is_new = await people.find_or_create(tx, channel.account, channel.platform, channel.sender_id, state=UserState.ACTIVE)
        assert (is_new, newcomer.id == claim.user_id, await people.count_data(tx, newcomer.id)) == (
            True,
            False,
            NOTHING,
        )


@pytest.mark.parametrize("account", [None, "shop"])
async def test_whoever_works_on_a_turn_of_somebody_who_is_held_cannot_end_it(
    database: Database, keyring: Keyring, account: str | None
) -> None:
    claim, other = await new_claim(database, keyring, channel="alice"), await new_claim(database, keyring, channel="ben")
    people, inbox = PostgresUsers(keyring, PACK.user_tables), PostgresInbox(keyring)
    async with database.begin() as tx:
        await people.hold(tx, claim.user_id, account="elsewhere")
        await inbox.hold(tx, claim)
        await people.hold(tx, claim.user_id, account=account)
    async with database.begin() as tx:
        await inbox.hold(tx, other)
        with pytest.raises(ClaimLost):
            await inbox.hold(tx, claim)


@pytest.mark.parametrize("account", [None, "shop"])
async def test_the_journal_of_others_keeps_no_summary_of_what_a_forgotten_user_said(
    database: Database, keyring: Keyring, account: str | None
) -> None:
    alice, ben = [await speak_in_room(database, keyring, sender) for sender in ("alice", "ben")]
    people = PostgresUsers(keyring, PACK.user_tables)
    async with database.begin() as tx:
        await (people.forget(tx, alice.user_id) if account is None else people.forget_in_account(tx, alice.user_id, account))
        rows = await connection_of(tx).execute(
            "select step, request is null, result is null, done_at is null from run_events "
            "where turn_id = %s and type <> 'message_received' order by id",
            [ben.turn_id],
        )
        kept = await rows.fetchall()
    assert kept == [("compact", True, True, False), ("call_model", True, False, False)], "that it was done stays, and his own answer"


async def speak_in_room(database: Database, keyring: Keyring, sender: str) -> Claim:
    """Have a turn in a room of several people, with a summary of what was said there so far."""
    event = MessageEvent(platform=Platform.REST, sender_id=sender, text="hello all")
    envelope = Envelope(event=event, account="shop", channel_id="room", event_key=sender)
    inbox, journal = PostgresInbox(keyring), PostgresJournal(keyring)
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.REST, sender, state=UserState.ACTIVE)
        accepted = await inbox.accept(tx, envelope, uuid4())
        assert accepted is not None
        claim = await inbox.claim(tx, accepted.turn_id)
        assert isinstance(claim, Claim)
        session = await PostgresSessions(keyring).current(tx, claim.conversation_id, user.id)
        for step in ("compact", "call_model"):
            await journal.begin(tx, claim, step, 0, b"what everyone said")
            await journal.finish(tx, claim, step, 0, b"in short", facts={})
        await PostgresInteractions().add(tx, claim, session.id, {"outcome": "answered"})
        await inbox.finish(tx, claim)
    return claim


LEFT = frozenset(
    [
        "audit",
        "bookings",
        "calls",
        "conversations",
        "credit_balances",
        "credit_entries",
        "data_keys",
        "dream_nights",
        "meals",
        "orders",
        "sessions",
        "tool_effects",
        "offers",
    ]
)
"""What names a user who left an account as before: their own, money, empty frames, and what was asked for in no turn of that account."""


@pytest.mark.usefixtures("shop")
async def test_who_leaves_one_account_leaves_their_own_behind_and_nothing_of_that_account(database: Database, keyring: Keyring) -> None:
    alice, ben = await live(database, keyring, "alice"), await live(database, keyring, "ben")
    people, elsewhere = PostgresUsers(keyring, PACK.user_tables), UserChannel("other", Platform.REST, "alice")
    async with database.begin() as tx:
        await people.link(tx, alice, elsewhere)
        [[turn_id]] = await (await connection_of(tx).execute("select turn_id from inbox where user_id = %s", [alice])).fetchall()
        memories = PostgresMemories(keyring)
        said = NewFact(text="has a dog", origin=FactOrigin.SAID, source_turn=turn_id)
        [fact] = await memories.change(tx, alice, [FactChange(fact=said)], now=NOW)
        assert await memories.learnt_in(tx, alice, "shop") == {fact.id}
        await connection_of(tx).execute("update dreams set evidence = %s where user_id = %s", [[fact.id], alice])
        assert await people.count_data(tx, alice, account="shop") == UserDataCounts(
            facts=1, conversations=1, messages=1, records={**NO_RECORDS, "reminders": 1, "price_watchers": 1}
        )
        assert await people.count_data(tx, alice, account="other") == NOTHING
    before, bens = await rows_of(database, alice), await rows_of(database, ben)
    async with database.begin() as tx:
        await people.forget_in_account(tx, alice, "shop")
        await people.forget_in_account(tx, alice, "shop")
        assert (await people.channels(tx, [alice]))[alice] == [elsewhere]
        assert (await people.get(tx, alice)).state is UserState.ACTIVE
        assert [fact.text for fact in await memories.all(tx, alice)] == ["vegetarian", "vegan"], "nobody knows where those come from"
        assert await (await connection_of(tx).execute("select count(*) from dreams where user_id = %s", [alice])).fetchone() == (0,)
    after = {table: count for table, count in (await rows_of(database, alice)).items() if count}
    noted = before["erasures"] + 2  # each time that they leave
    assert after == {
        **{table: before[table] for table in LEFT},
        "erasures": noted,
        "user_channels": 1,
        "user_memory": 2,
        "memory_versions": 1,
    }
    assert await rows_of(database, ben) == bens
