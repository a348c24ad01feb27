"""The stream of events: in one order, resumed after a cursor, nothing skipped and nothing twice. On both adapters, as far as memory can."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg import AsyncConnection

from hermes.ports.events import (
    ALL_EVENTS,
    EVENT_NAMES,
    STREAM_START,
    EventCursor,
    EventFilter,
    EventSource,
    OperationsEvent,
    OperationsEvents,
    event_name,
    stored_type,
)
from hermes.ports.inbox import Inbox
from hermes.ports.processes import ProcessBeat, ProcessRole
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Journal, JournalNote
from hermes.ports.users import FleetEventKind, SwapReason
from hermes.stores.postgres.agents import PostgresAgents
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.events import PostgresOperationsEvents
from hermes.stores.postgres.journal import PostgresJournal
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.testing.memory import MemoryInbox, MemoryJournal, MemoryOperationsEvents
from tests.contract.turns import Turns, on_postgres
from tests.test_contract_names import names


@pytest.fixture
def journal(inbox: Inbox, keyring: Keyring) -> Journal:
    return MemoryJournal(inbox=inbox) if isinstance(inbox, MemoryInbox) else PostgresJournal(keyring)


@pytest.fixture
def stream(journal: Journal) -> OperationsEvents:
    return MemoryOperationsEvents(journal) if isinstance(journal, MemoryJournal) else PostgresOperationsEvents()


async def read_all(
    transactions: Transactions, stream: OperationsEvents, after: EventCursor = STREAM_START, *, expected: int = 0
) -> list[OperationsEvent]:
    """All events after a cursor, page by page: at least `expected`, because a transaction of the server itself may hold the stream back."""
    found: list[OperationsEvent] = []
    async with asyncio.timeout(10):
        while True:
            async with transactions.begin() as tx:
                page = await stream.read(tx, after, limit=2)
            found += page.events
            after = page.next
            if page.is_last and len(found) >= expected:
                return found


async def test_events_come_once_in_their_order_and_effects_when_they_end(
    turns: Turns, transactions: Transactions, journal: Journal, stream: OperationsEvents
) -> None:
    one, two = await turns.new_claim(), await turns.new_claim(channel="c2")
    async with transactions.begin() as tx:
        assert await journal.begin(tx, one, "call_model", 0, b"x")
        notes = [JournalNote("user_resolved", {"tier": "free"}), JournalNote("credit_reserved", {}), JournalNote("soul_loaded", {})]
        await journal.note(tx, two, notes)
    async with transactions.begin() as tx:
        await journal.finish(tx, one, "call_model", 0, b"y", facts={"model": "echo"})
    async with transactions.begin() as tx:
        await journal.add(tx, two.turn_id, "response_delivered", {"part": 0})
    events = await read_all(transactions, stream, expected=5)
    assert [(event.turn_id, event.name) for event in events] == [
        (two.turn_id, "user.resolved"),
        (two.turn_id, "credit.reserved"),
        (two.turn_id, "soul.loaded"),
        (one.turn_id, "model.called"),
        (two.turn_id, "delivery.sent"),
    ]
    assert (events[3].source, events[3].account, events[3].agent, events[3].facts) == (
        EventSource.TURN,
        "shop",
        "hermes",
        {"model": "echo"},
    )
    assert sorted(event.cursor for event in events) == [event.cursor for event in events]
    for at, event in enumerate(events):
        assert await read_all(transactions, stream, event.cursor) == events[at + 1 :]
    async with transactions.begin() as tx:
        assert await stream.read_turn(tx, two.turn_id, STREAM_START) == [*events[:3], events[4]]
        assert await stream.read_turn(tx, two.turn_id, events[2].cursor) == [events[4]]
        end = await stream.end(tx)
    assert await read_all(transactions, stream, end) == []


@on_postgres
async def test_an_event_that_commits_late_is_not_skipped(
    turns: Turns, database: Database, journal: Journal, stream: OperationsEvents, database_url: str
) -> None:
    claim, seen, cursor = await turns.new_claim(), list[str](), STREAM_START

    async def look() -> None:
        nonlocal cursor
        async with database.begin() as tx:
            page = await stream.read(tx, cursor, limit=10)
        seen.extend(event.type for event in page.events)
        cursor = page.next

    async with await AsyncConnection.connect(database_url) as slow:
        await journal.add(slow, claim.turn_id, "early_number", {})
        async with database.begin() as tx:
            await journal.add(tx, claim.turn_id, "late_number", {})
        await look()
        await look()
        assert seen == []
        async with database.begin() as tx:  # a turn's own events are read at once, whoever else is writing
            assert [event.type for event in await stream.read_turn(tx, claim.turn_id, STREAM_START)] == ["late_number"]
            assert await stream.read_turn(tx, claim.turn_id, STREAM_START, only_settled=True) == []
        await slow.commit()
    async with asyncio.timeout(10):
        while len(seen) < 2:
            await look()
    await look()
    assert seen == ["early_number", "late_number"]


@on_postgres
@pytest.mark.parametrize("statement", ["note", "note_failed", "finish", "claim", "add", "swap", "beat", "chore"])
async def test_no_statement_that_writes_events_is_skipped_when_it_commits_late(
    statement: str, turns: Turns, database: Database, journal: Journal, database_url: str
) -> None:
    stream = PostgresOperationsEvents()
    claim, other = await turns.new_claim(), await turns.new_claim(channel="c2")
    async with database.begin() as tx:
        await journal.begin(tx, claim, "call_model", 0, b"asked")
    because = SwapReason(kind=FleetEventKind.ADAPTER_SWAPPED, by="ada", reason="an outage")
    beat = ProcessBeat(process_id=uuid4(), role=ProcessRole.WORKER, host="here", pid=1, version="1")
    write = {
        "note": lambda tx: journal.note(tx, claim, [JournalNote("user_resolved", {})]),
        "note_failed": lambda tx: journal.note_failed(tx, claim, [JournalNote("attempt_failed", {})]),
        "finish": lambda tx: journal.finish(tx, claim, "call_model", 0, b"answered", facts={}),
        "claim": lambda tx: turns.inbox.claim(tx, claim.turn_id),
        "add": lambda tx: journal.add(tx, claim.turn_id, "turn_stopped", {}),
        "swap": lambda tx: PostgresAgents().point(tx, "hermes", adapter="green", cwd=None, expected_epoch=0, because=because),
        "beat": lambda tx: PostgresProcesses().beat(tx, beat),
        "chore": lambda tx: PostgresChores().take(tx, "dream", 1, lease_s=60, holder=uuid4()),
    }[statement]
    seen, cursor = list[str](), STREAM_START
    async with await AsyncConnection.connect(database_url) as slow:
        await write(slow)
        async with database.begin() as tx:
            await journal.add(tx, other.turn_id, "response_delivered", {})
        for _ in range(3):
            async with database.begin() as tx:
                page = await stream.read(tx, cursor, limit=10)
            seen += [event.name for event in page.events]
            cursor = page.next
        assert seen == []
        await slow.commit()
    rest = await read_all(database, stream, cursor, expected=2)
    assert len(rest) == 2
    assert rest[1].name == "delivery.sent"


@on_postgres
async def test_the_fleet_and_the_processes_are_in_the_same_stream(
    turns: Turns, transactions: Transactions, journal: Journal, stream: OperationsEvents
) -> None:
    claim, process = await turns.new_claim(), uuid4()
    async with transactions.begin() as tx:
        because = SwapReason(kind=FleetEventKind.ADAPTER_SWAPPED, by="ada", reason="an outage")
        await PostgresAgents().point(tx, "hermes", adapter="green", cwd=None, expected_epoch=0, because=because)
    async with transactions.begin() as tx:
        await journal.add(tx, claim.turn_id, "memory_saved", {"added": 1, "keys": ["diet"]})
    async with transactions.begin() as tx:
        said = {"outcome": "rejected", "reason": "can't parse entities: unsupported start tag <ada's diary>"}
        await journal.add(tx, claim.turn_id, "delivery_failed", said)
    async with transactions.begin() as tx:
        await connection_of(tx).execute("insert into process_events (type, process) values ('process_restarted', %s)", [process])
    events = await read_all(transactions, stream, expected=4)
    assert [(event.source, event.name, event.agent, event.process) for event in events] == [
        (EventSource.FLEET, "adapter.swapped", "hermes", None),
        (EventSource.TURN, "memory.saved", "hermes", None),
        (EventSource.TURN, "delivery.failed", "hermes", None),
        (EventSource.PROCESS, "process.restarted", None, process),
    ]
    assert events[0].facts == {"from": None, "to": "green", "by": "ada", "reason": "an outage", "epoch": 1}
    assert events[1].public_facts == {"added": 1}
    assert events[2].public_facts == {"outcome": "rejected"}


@on_postgres
async def test_a_chore_that_another_process_takes_is_an_event(transactions: Transactions, stream: OperationsEvents) -> None:
    one, two = uuid4(), uuid4()
    async with transactions.begin() as tx:
        await connection_of(tx).execute("insert into chores (name, held_until) values ('dream', now())")
    for holder in (one, one, two, None, two):
        async with transactions.begin() as tx:
            await connection_of(tx).execute("update chores set holder = %s, epoch = epoch + 1, taken_at = now()", [holder])
    async with transactions.begin() as tx:
        await connection_of(tx).execute("update chores set held_until = now()")
    events = await read_all(transactions, stream, expected=3)
    assert [(event.name, event.process, event.facts["chore"]) for event in events] == [
        ("chore.taken", one, "dream"),
        ("chore.taken", two, "dream"),
        ("chore.taken", two, "dream"),
    ]


@on_postgres
async def test_a_cursor_of_another_database_goes_on_by_its_number(
    turns: Turns, transactions: Transactions, journal: Journal, stream: OperationsEvents
) -> None:
    claim = await turns.new_claim()
    for type_ in ("one", "two"):
        async with transactions.begin() as tx:
            await journal.add(tx, claim.turn_id, type_, {})
    first, _ = await read_all(transactions, stream, expected=2)
    async with transactions.begin() as tx:  # as a copy into a server with greater and one with smaller transaction numbers
        await connection_of(tx).execute("update run_events set xid = '3'")
        await connection_of(tx).execute(
            "insert into database_copies (kind, source, digest, taken_at) values ('moved', 'elsewhere', '0', now())"
        )
    async with transactions.begin() as tx:
        await journal.add(tx, claim.turn_id, "three", {})
    for xid in (first.cursor.xid + 10**9, first.cursor.xid):
        old = EventCursor(xid, first.cursor.number)
        assert [event.type for event in await read_all(transactions, stream, old, expected=2)] == ["two", "three"]


def test_a_cursor_is_read_as_it_is_written() -> None:
    assert EventCursor.parse("742-1803") == EventCursor(742, 1803)
    assert str(EventCursor(742, 1803)) == "742-1803"
    assert EventCursor(9, 5) < EventCursor(10, 1)
    for wrong in ("", "742", "a-1", "742-1803 ", "-1-2", f"{2**63}-0"):
        with pytest.raises(ValueError, match="is not a cursor"):
            EventCursor.parse(wrong)


def test_a_filter_matches_every_field_that_is_set() -> None:
    turn_id = uuid4()
    event = OperationsEvent(
        cursor=EventCursor(1, 1), source=EventSource.TURN, type="llm_called", at=datetime.now(UTC), agent="bali", turn_id=turn_id
    )
    assert ALL_EVENTS.matches(event)
    assert EventFilter(agent="bali", turn_id=turn_id, names=frozenset({"model.called"})).matches(event)
    assert not EventFilter(agent="hermes").matches(event)
    assert not EventFilter(turn_id=uuid4()).matches(event)
    assert not EventFilter(names=frozenset({"tool.invoked"})).matches(event)


def test_the_table_and_the_reference_have_every_event() -> None:
    stored = names()["event"] - {"budget_threshold", "process_died"}  # alerts, in no journal
    assert stored - EVENT_NAMES.keys() == set()
    assert len(set(EVENT_NAMES.values())) == len(EVENT_NAMES)
    page = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE)) == set(EVENT_NAMES.values())


def test_a_type_that_the_table_does_not_know_has_a_name_by_rule() -> None:
    assert (event_name("process_gone_away"), stored_type("process.gone_away")) == ("process.gone_away", "process_gone_away")
    assert (event_name("llm_called"), stored_type("model.called")) == ("model.called", "llm_called")
