"""The port Chores: a chore is done once in each slot, by one process, and by another one if the first is gone. On both adapters."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest

from hermes.ports.runtime import ChoreLease, Chores, Transaction, Transactions
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.job_queue import PostgresChores
from hermes.testing.memory import MemoryChores, MemoryTransactions


@dataclass
class House:
    """A rota, and a way to let its leases run out."""

    rota: Chores
    transactions: Transactions
    run_out: Callable[[], Awaitable[None]]

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        return self.transactions.begin()

    async def take(self, slot: int, chore: str = "dreams") -> ChoreLease | None:
        async with self.begin() as tx:
            return await self.rota.take(tx, chore, slot, lease_s=60)

    async def taken(self, slot: int) -> ChoreLease:
        duty = await self.take(slot)
        assert duty is not None
        return duty


@pytest.fixture(params=["postgres", "memory"])
def house(request: pytest.FixtureRequest) -> House:
    if request.param == "memory":
        now = [0.0]

        async def wait() -> None:
            now[0] += 61

        return House(MemoryChores(clock=lambda: now[0]), MemoryTransactions(), wait)
    database: Database = request.getfixturevalue("database")

    async def rewind() -> None:
        async with database.begin() as tx:
            await connection_of(tx).execute("update chores set held_until = held_until - interval '61 s'")

    return House(PostgresChores(), database, rewind)


async def test_one_of_all_who_look_gets_a_chore(house: House) -> None:
    duties = await asyncio.gather(*(house.take(7) for _ in range(8)))
    [mine] = [duty for duty in duties if duty is not None]
    assert mine == ChoreLease("dreams", 7, 1)
    assert await house.take(7, "reminders") == ChoreLease("reminders", 7, 1), "each chore has its own"


async def test_a_chore_is_done_once_in_a_slot_and_again_in_the_next(house: House) -> None:
    duty = await house.taken(7)
    async with house.begin() as tx:
        await house.rota.end(tx, duty)
    assert await house.take(7) is None
    assert await house.take(6) is None
    assert await house.take(8) == ChoreLease("dreams", 8, 2)


async def test_slots_that_were_missed_are_not_made_up_for(house: House) -> None:
    async with house.begin() as tx:
        await house.rota.end(tx, await house.taken(7))
    duty = await house.taken(20)
    async with house.begin() as tx:
        await house.rota.end(tx, duty)
    assert await house.take(19) is None


async def test_whoever_gives_no_sign_of_life_loses_the_chore_and_comes_too_late(house: House) -> None:
    lost = await house.taken(7)
    await house.run_out()
    mine = await house.taken(7)
    assert mine == ChoreLease("dreams", 7, 2)
    async with house.begin() as tx:
        assert await house.rota.keep(tx, lost, lease_s=60) is False
        await house.rota.end(tx, lost)
        await house.rota.give_back(tx, lost)
        assert await house.rota.keep(tx, mine, lease_s=60) is True
    assert await house.take(7) is None, "neither done nor free"


async def test_a_sign_of_life_keeps_the_chore(house: House) -> None:
    duty = await house.taken(7)
    async with house.begin() as tx:
        assert await house.rota.keep(tx, duty, lease_s=120)
    await house.run_out()
    assert await house.take(7) is None


async def test_what_was_given_back_is_taken_again_after_the_pause(house: House) -> None:
    duty = await house.taken(7)
    async with house.begin() as tx:
        await house.rota.give_back(tx, duty, pause_s=30)
    assert await house.take(7) is None
    await house.run_out()
    again = await house.taken(7)
    async with house.begin() as tx:
        await house.rota.give_back(tx, again)
    assert await house.take(7) == ChoreLease("dreams", 7, 3)
