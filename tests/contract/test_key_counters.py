"""What API keys use, counted in Redis together with the budgets of users: exact in all processes, whatever users a client names."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from hermes.ports.credits import BudgetHold, BudgetSpent
from hermes.ports.errors import StoreUnavailable
from hermes.ports.key_limits import KeyClaim, KeyLimits
from hermes.ports.key_use import KeyLimit, KeyQuotaSpent, KeyRateReached, KeyUsage
from hermes.stores.postgres.database import Database, connection_of, open_database
from tests.contract.test_budgets import NOON, HandClock, Process, Wire, call_of, process, until_paid

pytestmark = pytest.mark.usefixtures("user")
PLENTY = 10**9
COST = 1_000
"""What each call may cost, and then does."""


@pytest.fixture
async def here(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


@pytest.fixture
async def cut_off(redis_url: str, database: Database) -> AsyncIterator[tuple[Process, Wire]]:
    """A process that cannot reach Redis."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        wire = Wire(folder, redis_url)
        async with process(wire.url, database) as made:
            yield made, wire


@pytest.fixture
async def there(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


async def reserve(
    at: Process, key: UUID, limits: KeyLimits, *, tokens: int = 10, micro_usd: int = COST, user: UUID | None = None
) -> BudgetHold:
    """Reserve for a call of a key, in the name of a user of its own."""
    claim = KeyClaim(key_id=key, limits=limits, micro_usd=micro_usd)
    return await at.budgets.reserve(user or uuid4(), day_limit=PLENTY, month_limit=PLENTY, tokens=tokens, lease_s=60.0, key=claim)


async def settle(at: Process, hold: BudgetHold, *, tokens: int = 10, micro_usd: int = COST) -> None:
    assert hold.key is not None
    async with at.sql.begin() as tx:
        row = replace(call_of(hold, tokens, micro_usd), user_id=None, api_key_id=hold.key.key_id)
        await at.calls.add(tx, row)
    await at.budgets.settle(hold, tokens=tokens, micro_usd=micro_usd)


async def used(at: Process, key: UUID) -> KeyUsage:
    return await at.budgets.keys.used(key)


async def refused(work: Any) -> tuple[KeyLimit, Any]:
    """Which limit refuses it, and until when or for how long."""
    with pytest.raises((KeyQuotaSpent, KeyRateReached)) as error:
        await work
    if isinstance(error.value, KeyQuotaSpent):
        return error.value.limit, error.value.resets_at
    return error.value.limit, error.value.wait_s


# --- several processes


async def child(redis_url: str, database_url: str, key: str) -> None:
    """A process of its own: 25 calls at once, each for another user, of a key that has money for 30 of them; 25 requests of 60; and 25
    calls of a key that may have 7 at once."""
    limits = KeyLimits(day_micro_usd=30 * COST, minute_requests=60)
    async with open_database(database_url, pool_max=4) as database, process(redis_url, database, HandClock(datetime.now(UTC))) as made:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        key_id, crowded = UUID(key), UUID(int=UUID(key).int ^ 1)
        money = await asyncio.gather(*(reserve(made, key_id, limits) for _ in range(25)), return_exceptions=True)
        requests = await asyncio.gather(
            *(made.budgets.keys.count_request(key_id, limits) for _ in range(25)),
            return_exceptions=True,
        )
        many = await asyncio.gather(*(reserve(made, crowded, KeyLimits(calls_at_once=7)) for _ in range(25)), return_exceptions=True)
        holds = [each for each in money if isinstance(each, BudgetHold)]
        told = {
            "admitted": len(holds),
            "settled": len(holds[::2]),
            "counted": requests.count(None),
            "at_once": sum(isinstance(each, BudgetHold) for each in many),
            "errors": sorted({type(each).__name__ for each in (*money, *requests, *many) if isinstance(each, BaseException)}),
        }
        sys.stdout.write(f"told {json.dumps(told)}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await asyncio.gather(*(settle(made, hold) for hold in holds[::2]))  # the others are given up
        await asyncio.gather(*(made.budgets.release(hold) for hold in holds[1::2]))


async def next_line(of: asyncio.subprocess.Process, start: str) -> str:
    """The rest of the next line that begins so; a process also writes its log."""
    assert of.stdout is not None
    while not (line := (await of.stdout.readline()).decode()).startswith(start):
        assert line, "the process has ended"
    return line.removeprefix(start)


async def test_four_processes_with_a_hundred_calls_never_overspend_a_key(here: Process, redis_url: str, database_url: str) -> None:
    key = uuid4()
    command = [sys.executable, "-m", "tests.contract.test_key_counters", redis_url, database_url, str(key)]
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    children = [await asyncio.create_subprocess_exec(*command, **pipes) for _ in range(4)]
    await asyncio.gather(*(next_line(each, "ready") for each in children))
    for each in children:
        assert each.stdin is not None
        each.stdin.write(b"go\n")
    told = [json.loads(line) for line in await asyncio.gather(*(next_line(each, "told ") for each in children))]
    await asyncio.gather(*(each.communicate(b"end\n") for each in children))
    assert [each.returncode for each in children] == [0, 0, 0, 0]
    sums = {name: sum(each[name] for each in told) for name in ("admitted", "counted", "at_once")}
    assert sums == {"admitted": 30, "counted": 60, "at_once": 7}
    assert {name for each in told for name in each["errors"]} == {"KeyQuotaSpent", "KeyRateReached"}
    settled = sum(each["settled"] for each in told)
    here.clock.moment = datetime.now(UTC)
    found = await used(here, key)
    assert (found.day_micro_usd, found.month_micro_usd, found.day_tokens, found.calls_at_once) == (
        settled * COST,
        settled * COST,
        settled * 10,
        0,
    )
    assert (await used(here, UUID(int=key.int ^ 1))).calls_at_once == 7


# --- one call


async def test_a_call_counts_what_it_really_used_and_one_that_is_given_up_counts_nothing(here: Process, there: Process) -> None:
    key, limits = uuid4(), KeyLimits(day_micro_usd=5 * COST)
    first, second, third = [await reserve(at, key, limits) for at in (here, there, here)]
    held = KeyUsage(day_micro_usd=3 * COST, month_micro_usd=3 * COST, day_tokens=30, month_tokens=30, minute_tokens=30, calls_at_once=3)
    assert await used(there, key) == held
    await settle(here, first, tokens=4, micro_usd=70)
    await settle(here, first, tokens=4, micro_usd=70)
    await there.budgets.release(second)
    await there.budgets.release(second)
    await settle(here, third, tokens=50, micro_usd=6 * COST)
    spent = 70 + 6 * COST
    assert await used(there, key) == KeyUsage(
        day_micro_usd=spent, month_micro_usd=spent, day_tokens=54, month_tokens=54, minute_tokens=54, calls_at_once=0
    )
    assert await refused(reserve(there, key, limits, micro_usd=1)) == (KeyLimit.DAY_USD, datetime(2026, 11, 16, tzinfo=UTC))


async def test_each_limit_refuses_by_its_own_name_and_nothing_of_the_user_or_the_key_stays_reserved(here: Process) -> None:
    key, user, at = uuid4(), uuid4(), {"day": datetime(2026, 11, 16, tzinfo=UTC), "month": datetime(2026, 12, 1, tzinfo=UTC)}
    await settle(here, await reserve(here, key, KeyLimits()))
    await reserve(here, key, KeyLimits())
    before = await used(here, key)
    for limits, expected in (
        (KeyLimits(day_micro_usd=3 * COST - 1), (KeyLimit.DAY_USD, at["day"])),
        (KeyLimits(month_micro_usd=3 * COST - 1), (KeyLimit.MONTH_USD, at["month"])),
        (KeyLimits(day_tokens=29), (KeyLimit.DAY_TOKENS, at["day"])),
        (KeyLimits(month_tokens=29, day_tokens=29), (KeyLimit.MONTH_TOKENS, at["month"])),
        (KeyLimits(minute_tokens=29), (KeyLimit.MINUTE_TOKENS, 61.0)),
        (KeyLimits(minute_tokens=9), (KeyLimit.MINUTE_TOKENS, None)),
        (KeyLimits(calls_at_once=1), (KeyLimit.AT_ONCE, 1.0)),
    ):
        assert await refused(reserve(here, key, limits, user=user)) == expected
    assert await used(here, key) == before
    assert (await here.budgets.used(user)).day_held == 0
    # The user's own budget refuses too, and then the key holds nothing.
    claim = KeyClaim(key_id=key, limits=KeyLimits(), micro_usd=1)
    with pytest.raises(BudgetSpent, match="the day's budget"):
        await here.budgets.reserve(user, day_limit=5, month_limit=PLENTY, tokens=10, lease_s=60.0, key=claim)
    assert await used(here, key) == before
    exactly = KeyLimits(day_micro_usd=3 * COST, month_micro_usd=3 * COST, day_tokens=30, month_tokens=30, minute_tokens=30, calls_at_once=2)
    await reserve(here, key, exactly)


# --- time


async def test_no_sixty_seconds_ever_have_more_than_the_limit(here: Process) -> None:
    key, limits, keys = uuid4(), KeyLimits(minute_requests=3), here.budgets.keys
    for second in (59.9, 60.2, 70.0):
        here.clock.moment = NOON + timedelta(seconds=second)
        await keys.count_request(key, limits)
    for second, wait_s in ((70.5, 49.5), (119.9, 0.1)):
        here.clock.moment = NOON + timedelta(seconds=second)
        assert await refused(keys.count_request(key, limits)) == (KeyLimit.MINUTE_REQUESTS, pytest.approx(wait_s, abs=0.01))
    here.clock.moment = NOON + timedelta(seconds=120.0)
    await keys.count_request(key, limits)
    assert (await used(here, key)).minute_requests == 3
    # A clock that was an hour ahead, or goes back, blocks nobody for an hour.
    here.clock.move(hours=1)
    await keys.count_request(key, limits)
    here.clock.move(hours=-1)
    assert (await used(here, key)).minute_requests <= 3


async def test_days_and_months_are_those_of_utc_and_a_call_pays_on_the_day_it_began(here: Process, there: Process) -> None:
    key, limits = uuid4(), KeyLimits(day_micro_usd=COST, calls_at_once=2)
    here.clock.moment = there.clock.moment = datetime(2026, 11, 30, 23, 59, 59, 999_000, tzinfo=UTC)
    november = await reserve(here, key, limits)
    assert (await refused(reserve(there, key, limits)))[0] is KeyLimit.DAY_USD
    here.clock.move(milliseconds=1)
    december = await reserve(here, key, limits)
    assert (december.day.isoformat(), (await used(here, key)).month_micro_usd) == ("2026-12-01", COST)
    assert (await refused(reserve(here, key, KeyLimits(calls_at_once=2))))[0] is KeyLimit.AT_ONCE, "also over the end of a month"
    await settle(here, november, micro_usd=7)
    assert await used(here, key) == KeyUsage(
        day_micro_usd=COST, month_micro_usd=COST, day_tokens=10, month_tokens=10, minute_tokens=20, calls_at_once=1
    )
    assert (await used(there, key)).month_micro_usd == 7


async def test_calls_of_a_process_that_died_are_given_back_with_their_lease(here: Process) -> None:
    key, limits = uuid4(), KeyLimits(day_micro_usd=COST, calls_at_once=1)
    await reserve(here, key, limits)
    here.clock.move(seconds=61)
    await reserve(here, key, limits)


# --- Redis is lost, or away


async def test_lost_counters_are_rebuilt_and_no_call_counts_twice_or_not_at_all(here: Process, there: Process, redis_url: str) -> None:
    key, limits = uuid4(), KeyLimits(day_micro_usd=10 * COST)
    here.clock.moment = there.clock.moment = datetime.now(UTC)
    await settle(here, await reserve(here, key, limits))
    open_here, settled_late = await reserve(here, key, limits), await reserve(here, key, limits)
    assert settled_late.key is not None
    async with here.sql.begin() as tx:  # recorded, and lost before it is settled
        await here.calls.add(tx, replace(call_of(settled_late, 10, COST), user_id=None, api_key_id=key))
    async with Redis.from_url(redis_url) as operator:
        await operator.flushall()
    assert (await used(here, key)).day_micro_usd == 4 * COST, "two are recorded, and two are held by this process"
    await here.budgets.settle(settled_late, tokens=10, micro_usd=COST)
    assert (await used(here, key)).day_micro_usd == 3 * COST
    await settle(here, open_here, micro_usd=5)
    assert (await used(there, key)).day_micro_usd == 2 * COST + 5


async def test_a_charge_that_waited_for_redis_is_not_counted_again_after_a_rebuild(
    cut_off: tuple[Process, Wire], there: Process, database: Database, redis_url: str
) -> None:
    here, wire = cut_off
    key = uuid4()
    begun = datetime.now(UTC).replace(hour=12)  # an hour later it is still the same day
    here.clock.moment = there.clock.moment = begun
    before, after = await reserve(there, key, KeyLimits()), await reserve(there, key, KeyLimits())
    await settle(here, before)  # recorded, and kept until Redis can be reached
    async with database.begin() as tx:
        await connection_of(tx).execute("update calls set created_at = %s", [begun])
    here.clock.move(hours=1)
    there.clock.move(hours=1)
    async with Redis.from_url(redis_url) as operator:
        await operator.flushall()
    assert (await used(there, key)).day_micro_usd in {COST, 3 * COST}, "one is recorded; what was held is over, or as this process knows it"
    await settle(here, after)
    wire.plug_in()
    await until_paid(here.budgets)
    assert (await used(there, key)).month_tokens == 20


async def test_without_redis_a_key_is_refused(redis_url: str, database: Database) -> None:
    async with process("unix:///nowhere", database) as made:
        with pytest.raises(StoreUnavailable):
            await reserve(made, uuid4(), KeyLimits(day_micro_usd=COST))
        with pytest.raises(StoreUnavailable):
            await made.budgets.keys.count_request(uuid4(), KeyLimits(minute_requests=1))
        with pytest.raises(StoreUnavailable):
            await made.budgets.keys.check_quota(uuid4(), KeyLimits(day_tokens=1))


if __name__ == "__main__":
    asyncio.run(child(*sys.argv[1:]))
