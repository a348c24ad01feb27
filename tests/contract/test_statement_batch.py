"""Work of many callers goes to PostgreSQL together, and each caller gets its own result, as if it had been alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import psycopg
import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import Database, execute, fetch_value, fetch_values, open_database
from hermes.stores.postgres.packed_arrays import integer_array
from hermes.stores.postgres.statement_batch import MAX_ITEMS, StatementBatch

ADD = b"""insert into counted (number, transaction)
    select number, pg_current_xact_id()::text from unnest(%(numbers)s::integer[]) as given (number) where number >= 0 returning number"""


async def add(tx: Transaction, numbers: Sequence[int]) -> list[bool]:
    written = await fetch_values(tx, ADD, {"numbers": integer_array(numbers)})
    return [number in written for number in numbers]


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
    batch = StatementBatch(database, add)
    rows = await asyncio.gather(*(batch.run(number) for number in range(4 * MAX_ITEMS)))
    assert set(rows) == {True}
    assert await counted(database) == 4 * MAX_ITEMS
    assert await counted(database, b"count(distinct transaction)") <= 8
    assert not await batch.run(-1)


async def test_a_statement_that_fails_fails_for_its_own_caller_alone(database: Database) -> None:
    batch = StatementBatch(database, add)
    assert await batch.run(5)
    numbers = [number % 8 for number in range(10)]  # 5 is there, and 0 and 1 come twice
    found = await asyncio.gather(*(batch.run(number) for number in numbers), return_exceptions=True)
    assert [type(one) for one in found].count(psycopg.errors.UniqueViolation) == 3
    assert isinstance(found[5], psycopg.errors.UniqueViolation)
    assert await counted(database) == 8
    assert await batch.run(9)


async def test_a_caller_that_leaves_harms_no_other(database: Database) -> None:
    batch = StatementBatch(database, add)
    tasks = [asyncio.create_task(batch.run(number)) for number in range(20)]
    await asyncio.sleep(0)
    tasks[7].cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one for one in found if one is not True] == [found[7]]
    assert await counted(database, b"count(*) filter (where number <> 7)") == 19


async def test_without_the_database_every_caller_is_told(database: Database) -> None:
    batch = StatementBatch(database, add)
    await database.pool.close()
    found = await asyncio.gather(*(batch.run(number) for number in range(5)), return_exceptions=True)
    assert {type(one) for one in found} == {StoreUnavailable}


async def test_items_with_one_key_are_never_in_one_batch(database: Database) -> None:
    batch = StatementBatch(database, add)
    assert all(await asyncio.gather(*(batch.run(number, key=number % 3) for number in range(9))))
    async with database.once() as tx:
        query = b"select count(*) from (select from counted group by transaction, mod(number, 3) having count(*) > 1) as twice"
        assert await fetch_value(tx, query) == 0
