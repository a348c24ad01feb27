"""Statements of many callers go to PostgreSQL together, and each caller gets its own result, as if it had been alone."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import Database, execute, fetch_value, open_database
from hermes.stores.postgres.statement_batch import MAX_STATEMENTS, StatementBatch

ADD = b"insert into counted (number, transaction) select %(number)s, pg_current_xact_id()::text where %(number)s >= 0"
WRITTEN = b"select from counted where number = %(number)s"


@pytest.fixture
async def database(empty_database_url: str) -> AsyncIterator[Database]:
    async with open_database(empty_database_url) as database:
        async with database.once() as tx:
            await execute(tx, b"create table counted (number integer primary key, transaction text not null)")
        yield database


async def counted(database: Database, what: bytes = b"count(*)") -> int:
    async with database.once() as tx:
        found: int = await fetch_value(tx, b"select " + what + b" from counted")
        return found


async def test_what_waits_together_is_written_together(database: Database) -> None:
    batch = StatementBatch(database)
    rows = await asyncio.gather(*(batch.execute(ADD, {"number": number}, written=WRITTEN) for number in range(4 * MAX_STATEMENTS)))
    assert set(rows) == {1}
    assert await counted(database) == 4 * MAX_STATEMENTS
    assert await counted(database, b"count(distinct transaction)") <= 8
    assert await batch.execute(ADD, {"number": -1}, written=WRITTEN) == 0


async def test_a_statement_that_fails_fails_for_its_own_caller_alone(database: Database) -> None:
    batch = StatementBatch(database)
    assert await batch.execute(ADD, {"number": 5}, written=WRITTEN) == 1
    numbers = [number % 8 for number in range(10)]  # 5 is there, and 0 and 1 come twice
    found = await asyncio.gather(*(batch.execute(ADD, {"number": number}, written=WRITTEN) for number in numbers), return_exceptions=True)
    assert [type(one) for one in found].count(psycopg.errors.UniqueViolation) == 3
    assert isinstance(found[5], psycopg.errors.UniqueViolation)
    assert await counted(database) == 8
    assert await batch.execute(ADD, {"number": 9}, written=WRITTEN) == 1


async def test_a_caller_that_leaves_harms_no_other(database: Database) -> None:
    batch = StatementBatch(database)
    tasks = [asyncio.create_task(batch.execute(ADD, {"number": number}, written=WRITTEN)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in found if one != 1] == [found[7]]
    assert await counted(database, b"count(*) filter (where number <> 7)") == 19


async def test_without_the_database_every_caller_is_told(database: Database) -> None:
    batch = StatementBatch(database)
    await database.pool.close()
    found = await asyncio.gather(*(batch.execute(ADD, {"number": number}, written=WRITTEN) for number in range(5)), return_exceptions=True)
    assert {type(one) for one in found} == {StoreUnavailable}
