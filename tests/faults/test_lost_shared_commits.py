"""The connection of a batch of statements is lost, before the server read it or after it committed: each caller is told that it is unknown,
and what is sent afterwards is done."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import Database, execute, fetch_shared, fetch_value, open_database
from hermes.stores.postgres.shared_commits import SharingTransactions, open_sharing
from tests.faults.lossy_proxy import Loss, LossyProxy, lossy_proxy

ADD = b"insert into counted (number, note) values (%(number)s, %(note)s) returning number"


@pytest.fixture
async def proxy(empty_database_url: str) -> AsyncIterator[LossyProxy]:
    async with lossy_proxy(empty_database_url) as proxy:
        yield proxy


@pytest.fixture
async def database(proxy: LossyProxy) -> AsyncIterator[Database]:
    async with open_database(proxy.url) as database:
        async with database.once() as tx:
            await execute(tx, b"create table counted (number integer primary key, note text not null)")
        yield database


async def add(sharing: SharingTransactions, number: int, note: str = "") -> int:
    async with sharing.once() as tx:
        [(added,)] = await fetch_shared(tx, ADD, {"number": number, "note": note})
    return int(added)


async def count(database: Database) -> int:
    async with database.once() as tx:
        return int(await fetch_value(tx, b"select count(*) from counted"))


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("at_once", [1, 6])
async def test_a_lost_batch_is_all_there_or_not_at_all_and_its_callers_know_that_they_do_not_know(
    proxy: LossyProxy, database: Database, loss: Loss, at_once: int
) -> None:
    async with open_sharing(database) as sharing:
        assert await asyncio.gather(*(add(sharing, number) for number in range(100, 110))) == list(range(100, 110))
        before = await count(database)
        proxy.lose(b"the marker", loss)
        told = await asyncio.gather(*(add(sharing, number, "the marker") for number in range(at_once)), return_exceptions=True)
        assert proxy.lost == 1
        assert {type(one) for one in told} == {StoreUnavailable}
        assert await count(database) == before + (at_once if loss is Loss.AFTER_THE_COMMIT else 0)
        assert await asyncio.gather(*(add(sharing, number) for number in range(200, 206))) == list(range(200, 206))
