"""Calls and the journal by months: where rows lie, what is dropped and rewritten, and what becomes of a database from before."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hermes.ops.months import MIN_CALLS_DAYS, MonthKeeper
from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.database_image import connect_for_copy, load_image, open_empty_database, open_snapshot, run_first_migrations
from hermes.stores.postgres.migrate import migrate, own_migrations
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.months import PostgresMonths
from hermes.time_ids import new_time_id, shorten_id

NOW = datetime.now(UTC)
MONTHS_CAME = "0040"


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def keeper(database: Database) -> MonthKeeper:
    return MonthKeeper(database, PostgresMonths(), journal_days=30, calls_days=400, batch_size=2)


def time_id(at: datetime) -> UUID:
    """An id that was made at that time."""
    return UUID(int=int(at.timestamp() * 1000) << 80 | new_time_id().int & ((1 << 80) - 1))


def month(table: str, at: datetime) -> str:
    return f"{table}_{at:%Y_%m}"


async def add_call(connection: psycopg.AsyncConnection[Any], at: datetime, call_id: UUID | None = None) -> UUID:
    call_id = call_id or time_id(at)
    await connection.execute("insert into accounts values ('shop') on conflict do nothing")
    await connection.execute(
        "insert into calls (id, account_id, source, tier, model, tokens_in, tokens_out, cache_read, cache_write, cache_write_1h, micro_usd,"
        " is_estimated, cache_hit, outcome, latency_ms, day, created_at)"
        " values (%s, 'shop', 'router', 'pro', 'm', 1, 2, 0, 0, 0, 5, false, false, 'answered', 1, %s, %s)",
        [call_id, at.date(), at],
    )
    return call_id


async def add_turn(connection: psycopg.AsyncConnection[Any], at: datetime, *, turn_id: UUID | None = None, kilobytes: int = 1) -> UUID:
    """A turn that has ended, with one effect of so much content."""
    turn_id = turn_id or time_id(at)
    await connection.execute("insert into accounts values ('shop') on conflict do nothing")
    [(user,)] = await fetch(
        connection, "insert into users (id, state, tier, referral_code) values (%(id)s, 'active', 'free', %(id)s) returning id", id=uuid4()
    )
    [(conversation,)] = await fetch(
        connection,
        "insert into conversations (account_id, platform, channel_id, user_id) values ('shop', 'rest', %s, %s) returning id",
        str(user),
        user,
    )
    await connection.execute(
        "insert into inbox (turn_id, account_id, event_key, conversation_id, user_id, seq, envelope, state, ended_at)"
        " values (%s, 'shop', %s, %s, %s, 1, 'x', 'done', %s)",
        [turn_id, str(turn_id), conversation, user, at],
    )
    await connection.execute(
        "insert into run_events (turn_id, step, index, type, attempt, request, result, facts, started_at, done_at)"
        " values (%(turn)s, 'call_model', 0, 'effect', 1, %(content)s, 'answered', '{\"us\": 7}', %(at)s, %(at)s)",
        {"turn": turn_id, "content": b"\x01" * 1024 * kilobytes, "at": at},
    )
    return turn_id


async def fetch(connection: psycopg.AsyncConnection[Any], query: str, *values: object, **named: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query.encode(), named or values)).fetchall()


async def places(connection: psycopg.AsyncConnection[Any], table: str, key: str) -> dict[UUID, str]:
    """In which partition each row lies."""
    return dict(await fetch(connection, f"select {key}, tableoid::regclass::text from {table}"))  # noqa: S608  # names of this module


async def months_of(connection: psycopg.AsyncConnection[Any], table: str) -> list[str]:
    found = await fetch(connection, "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass order by 1", table)
    return [name for (name,) in found if name[-1].isdigit()]


async def test_this_month_and_two_more_are_there_from_the_beginning(connection: psycopg.AsyncConnection[Any], keeper: MonthKeeper) -> None:
    names = [f"calls_{at:%Y_%m}" for at in three_months(NOW)]
    assert await months_of(connection, "calls") == names
    await keeper.keep(NOW)
    assert await months_of(connection, "calls") == names, "nothing is made twice"
    await keeper.keep(NOW + timedelta(days=31))
    assert len(await months_of(connection, "calls")) == len(await months_of(connection, "run_events")) == 4


def three_months(at: datetime) -> list[datetime]:
    first = at.replace(day=1)
    return [first, (first + timedelta(days=32)).replace(day=1), (first + timedelta(days=63)).replace(day=1)]


async def test_a_row_lies_in_the_month_of_its_id_and_a_call_is_stored_once(
    connection: psycopg.AsyncConnection[Any], database: Database
) -> None:
    turn_id = await add_turn(connection, NOW)
    call = ModelCall(
        id=new_time_id(),
        day=NOW.date(),
        account_id="shop",
        source=CallSource.ROUTER,
        tier="pro",
        model="m",
        outcome=CallOutcome.ANSWERED,
        latency_ms=1,
    )
    async with database.begin() as tx:
        assert await PostgresModelCalls().add(tx, call)
        assert not await PostgresModelCalls().add(tx, call), "the same call, as after a lost commit"
    assert await places(connection, "calls", "id") == {call.id: month("calls", NOW)}
    assert await places(connection, "run_events", "turn_id") == {turn_id: month("run_events", NOW)}
    assert shorten_id(turn_id) == str(turn_id)[:13]


async def test_old_months_of_calls_are_dropped_whole_and_old_rows_from_before_are_deleted(
    connection: psycopg.AsyncConnection[Any], keeper: MonthKeeper
) -> None:
    kept, old = [await add_call(connection, NOW), await add_call(connection, NOW, uuid4())], NOW - timedelta(days=500)
    for _ in range(5):
        await add_call(connection, old, uuid4())
    later = NOW + timedelta(days=440)
    await keeper.keep(NOW)
    assert set(await places(connection, "calls", "id")) == set(kept)
    await keeper.keep(later)
    assert await places(connection, "calls", "id") == {}
    assert (await months_of(connection, "calls"))[0] == f"calls_{later - timedelta(days=400):%Y_%m}"
    assert month("run_events", NOW) in await months_of(connection, "run_events"), "the facts of the journal stay"


async def test_calls_are_kept_as_long_as_budgets_are_counted_from_them(
    connection: psycopg.AsyncConnection[Any], database: Database
) -> None:
    recent = await add_call(connection, NOW - timedelta(days=MIN_CALLS_DAYS - 1))
    await MonthKeeper(database, PostgresMonths(), journal_days=30, calls_days=1).keep(NOW)
    assert await fetch(connection, "select id from calls") == [(recent,)]


async def test_a_month_of_the_journal_is_rewritten_once_its_content_is_gone(
    connection: psycopg.AsyncConnection[Any], keeper: MonthKeeper
) -> None:
    table, turns = month("run_events", NOW), [await add_turn(connection, NOW) for _ in range(50)]
    size = "select pg_relation_size(%s::regclass)"
    [(full,)] = await fetch(connection, size, table)
    later = three_months(NOW)[1] + timedelta(days=31)
    await keeper.keep(later)
    assert await fetch(connection, size, table) == [(full,)], "its content is still there"
    await connection.execute("update run_events set request = null, result = null")
    await keeper.keep(NOW + timedelta(days=1))
    [(emptied,)] = await fetch(connection, size, table)
    assert emptied >= full, "a month that has not ended is not touched"
    await keeper.keep(later)
    [(rewritten,)] = await fetch(connection, size, table)
    assert rewritten < full / 3
    assert await fetch(connection, "select turn_id, facts from run_events order by 1") == [(turn, {"us": 7}) for turn in sorted(turns)]


async def test_a_lock_that_is_not_given_soon_is_not_waited_for(
    connection: psycopg.AsyncConnection[Any], database: Database, database_url: str
) -> None:
    keeper = MonthKeeper(database, PostgresMonths(lock_ms=50), journal_days=30, calls_days=400)
    async with await psycopg.AsyncConnection.connect(database_url) as turn:
        await turn.execute("select from calls")  # held until the end of its transaction, as by a backup
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            await keeper.keep(NOW + timedelta(days=440))
    await keeper.keep(NOW + timedelta(days=440))
    assert month("calls", NOW) not in await months_of(connection, "calls")


async def test_rows_that_came_before_their_month_move_into_it(connection: psycopg.AsyncConnection[Any], keeper: MonthKeeper) -> None:
    old = NOW - timedelta(days=90)
    call_id, turn_id = await add_call(connection, old), await add_turn(connection, old)
    assert (await places(connection, "calls", "id"))[call_id] == "calls_rest"
    await keeper.keep(NOW)
    assert await places(connection, "calls", "id") == {call_id: month("calls", old)}
    assert await places(connection, "run_events", "turn_id") == {turn_id: month("run_events", old)}


async def test_a_database_from_before_keeps_every_row_and_its_statements(empty_database_url: str) -> None:
    before = [step for step in own_migrations() if step.name < MONTHS_CAME]
    async with connect_for_copy(empty_database_url, "test", 5) as connection:
        await run_first_migrations(connection, before)
        low, high = UUID(int=7 << 100 | 4 << 76), UUID(int=0xA7 << 120 | 4 << 76)
        turns = [await add_turn(connection, NOW, turn_id=each) for each in (low, high)]
        calls = [await add_call(connection, NOW, each) for each in (low, high)]
        rows = await fetch(connection, "select * from run_events order by id"), await fetch(connection, "select * from calls order by id")
    await migrate(empty_database_url)
    async with connect_for_copy(empty_database_url, "test", 5) as connection:
        assert rows == (
            await fetch(connection, "select * from run_events order by id"),
            await fetch(connection, "select * from calls order by id"),
        )
        assert await places(connection, "run_events", "turn_id") == {turns[0]: "run_events_rest", turns[1]: "run_events_before"}
        assert await places(connection, "calls", "id") == {calls[0]: "calls_rest", calls[1]: "calls_before"}
        new = await add_turn(connection, NOW)
        assert await fetch(connection, "select id from run_events where turn_id = %s", new) == [(3,)], "numbers go on"
        await connection.execute("delete from inbox where turn_id = any(%s)", [[*turns, new]])
        assert await fetch(connection, "select from run_events") == [], "the journal goes with its turns, in every partition"


async def test_a_copy_has_the_months_of_its_source(
    connection: psycopg.AsyncConnection[Any], database_url: str, empty_database_url: str
) -> None:
    old = NOW - timedelta(days=90)
    await connection.execute("update schema_migrations set applied_at = applied_at - interval '100 days'")
    call_id, turn_id = await add_call(connection, old), await add_turn(connection, old)
    async with open_snapshot(database_url) as snapshot, open_empty_database(empty_database_url) as target:
        assert {"calls", "run_events"} <= {table.name for table in snapshot.facts.tables}
        assert not [table.name for table in snapshot.facts.tables if table.name[-2:].isdigit() or "_before" in table.name]
        report = await load_image(target, snapshot)
        assert (report.tables["calls"].rows, report.tables["run_events"].rows) == (1, 1)
    async with connect_for_copy(empty_database_url, "test", 5) as copy:
        assert await places(copy, "calls", "id") == {call_id: month("calls", old)}
        assert await places(copy, "run_events", "turn_id") == {turn_id: month("run_events", old)}


async def test_every_month_has_every_index_of_its_table(connection: psycopg.AsyncConnection[Any]) -> None:
    counts = await fetch(
        connection,
        "select inhparent::regclass::text, inhrelid::regclass::text,"
        " (select count(*) from pg_index where indrelid = inhrelid and indisvalid and (indisprimary <= (inhparent = 'calls'::regclass)))"
        " from pg_inherits where inhparent in ('calls'::regclass, 'run_events'::regclass)",
    )
    assert len(counts) == 10
    assert {(table, count) for table, _, count in counts} == {("calls", 9), ("run_events", 3)}


async def test_figures_over_all_months_are_collected_once_a_day(connection: psycopg.AsyncConnection[Any], database: Database) -> None:
    months = PostgresMonths(analyze_from_rows=2)
    await add_call(connection, NOW)
    for rows, is_due in ((1, False), (2, True)):
        await connection.execute("select pg_stat_force_next_flush()")
        async with database.begin() as tx:
            assert await months.analyze(tx, NOW) is is_due, rows
            await connection_of(tx).execute("select pg_stat_force_next_flush()")
        await add_call(connection, NOW)
    async with database.begin() as tx:
        assert not await months.analyze(tx, NOW)
        assert await months.analyze(tx, NOW + timedelta(days=2))
