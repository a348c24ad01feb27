"""Statements of many callers go to PostgreSQL together, and each caller gets its own rows, as if its statement had been alone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import psycopg
import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import Database, connection_of, execute, fetch_shared, fetch_value, fetch_values, open_database
from hermes.stores.postgres.shared_commits import CLOSE_S, MAX_STATEMENTS, SharedCommits, SharingTransactions, open_sharing
from hermes.stores.postgres.statement_line import number_placeholders

ADD = b"insert into counted (number, transaction) values (%(number)s, pg_current_xact_id()::text) returning number, %(note)s::text"


@pytest.fixture
async def database(empty_database_url: str) -> AsyncIterator[Database]:
    async with open_database(empty_database_url) as database:
        async with database.once() as tx:
            await execute(tx, b"create table counted (number integer primary key, transaction text not null)")
        yield database


@pytest.fixture
async def sharing(database: Database) -> AsyncIterator[SharingTransactions]:
    async with open_sharing(database) as sharing:
        yield sharing


async def add(sharing: SharingTransactions, number: int, note: str | None = None) -> tuple[int, str | None]:
    async with sharing.once() as tx:
        [(number, note)] = await fetch_shared(tx, ADD, {"number": number, "note": note}, order=str(number))
    return number, note


async def count(database: Database, what: bytes = b"count(*)") -> int:
    async with database.once() as tx:
        found: int = await fetch_value(tx, b"select " + what + b" from counted")
        return found


async def test_statements_that_wait_together_are_committed_together(database: Database, sharing: SharingTransactions) -> None:
    notes = [None if number % 3 else f"note {number} ä" for number in range(4 * MAX_STATEMENTS)]
    rows = await asyncio.gather(*(add(sharing, number, note) for number, note in enumerate(notes)))
    assert rows == list(enumerate(notes))
    assert await count(database) == 4 * MAX_STATEMENTS
    assert await count(database, b"count(distinct transaction)") <= 8


async def test_a_statement_is_committed_when_its_caller_goes_on(database: Database, sharing: SharingTransactions) -> None:
    for number in range(5):
        assert await add(sharing, number) == (number, None)
        assert await count(database) == number + 1
    assert await count(database, b"count(distinct transaction)") == 5


async def test_a_statement_that_fails_fails_for_its_own_caller_alone(database: Database, sharing: SharingTransactions) -> None:
    await add(sharing, 5)
    numbers = [number % 8 for number in range(10)]  # 5 is there, and 0 and 1 come twice
    found = await asyncio.gather(*(add(sharing, number) for number in numbers), return_exceptions=True)
    assert [type(one) for one in found].count(psycopg.errors.UniqueViolation) == 3
    assert isinstance(found[5], psycopg.errors.UniqueViolation)
    assert await count(database) == 8
    assert await add(sharing, 9) == (9, None)


async def test_a_value_that_cannot_be_written_fails_before_anything_is_sent(database: Database, sharing: SharingTransactions) -> None:
    found = await asyncio.gather(add(sharing, 1), add(sharing, 2, object()), add(sharing, 3), return_exceptions=True)  # type: ignore[arg-type]
    assert [found[0], found[2]] == [(1, None), (3, None)]
    assert isinstance(found[1], psycopg.ProgrammingError)
    assert await count(database) == 2


async def test_a_statement_that_waits_for_a_lock_keeps_no_other_waiting(database: Database, sharing: SharingTransactions) -> None:
    change = b"update counted set transaction = 'new' where number = %(number)s returning number"

    async def renew(number: int) -> list[tuple[int]]:
        async with sharing.once() as tx:
            return await fetch_shared(tx, change, {"number": number})

    await asyncio.gather(*(add(sharing, number) for number in range(4)))
    async with database.begin() as holder:
        await execute(holder, b"select from counted where number = 2 for update")
        tasks = [asyncio.create_task(renew(number)) for number in range(4)]
        for task in (tasks[0], tasks[1], tasks[3]):
            assert len(await asyncio.wait_for(task, 5.0)) == 1
        assert not tasks[2].done()
    assert await tasks[2] == [(2,)]
    assert await count(database, b"count(*) filter (where transaction = 'new')") == 4


async def test_a_caller_that_leaves_harms_no_other(database: Database, sharing: SharingTransactions) -> None:
    tasks = [asyncio.create_task(add(sharing, number)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [number for number, one in enumerate(found) if not isinstance(one, tuple)] == [7]
    assert await count(database, b"count(*) filter (where number <> 7)") == 19
    assert await add(sharing, 20) == (20, None)


async def test_after_the_connections_were_ended_the_next_statement_has_a_new_one(database: Database, sharing: SharingTransactions) -> None:
    await asyncio.gather(*(add(sharing, number) for number in range(3)))
    async with database.once() as tx:
        end = b"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'hermes' and pid <> pg_backend_pid()"
        assert len(await fetch_values(tx, end)) >= 1
    await asyncio.sleep(0.2)
    assert await add(sharing, 3) == (3, None)
    assert await count(database) == 4


async def test_a_connection_that_is_lost_under_way_is_told_to_every_caller(database: Database, sharing: SharingTransactions) -> None:
    end = b"select pg_terminate_backend(pg_backend_pid()), %(number)s::int"

    async def suicide() -> None:
        async with sharing.once() as tx:
            await fetch_shared(tx, end, {"number": 1}, order="5")

    found = await asyncio.gather(add(sharing, 1), suicide(), add(sharing, 9), return_exceptions=True)
    assert {type(one) for one in found} == {StoreUnavailable}
    assert await count(database) == 0
    assert await add(sharing, 1) == (1, None)


async def test_without_the_database_every_caller_is_told(database: Database) -> None:
    async with open_sharing(Database(database.pool)) as sharing:
        database.pool.conninfo = "host=/nowhere dbname=none"
        found = await asyncio.gather(*(add(sharing, number) for number in range(3)), return_exceptions=True)
        assert {type(one) for one in found} == {StoreUnavailable}


async def test_statements_in_a_transaction_belong_to_it(database: Database, sharing: SharingTransactions) -> None:
    async def add_and_fail() -> None:
        async with sharing.begin() as tx:
            await fetch_shared(tx, ADD, {"number": 1, "note": None})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await add_and_fail()
    assert await count(database) == 0


async def test_a_transaction_takes_a_connection_only_when_it_needs_one(database: Database, sharing: SharingTransactions) -> None:
    before = database.pool.get_stats()["requests_num"]
    async with sharing.once():
        pass
    await add(sharing, 1)
    assert database.pool.get_stats()["requests_num"] == before
    async with sharing.once() as tx:
        assert await fetch_value(tx, b"select 1") == 1
        assert await fetch_values(tx, b"select 2") == [2]
        with pytest.raises(TypeError):
            connection_of(tx)
    assert database.pool.get_stats()["requests_num"] == before + 1


async def test_large_batches_are_sent_and_read_whole(sharing: SharingTransactions) -> None:
    big = "x" * 3_000_000
    rows = await asyncio.gather(*(add(sharing, number, big) for number in range(8)))
    assert [len(note or "") for _, note in rows] == [len(big)] * 8


def test_names_become_numbers() -> None:
    statement = number_placeholders(b"select %(a)s, %(b)b, %(a)s, 5 %% 2")
    assert statement.text == b"select $1, $2, $1, 5 % 2"
    with pytest.raises(ValueError, match="two ways"):
        number_placeholders(b"select %(a)s, %(a)b")
    with pytest.raises(KeyError):
        statement.bind({"a": 1})


async def test_closing_does_not_wait_for_a_server_that_does_not_answer(database: Database) -> None:
    commits = SharedCommits(database)
    [(pid,)] = await commits.run(b"select pg_backend_pid()", {})
    os.kill(pid, signal.SIGSTOP)
    try:
        caller = asyncio.create_task(commits.run(b"select 1", {}))
        await asyncio.sleep(0.1)
        caller.cancel()
        async with asyncio.timeout(CLOSE_S + 5.0):
            await commits.aclose()
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_statement_whose_caller_gave_up_is_not_sent_again(database: Database, sharing: SharingTransactions) -> None:
    await add(sharing, 1)
    update = b"update counted set number = number where number = 1 returning number"
    async with database.begin() as tx:
        await execute(tx, update)
        given_up = asyncio.create_task(add(sharing, 2))
        waits = asyncio.create_task(sharing.commits.run(update, {}))
        await asyncio.sleep(0.1)  # both are in a batch that waits for the lock
        given_up.cancel()
        await asyncio.sleep(0.4)  # the batch was refused meanwhile
    assert await waits == [(1,)]
    assert await count(database) == 1
