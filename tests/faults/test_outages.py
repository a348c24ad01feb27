"""The stores go away and come back while people write: what was acknowledged is answered, what was not may be there or not, nothing is doubled.

On stores of their own, so that they can really be killed."""

import asyncio
import os
import random
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from redis.asyncio import Redis

from hermes.ports.errors import StoreUnavailable
from hermes.stores import embedded
from tests.faults.house import House, Nursery, fresh_database, open_house

CHANNELS = "abcd"
PAUSE_S = 0.02
PATIENT = {"HERMES_INBOX_MAX_ATTEMPTS": "100", "HERMES_DATABASE_CONNECT_TIMEOUT_S": "2"}
"""No message is given up for the sake of an outage that was made here."""


@dataclass(slots=True)
class PrivateStores:
    """Servers that may be killed."""

    home: Path
    held: embedded.Running

    @property
    def addresses(self) -> embedded.Stores:
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
async def house(nursery: Nursery, private_stores: PrivateStores, tmp_path: Path) -> AsyncIterator[House]:
    """A house on those stores, with two workers at work."""
    with fresh_database(private_stores.addresses, "template1") as stores:
        async with open_house(nursery, tmp_path, stores, **PATIENT) as house:
            house.worker()
            house.worker()
            yield house


class Trickle:
    """People who write, all the time. Most of them send again what nobody acknowledged; every fifth message is sent once, come what may."""

    def __init__(self, house: House) -> None:
        self.house, self.refused = house, 0
        self._is_over = False
        self._people = [asyncio.create_task(self._write(channel)) for channel in CHANNELS]

    async def end(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._people)

    async def __aenter__(self) -> "Trickle":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

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
async def test_everything_acknowledged_is_answered_once_after_an_outage(house: House, private_stores: PrivateStores, outage: Outage) -> None:
    async with Trickle(house) as trickle:
        await asyncio.sleep(0.5)
        before = len(house.accepted)
        await outage(house, private_stores)
        after = len(house.accepted)
        await asyncio.sleep(0.5)
    await house.until_quiet()
    await house.check(calls={} if outage.__name__.startswith("redis") else None)
    house.check_order()
    assert 0 < before < len(house.accepted)
    if outage.__name__.startswith("redis"):
        assert trickle.refused == 0, "Redis is speed: nobody is turned away without it"
        assert after > before


@pytest.mark.slow
async def test_workers_and_stores_killed_at_random_for_a_minute(house: House, private_stores: PrivateStores) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # noqa: T201  # shown when it fails
    dice = random.Random(seed)
    outages = [redis_is_killed, redis_is_emptied, redis_hangs, postgres_is_killed, postgres_crashes, postgres_loses_connections]
    trickle = Trickle(house)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        await asyncio.sleep(dice.uniform(0.2, 2))
        match dice.choice(["worker", "worker", "pause", "store"]):
            case "worker":
                victim = dice.choice([worker for worker in house.workers if worker.is_alive])
                victim.strike(signal.SIGKILL)
                house.worker()
            case "pause":
                sleeper = dice.choice([worker for worker in house.workers if worker.is_alive])
                sleeper.strike(signal.SIGSTOP)
                await asyncio.sleep(dice.uniform(0.5, 3))
                sleeper.strike(signal.SIGCONT)
            case "store":
                await dice.choice(outages)(house, private_stores)
    await trickle.end()
    with suppress(StoreUnavailable):
        await house.ask("select 1")
    await house.until_quiet(180)
    await house.check()
