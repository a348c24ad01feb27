"""Budgets: what a reservation costs, and whether ten thousand races for the last places are ever won by one too many.

Starts the stores in a folder of its own. Two processes' worth of clients race against each other. Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hermes.ports.credits import BudgetHold, BudgetSpent
from hermes.stores import embedded
from hermes.stores.postgres.database import Database, connection_of, open_database
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.migrate import migrate
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.counters import GENERATION_KEY
from hermes.stores.redis.global_spend import RedisGlobalSpend

RACERS, PLACES = 64, 10
RESERVE_P50_MS = SETTLE_P50_MS = 0.75
HISTORY = 3_000

broken: list[str] = []


def main() -> int:
    """Measure, race, and print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--races", type=int, default=10_000, help=f"how often {RACERS} race for {PLACES} places")
    options.add_argument("--calls", type=int, default=5_000, help="how often each single call is timed")
    chosen = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # errors only
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
        asyncio.run(measure(stores, chosen.races, chosen.calls))
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


class Wall:
    """The time of day."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class Silent:
    """Alerts for nobody."""

    def alert(self, event: str, **facts: object) -> None:
        pass


def client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=2.0, socket_connect_timeout=2.0, retry=Retry(NoBackoff(), 0))


async def measure(stores: embedded.StoreUrls, races: int, calls: int) -> None:
    await migrate(stores.database_url)
    async with open_database(stores.database_url) as database, client(stores.redis_url) as here, client(stores.redis_url) as there:
        budgets = [RedisBudgets(each, database, PostgresModelCalls(), alerts=Silent(), clock=Wall(), wait_s=5.0) for each in (here, there)]
        spend = RedisGlobalSpend(here, database, PostgresModelCalls(), records=PostgresKillSwitchRecords(), alerts=Silent(), clock=Wall())
        await single(budgets[0], spend, calls)
        await crowd(budgets[0], calls)
        await rebuild(budgets[0], database, here)
        await race(budgets, races)


async def single(budgets: RedisBudgets, spend: RedisGlobalSpend, calls: int) -> None:
    """One caller, one call at a time."""
    user_id = uuid4()
    holds: list[BudgetHold] = []

    async def reserve() -> None:
        holds.append(await take(budgets, user_id, 1_000))

    async def settle() -> None:
        await budgets.settle(holds.pop(), tokens=700, micro_usd=1_234)

    reserved_ms, settled_ms = [], []
    for _ in range(calls):
        reserved_ms.append(await timed(reserve))
        settled_ms.append(await timed(settle))
    admitted_ms = [await timed(lambda: spend.admit(10**12)) for _ in range(calls)]
    added_ms = [await timed(lambda: spend.add(7)) for _ in range(calls)]
    print(f"{'one at a time':<16}{'p50 ms':>9}{'p99 ms':>9}")
    for name, taken in (("reserve", reserved_ms), ("settle", settled_ms), ("admit", admitted_ms), ("add", added_ms)):
        print(f"{name:<16}{statistics.median(taken):>9.3f}{statistics.quantiles(taken, n=100)[98]:>9.3f}")
    promise(statistics.median(reserved_ms) <= RESERVE_P50_MS, f"a reserve takes more than {RESERVE_P50_MS} ms")
    promise(statistics.median(settled_ms) <= SETTLE_P50_MS, f"a settle takes more than {SETTLE_P50_MS} ms")


async def crowd(budgets: RedisBudgets, calls: int) -> None:
    """As many callers as race below, each with a user of its own."""

    async def one() -> None:
        user_id = uuid4()
        for _ in range(calls // RACERS):
            await budgets.settle(await take(budgets, user_id, 1_000), tokens=700, micro_usd=1_234)

    taken_ms = await timed(lambda: asyncio.gather(*(one() for _ in range(RACERS))))
    print(f"\n{RACERS} callers: {calls // RACERS * RACERS / taken_ms * 1000:,.0f} reserves with their settles per second")


async def rebuild(budgets: RedisBudgets, database: Database, redis: Redis) -> None:
    """A user whose counters are gone, after a busy month."""
    async with database.begin() as tx:
        await connection_of(tx).execute("insert into accounts (id) values ('bench')")
        made = await connection_of(tx).execute("insert into users (state, referral_code) values ('active', 'bench') returning id")
        [[user_id]] = await made.fetchall()
        await connection_of(tx).execute(
            """insert into calls (id, user_id, account_id, source, tier, model, tokens_in, tokens_out, cache_read, cache_write,
                   cache_write_1h, micro_usd, is_estimated, cache_hit, outcome, latency_ms, day)
               select gen_random_uuid(), %s, 'bench', 'router', 'pro', 'm', 900, 100, 0, 0, 0, 7, false, false, 'answered', 1, %s
               from generate_series(1, %s)""",
            [user_id, datetime.now(UTC).date(), HISTORY],
        )
    taken_ms = []
    for _ in range(20):
        await redis.delete(GENERATION_KEY)
        taken_ms.append(await timed(lambda: budgets.used(user_id)))
    used = await budgets.used(user_id)
    promise(used.month_tokens == HISTORY * 1_000, f"a rebuild counts {used.month_tokens} tokens instead of {HISTORY * 1_000}")
    print(f"rebuild of a user with {HISTORY:,} calls today: p50 {statistics.median(taken_ms):.1f} ms")


async def race(budgets: list[RedisBudgets], races: int) -> None:
    """Again and again, more callers than places; what the winners settle is the start of the next race."""
    user_id, base, wrong = uuid4(), 0, 0
    started = time.perf_counter()
    for _ in range(races):
        tries = (take(budgets[number % 2], user_id, 7, day_limit=base + 7 * PLACES + 6) for number in range(RACERS))
        tried = await asyncio.gather(*tries, return_exceptions=True)
        held = [each for each in tried if isinstance(each, BudgetHold)]
        refused = [each for each in tried if isinstance(each, BudgetSpent)]
        wrong += (len(held), len(refused)) != (PLACES, RACERS - PLACES)
        await asyncio.gather(*(budgets[0].settle(hold, tokens=7, micro_usd=1) for hold in held))
        base += 7 * len(held)
    used = await budgets[0].used(user_id)
    took_s = time.perf_counter() - started
    print(f"{races:,} races of {RACERS} for {PLACES} places: {wrong} with another outcome, {took_s:.0f} s")
    promise(wrong == 0, f"{wrong} races ended with more or fewer than {PLACES} winners")
    promise((used.day_tokens, used.day_held) == (base, 0), f"{used} instead of {base} tokens")


async def take(budgets: RedisBudgets, user_id: UUID, tokens: int, *, day_limit: int = 10**12) -> BudgetHold:
    return await budgets.reserve(user_id, day_limit=day_limit, month_limit=10**12, tokens=tokens, lease_s=60.0)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await call()
    return (time.perf_counter() - started) * 1000


def promise(is_kept: bool, otherwise: str) -> None:  # noqa: FBT001  # reads as a sentence
    if not is_kept:
        broken.append(otherwise)


if __name__ == "__main__":
    sys.exit(main())
