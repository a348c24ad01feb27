"""Messages that come at the same time are accepted together, and each caller gets its own result, as if it had been alone."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
import pytest

from hermes.ports.errors import InboxFull, StoreUnavailable
from hermes.ports.inbox import AcceptedMessage, Inbox
from hermes.ports.key_use import KeyForbids
from hermes.ports.runtime import Transactions
from hermes.ports.users import UserChannel, Users, UserState
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.testing.memory import MemoryInbox, MemoryUsers
from hermes.turn import Envelope, MessageEvent, Platform

CAP = 40


def written(sender: str, key: str, channel: str = "", *, platform: Platform = Platform.TELEGRAM, is_own: bool = False) -> Envelope:
    """A message of a sender, in a channel or in their own chat."""
    event = MessageEvent(platform=platform, sender_id=sender, text=f"{sender} says {key}")
    return Envelope(event=event, account="bali-bot", channel_id=channel or sender, event_key=key, is_own=is_own)


@pytest.fixture
def inbox(people: Users, keyring: Keyring, request: pytest.FixtureRequest) -> Inbox:
    if isinstance(people, MemoryUsers):
        return MemoryInbox(people=people, cap=CAP)
    return PostgresInbox(keyring, cap=CAP, database=request.getfixturevalue("database"))


async def meet(transactions: Transactions, people: Users, *senders: str, platform: Platform = Platform.TELEGRAM) -> None:
    async with transactions.begin() as tx:
        for sender in senders:
            await people.find_or_create(tx, "bali-bot", platform, sender, state=UserState.ACTIVE)


async def accept_all(
    transactions: Transactions, inbox: Inbox, messages: Sequence[Envelope], turns: Sequence[UUID] = (), *, defer_in_s: float | None = None
) -> list[AcceptedMessage | BaseException | None]:
    """Accept messages that come at the same time."""
    turns = turns or [uuid4() for _ in messages]
    given = zip(messages, turns, strict=True)
    waiting = (inbox.accept_now(transactions, message, turn, defer_in_s=defer_in_s) for message, turn in given)
    return await asyncio.gather(*waiting, return_exceptions=True)


def accepted_of(results: Sequence[AcceptedMessage | BaseException | None]) -> list[AcceptedMessage]:
    assert all(isinstance(result, AcceptedMessage) for result in results), results
    return [result for result in results if isinstance(result, AcceptedMessage)]


async def stored(database: Database, what: str = "count(*)", table: str = "inbox") -> int:
    async with database.once() as tx:
        row = await (await connection_of(tx).execute(f"select {what} from {table}".encode())).fetchone()  # noqa: S608  # the test's words
    assert row is not None
    return int(row[0])


async def test_messages_that_come_together_are_stored_in_few_transactions(database: Database, keyring: Keyring) -> None:
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, cap=1_000, database=database)
    senders = [f"s{number}" for number in range(100)]
    await meet(database, people, *senders)
    turns = [uuid4() for _ in senders]
    results = accepted_of(await accept_all(database, inbox, [written(each, each) for each in senders], turns, defer_in_s=0.0))
    assert [result.turn_id for result in results] == turns
    assert all(result.is_new and result.seq == 1 for result in results)
    assert await stored(database, "count(distinct xmin::text)") <= 4
    assert await stored(database, "count(distinct lock)", "procrastinate_jobs") == 100
    async with database.begin() as tx:
        opened = [await inbox.message_of(tx, turn) for turn in turns]
    assert [message and message.envelope.event.text for message in opened] == [f"{each} says {each}" for each in senders]


async def test_a_duplicate_beside_its_first_copy_stores_nothing(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await meet(transactions, people, "ada", "ben")
    messages = [written("ada", "one"), written("ben", "two"), written("ada", "one"), written("ada", "one")]
    first, other, *copies = accepted_of(await accept_all(transactions, inbox, messages))
    assert first.is_new
    assert other.is_new
    assert copies == [replace(first, is_new=False)] * 2
    async with transactions.begin() as tx:
        assert await inbox.waiting(tx) == 2


async def test_messages_of_one_conversation_keep_their_order(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await meet(transactions, people, "ada", "ben")
    room = "-100"
    messages = [written("ada" if number % 3 else "ben", f"k{number}", room) for number in range(20)]
    results = accepted_of(await accept_all(transactions, inbox, messages, defer_in_s=0.0))
    assert [result.seq for result in results] == list(range(1, 21))
    assert len({result.conversation_id for result in results}) == 1


async def test_jobs_are_deferred_in_the_order_of_the_conversation(database: Database, keyring: Keyring) -> None:
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, database=database)
    await meet(database, people, "ada")
    turns = [uuid4() for _ in range(12)]
    await accept_all(database, inbox, [written("ada", f"k{number}") for number in range(12)], turns, defer_in_s=0.0)
    async with database.once() as tx:
        rows = await (await connection_of(tx).execute("select args ->> 'id' from procrastinate_jobs order by id")).fetchall()
    assert [UUID(row[0]) for row in rows] == turns


async def test_a_message_that_cannot_be_stored_harms_no_other(database: Database, keyring: Keyring) -> None:
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, database=database)
    await meet(database, people, "ada", "ben", "cleo")
    bad = written("ben", "no\x00text")
    results = await accept_all(database, inbox, [written("ada", "one"), bad, written("cleo", "two"), written("ada", "three")])
    assert isinstance(results[1], psycopg.DataError)
    assert [result.seq for result in accepted_of([results[0], *results[2:]])] == [1, 1, 2]
    assert await stored(database) == 3


async def test_the_cap_is_reached_in_the_middle_of_a_batch(database: Database, keyring: Keyring) -> None:
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, cap=5, database=database)
    await meet(database, people, "ada", "ben")
    await accept_all(database, inbox, [written("ada", "first")])
    messages = [written("ben", f"k{number}") for number in range(7)]
    messages.insert(5, written("ada", "first"))
    results = await accept_all(database, inbox, messages)
    assert [type(result) for result in results] == [*[AcceptedMessage] * 4, InboxFull, AcceptedMessage, InboxFull, InboxFull]
    again = results[5]
    assert isinstance(again, AcceptedMessage)
    assert not again.is_new, "a duplicate is no new message, and has a place"
    assert await stored(database) == 5


async def test_a_stranger_beside_users_is_not_stored(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    await meet(transactions, people, "ada")
    stranger, known = await accept_all(transactions, inbox, [written("nobody", "one"), written("ada", "two")])
    assert stranger is None
    assert isinstance(known, AcceptedMessage)
    async with transactions.begin() as tx:
        assert await inbox.waiting(tx) == 1


async def test_each_refusal_reaches_its_own_caller(transactions: Transactions, people: Users, inbox: Inbox) -> None:
    """An API key may not speak for a person; and a private conversation is its user's own."""
    await meet(transactions, people, "ada", "ben", platform=Platform.REST)
    async with transactions.begin() as tx:
        ada, _ = await people.find_or_create(tx, "bali-bot", Platform.REST, "ada", state=UserState.ACTIVE)
        await people.link(tx, ada.id, UserChannel("bali-bot", Platform.WHATSAPP, "62811"))
    own, intruder = (written(each, f"by {each}", "ben", platform=Platform.REST, is_own=each == "ben") for each in ("ben", "ada"))
    [first] = accepted_of(await accept_all(transactions, inbox, [own]))
    turns = [uuid4(), uuid4()]
    refused, elsewhere = await asyncio.gather(
        inbox.accept_now(transactions, written("ada", "as-a-person", platform=Platform.REST), turns[0], refuses_people=True),
        inbox.accept_now(transactions, intruder, turns[1]),
        return_exceptions=True,
    )
    assert isinstance(refused, KeyForbids)
    assert isinstance(elsewhere, AcceptedMessage)
    assert elsewhere.conversation_id != first.conversation_id
    async with transactions.begin() as tx:
        message = await inbox.message_of(tx, turns[1])
    assert message is not None
    assert message.envelope.channel_id == "channel:ben"


async def test_no_message_waits_for_the_lock_of_another_ones_conversation(database: Database, keyring: Keyring) -> None:
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, database=database)
    await meet(database, people, "ada", "ben", "cleo")
    accepted_of(await accept_all(database, inbox, [written(each, f"{each}-0") for each in ("ada", "ben", "cleo")]))
    async with database.begin() as tx:
        await connection_of(tx).execute("select from conversations where channel_id = 'ben' for update")
        waits = asyncio.create_task(inbox.accept_now(database, written("ben", "ben-1"), uuid4()))
        others = [written(each, f"{each}-{number}") for number in range(1, 20) for each in ("ada", "cleo")]
        async with asyncio.timeout(5):
            accepted_of(await accept_all(database, inbox, others))
        assert not waits.done()
    async with asyncio.timeout(5):
        last = await waits
    assert last is not None
    assert (last.seq, last.is_new) == (2, True)


async def test_batches_that_lock_the_same_rows_in_another_order_do_not_deadlock(database: Database, keyring: Keyring) -> None:
    """As two web processes would."""
    people, webs = PostgresUsers(keyring), [PostgresInbox(keyring, cap=10_000, database=database) for _ in range(2)]
    senders = [f"s{number}" for number in range(30)]
    await meet(database, people, *senders)
    rooms = [written(each, f"room-{each}", f"-{each}") for each in senders]
    for number in range(5):
        copies = [replace(each, event_key=f"{each.event_key}-{number}") for each in rooms]
        found = await asyncio.gather(
            accept_all(database, webs[0], copies), accept_all(database, webs[1], [replace(each, thread="2") for each in reversed(copies)])
        )
        counted = Counter(result.is_new for result in accepted_of([*found[0], *found[1]]))
        assert counted == {True: 30, False: 30}
    assert await stored(database) == 150


async def test_without_the_database_every_sender_is_told_at_once(database_url: str, database: Database, keyring: Keyring) -> None:
    await meet(database, PostgresUsers(keyring), *(f"s{number}" for number in range(20)))
    async with open_database(database_url, connect_timeout_s=1.0) as other:
        inbox = PostgresInbox(keyring, database=other)
        messages = [written(f"s{number}", f"k{number}") for number in range(20)]
        accepted_of(await accept_all(other, inbox, messages))
        await other.pool.close()
        async with asyncio.timeout(5):
            results = await accept_all(other, inbox, [replace(each, event_key=f"{each.event_key}-again") for each in messages])
    assert {type(result) for result in results} == {StoreUnavailable}
    assert await stored(database) == 20


async def test_messages_that_wait_for_another_transaction_hold_up_no_others(database: Database, keyring: Keyring) -> None:
    """A web process may hang in the middle of a sign-up: its rows are there, and not committed."""
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, cap=CAP, database=database)
    senders = ("ada", "ben", "cleo", "dora", "eve")
    await meet(database, people, *senders)
    accepted_of(await accept_all(database, inbox, [written(each, f"{each}-0") for each in senders]))
    waiting, others = list[asyncio.Task[AcceptedMessage | None]](), list[asyncio.Task[AcceptedMessage | None]]()

    def accept(message: Envelope) -> asyncio.Task[AcceptedMessage | None]:
        return asyncio.create_task(inbox.accept_now(database, message, uuid4()))

    async with database.begin() as tx:
        assert await inbox.accept(tx, written("ada", "room-0", "-room"), uuid4()) is not None
        for number, sender in enumerate(("ben", "dora")):
            waiting.append(accept(written(sender, f"room-{sender}", "-room")))
            others += [accept(written(each, f"{each}-{number + 1}")) for each in ("cleo", "eve")]
            await asyncio.sleep(0.1)
        done, _ = await asyncio.wait(others, timeout=5.0)
        assert done == set(others)
        assert not any(each.done() for each in waiting)
    assert all(result is not None and result.is_new for result in await asyncio.gather(*waiting, *others))
    assert await stored(database) == len(senders) + 1 + len(waiting) + len(others)
