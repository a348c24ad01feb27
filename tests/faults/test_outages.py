"""The stores go away and come back while people write: what was acknowledged is answered, once; what was not may be there or not.

On stores of their own, so that they can really be killed."""

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psycopg
import pytest
from redis.asyncio import Redis

from hermes.ports.errors import StoreUnavailable
from hermes.stores import embedded
from tests.faults.house import House, Nursery, eventually, fresh_database, open_house

CHANNELS = "abcd"
PAUSE_S = 0.02
PATIENT = {"HERMES_INBOX_MAX_ATTEMPTS": "100", "HERMES_DATABASE_CONNECT_TIMEOUT_S": "2"}
"""No message is given up for the sake of an outage that was made here."""


@dataclass(slots=True)
class PrivateStores:
    """Servers that may be killed."""

    home: Path
    held: embedded.ServerLease

    @property
    def addresses(self) -> embedded.StoreUrls:
        return self.held.stores

    def strike(self, server: str, blow: int) -> None:
        pid: int | None = getattr(embedded.status(self.home), server)
        assert pid is not None
        os.kill(pid, blow)

    async def start_again(self) -> None:
        """Start what does not run. The hold on the others stays."""
        again = await asyncio.to_thread(embedded.start, self.home)
        self.held.release()
        self.held = again


@pytest.fixture(scope="module")
def private_stores() -> Iterator[PrivateStores]:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        home = Path(folder) / "home"
        stores = PrivateStores(home, embedded.start(home))
        yield stores
        stores.held.release()


@pytest.fixture
async def busy_house(nursery: Nursery, private_stores: PrivateStores, tmp_path: Path) -> AsyncIterator[House]:
    """A house on those stores, with two workers at work."""
    with fresh_database(private_stores.addresses, "template1") as stores:
        async with open_house(nursery, tmp_path, stores, **PATIENT) as house:
            workers = [house.worker(), house.worker()]
            await house.until(lambda: all(worker.said("worker_at_work") for worker in workers), "the workers are at work")
            yield house


class Trickle:
    """People who write as long as the block lasts. What nobody acknowledged is sent again, but for every fifth message."""

    def __init__(self, house: House) -> None:
        self.house, self.refused = house, 0
        self._is_over = False
        self._people = [asyncio.create_task(self._write(channel)) for channel in CHANNELS]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._is_over = True
        if error is not None:
            for person in self._people:
                person.cancel()
        await asyncio.gather(*self._people, return_exceptions=error is not None)

    async def _write(self, channel: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            text = f"{channel}{number}"
            if number % 5:
                await self.house.send_until_acknowledged(channel, text)
            else:
                try:
                    await self.house.send(channel, text)
                except StoreUnavailable:
                    self.refused += 1
            await asyncio.sleep(PAUSE_S)


Outage = Callable[[House, PrivateStores], Awaitable[None]]


async def redis_is_killed(house: House, stores: PrivateStores) -> None:
    stores.strike("valkey", signal.SIGKILL)
    await asyncio.sleep(1.5)
    await stores.start_again()


async def redis_is_emptied(house: House, stores: PrivateStores) -> None:
    async with Redis.from_url(stores.addresses.redis_url) as client:
        for _ in range(30):
            await client.flushall()
            await asyncio.sleep(0.05)


async def redis_pauses_its_clients(house: House, stores: PrivateStores) -> None:
    async with Redis.from_url(stores.addresses.redis_url) as client:
        await client.client_pause(1500, all=True)
    await asyncio.sleep(1.7)


async def redis_hangs(house: House, stores: PrivateStores) -> None:
    stores.strike("valkey", signal.SIGSTOP)
    await asyncio.sleep(1.5)
    stores.strike("valkey", signal.SIGCONT)


async def postgres_is_killed(house: House, stores: PrivateStores) -> None:
    stores.strike("postgres", signal.SIGKILL)
    await asyncio.sleep(0.5)
    await stores.start_again()


async def postgres_crashes(house: House, stores: PrivateStores) -> None:
    stores.strike("postgres", signal.SIGQUIT)  # immediate: no last words to anybody, recovery at the next start
    await asyncio.sleep(2.0)
    await stores.start_again()


async def postgres_loses_connections(house: House, stores: PrivateStores) -> None:
    dice = random.Random(7)
    url = house.environ["HERMES_DATABASE_URL"]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for _ in range(40):
            query = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            pids = [pid for (pid,) in await (await connection.execute(query)).fetchall()]
            for pid in dice.sample(pids, min(3, len(pids))):
                await connection.execute("select pg_terminate_backend(%s)", [pid])
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "outage",
    [
        redis_is_killed,
        redis_is_emptied,
        redis_pauses_its_clients,
        redis_hangs,
        postgres_is_killed,
        postgres_crashes,
        postgres_loses_connections,
    ],
    ids=lambda outage: outage.__name__,
)
async def test_everything_acknowledged_is_answered_once_after_an_outage(
    busy_house: House, private_stores: PrivateStores, outage: Outage
) -> None:
    house = busy_house
    async with Trickle(house) as trickle:
        await asyncio.sleep(0.5)
        before = len(house.accepted)
        await outage(house, private_stores)
        after = len(house.accepted)
        await asyncio.sleep(0.5)
    await house.until_quiet()
    await house.check(calls={} if outage.__name__.startswith("redis") else None)
    await house.check_order()
    assert 0 < before < len(house.accepted)
    if outage.__name__.startswith("redis"):
        assert trickle.refused == 0, "Redis is speed: nobody is turned away without it"
        assert after > before


BLOCKED = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@asynccontextmanager
async def jobs_locked(house: House) -> AsyncIterator[psycopg.AsyncConnection]:
    """Nobody gets at the jobs as long as the block lasts. Gives another connection, to look around with."""
    url = house.environ["HERMES_DATABASE_URL"]
    async with (
        await psycopg.AsyncConnection.connect(url) as holder,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher,
    ):
        await holder.execute("lock table procrastinate_jobs in access exclusive mode")
        yield watcher


async def blocked(watcher: psycopg.AsyncConnection, count: int) -> list[int]:
    """The server's processes that wait for a lock, once there are so many."""
    pids: list[int] = []

    async def look() -> bool:
        pids[:] = [pid for (pid,) in await (await watcher.execute(BLOCKED)).fetchall()]
        return len(pids) >= count

    await eventually(look, f"{count} connections wait")
    return pids


async def test_a_sender_whose_connection_is_lost_while_the_job_is_deferred_is_told_to_come_back(house: House) -> None:
    async with jobs_locked(house) as watcher:
        sending = asyncio.create_task(house.send("a", "a1"))
        [pid] = await blocked(watcher, 1)
        await watcher.execute("select pg_terminate_backend(%s)", [pid])
        with pytest.raises(StoreUnavailable):
            await sending


async def test_a_worker_stops_when_told_so_while_the_database_is_away(busy_house: House, private_stores: PrivateStores) -> None:
    house = busy_house
    await house.send_all("a1", "b1")
    await house.until_quiet()
    private_stores.strike("postgres", signal.SIGQUIT)
    try:
        await asyncio.sleep(0.5)
        for worker in house.workers:
            worker.strike(signal.SIGTERM)
        await house.until(lambda: not any(worker.is_alive for worker in house.workers), "the workers stop", 8)
    finally:
        await private_stores.start_again()


async def test_a_worker_stops_when_told_so_while_the_database_dies(busy_house: House) -> None:
    """Told to stop, a worker cancels its queries and waits for the server's word; the server dies before it says it."""
    house = busy_house
    with suppress(psycopg.OperationalError):
        async with jobs_locked(house) as watcher:
            pids = await blocked(watcher, 6)  # of each worker: both queues, and the sweep
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            for worker in house.workers:
                worker.strike(signal.SIGTERM)
            await asyncio.sleep(0.5)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    await house.until(lambda: not any(worker.is_alive for worker in house.workers), "the workers stop", 8)


@pytest.mark.slow
async def test_workers_and_stores_killed_at_random_for_a_minute(busy_house: House, private_stores: PrivateStores) -> None:
    house = busy_house
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201  # shown when it fails
    dice = random.Random(seed)
    outages = [redis_is_killed, redis_is_emptied, redis_hangs, postgres_is_killed, postgres_crashes, postgres_loses_connections]
    end = time.monotonic() + 60
    async with Trickle(house):
        while time.monotonic() < end:
            await asyncio.sleep(dice.uniform(0.2, 2))
            victim = dice.choice([worker for worker in house.workers if worker.is_alive])
            match dice.choice(["worker", "worker", "pause", "store"]):
                case "worker":
                    victim.strike(signal.SIGKILL)
                    house.worker()
                case "pause":
                    victim.strike(signal.SIGSTOP)
                    await asyncio.sleep(dice.uniform(0.5, 3))
                    victim.strike(signal.SIGCONT)
                case "store":
                    await dice.choice(outages)(house, private_stores)
    await house.until_quiet(180)
    await house.check()
