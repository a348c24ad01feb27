"""The port Chores: a chore is done once in each slot, by one process, and by another one if the first is gone. On both adapters."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import uuid4

import pytest

from hermes.ports.errors import LeaseLost
from hermes.ports.runtime import ChoreLease, Chores, Transaction, Transactions
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.database import Database, connection_of
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


async def test_the_fence_lets_the_holder_through_and_no_one_before_it(house: House) -> None:
    lost = await house.taken(7)
    async with house.begin() as tx:
        await house.rota.fence(tx, lost)
    await house.run_out()
    async with house.begin() as tx:
        await house.rota.fence(tx, lost)  # the lease ran out, but no process took the chore: its holder may go on
    mine = await house.taken(7)
    with pytest.raises(LeaseLost):
        async with house.begin() as tx:
            await house.rota.fence(tx, lost)
    async with house.begin() as tx:
        await house.rota.fence(tx, mine)
        await house.rota.end(tx, mine)
    with pytest.raises(LeaseLost):
        async with house.begin() as tx:
            await house.rota.fence(tx, mine)


async def test_a_chore_that_was_done_is_taken_again_on_demand_and_then_counts_as_not_done(house: House) -> None:
    async with house.begin() as tx:
        await house.rota.end(tx, await house.taken(7))
        again = await house.rota.take(tx, "dreams", 7, lease_s=60, even_if_done=True)
    assert again == ChoreLease("dreams", 7, 2)
    await house.run_out()
    assert await house.take(7) == ChoreLease("dreams", 7, 3), "its process died, so another one does it"


async def test_a_chore_that_pauses_after_a_failure_is_taken_on_demand_and_one_that_runs_is_not(house: House) -> None:
    async with house.begin() as tx:
        await house.rota.give_back(tx, await house.taken(7), pause_s=30, failed="ValueError")
        assert await house.rota.take(tx, "dreams", 7, lease_s=60) is None
        assert await house.rota.take(tx, "dreams", 7, lease_s=60, even_if_done=True) == ChoreLease("dreams", 7, 2)
        assert await house.rota.take(tx, "dreams", 7, lease_s=60, even_if_done=True) is None


async def test_what_is_known_of_a_chore_is_its_holder_its_last_end_and_its_last_failure(house: House) -> None:
    holder = uuid4()
    async with house.begin() as tx:
        assert await house.rota.all(tx) == []
        lease = await house.rota.take(tx, "dreams", 7, lease_s=60, holder=holder)
        assert lease is not None
        [running] = await house.rota.all(tx)
        await house.rota.give_back(tx, lease, failed="StoreUnavailable")
        [failed] = await house.rota.all(tx)
        again = await house.rota.take(tx, "dreams", 7, lease_s=60)
        assert again is not None
        await house.rota.end(tx, again)
        [done] = await house.rota.all(tx)
    assert (running.name, running.epoch, running.holder, running.is_running, running.done_at) == ("dreams", 1, holder, True, None)
    assert running.taken_at is not None
    assert running.held_until > running.taken_at
    assert (failed.is_running, failed.failed, failed.done_at) == (False, "StoreUnavailable", None)
    assert (done.epoch, done.holder, done.is_running, done.failed) == (2, None, False, None)
    assert done.done_at is not None


async def test_no_process_waits_for_a_holder_that_froze_within_a_transaction(database: Database) -> None:
    rota = PostgresChores()
    async with database.begin() as tx:
        lost = await rota.take(tx, "dreams", 7, lease_s=0)
    assert lost is not None
    async with database.begin() as frozen:
        await rota.fence(frozen, lost)
        async with asyncio.timeout(5), database.begin() as tx:
            assert await rota.take(tx, "dreams", 7, lease_s=60) is None, "what the frozen one wrote may still be committed"
    async with database.begin() as tx:
        assert await rota.take(tx, "dreams", 7, lease_s=60) is not None


async def test_a_chore_that_is_asked_for_is_taken_again_in_its_slot(house: House) -> None:
    chores, transactions = house.rota, house.transactions
    async with transactions.begin() as tx:
        assert not await chores.ask(tx, "sweep"), "no process ever took it, so it is due anyway"
        lease = await chores.take(tx, "sweep", 7, lease_s=60)
        assert lease is not None
        assert not await chores.ask(tx, "sweep"), "a process is doing it"
        await chores.end(tx, lease)
    async with transactions.begin() as tx:
        assert await chores.take(tx, "sweep", 7, lease_s=60) is None
        assert await chores.ask(tx, "sweep")
        again = await chores.take(tx, "sweep", 7, lease_s=60)
        assert again is not None
        assert again.epoch == lease.epoch + 1
        await chores.give_back(tx, again, pause_s=600, failed="LookupError")
    async with transactions.begin() as tx:
        assert await chores.take(tx, "sweep", 7, lease_s=60) is None, "it pauses after the failure"
        assert await chores.ask(tx, "sweep")
        assert await chores.take(tx, "sweep", 7, lease_s=60) is not None
