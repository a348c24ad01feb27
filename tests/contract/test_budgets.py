"""The ports Budgets and GlobalSpend: no token is given twice, no charge is lost or counted twice, whatever happens to Redis."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript

from hermes.ports.backends import Usage
from hermes.ports.credits import BudgetHold, BudgetSpent, BudgetUsage, CallsPaused
from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import CallOutcome, CallSource, DayTotals, ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.users import User
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.counters import GENERATION_KEY, KILL_SWITCH_MICRO_USD, SCRIPTS, Joined, ScriptBatch
from hermes.stores.redis.global_spend import RedisGlobalSpend

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
SUNDAY = NOON.date()
MONDAY_MIDNIGHT, DECEMBER = datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
COUNTER = "agnt:global_spend:2026-11-15"
DAY, MONTH, LEASE_S = 1_000, 30_000, 60.0


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self, moment: datetime = NOON) -> None:
        self.moment = moment

    def now(self) -> datetime:
        return self.moment

    def move(self, **by: float) -> None:
        self.moment += timedelta(**by)


SWITCHED = ("kill_switch_engaged", "kill_switch_released", "end of kill_switch_engaged")


class Bell:
    """Alerts, kept."""

    def __init__(self) -> None:
        self.rung: list[tuple[str, dict[str, object]]] = []

    def alert(self, event: str, **facts: object) -> None:
        self.rung.append((event, facts))

    def end(self, event: str, **facts: object) -> None:
        self.rung.append((f"end of {event}", facts))

    @property
    def thresholds(self) -> list[tuple[object, object, object]]:
        assert {event for event, _ in self.rung} <= {"budget_threshold", *SWITCHED}
        return [(facts["user_id"], facts["window"], facts["percent"]) for event, facts in self.rung if event == "budget_threshold"]


class CountingCalls(PostgresModelCalls):
    """Counts the rebuilds, and makes them wait until `may_go`."""

    def __init__(self) -> None:
        self.rebuilds = 0
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def by_day(self, tx: Transaction, user_id: UUID, *, since: date, until: date, ids_since: date) -> Sequence[DayTotals]:
        self.rebuilds += 1
        found = await super().by_day(tx, user_id, since=since, until=until, ids_since=ids_since)
        await self.may_go.wait()
        return found

    async def on_day(self, tx: Transaction, day: date, *, recent_s: float) -> DayTotals:
        self.rebuilds += 1
        return await super().on_day(tx, day, recent_s=recent_s)


class Sql:
    """A database that can be taken away."""

    def __init__(self, database: Database) -> None:
        self.database, self.is_away = database, False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        if self.is_away:
            raise StoreUnavailable
        async with self.database.begin() as tx:
            yield tx


@dataclass
class Process:
    """What one process has of budgets. Several of them share the servers, and nothing else."""

    redis: Redis
    sql: Sql
    clock: HandClock
    calls: CountingCalls = field(default_factory=CountingCalls)
    alerts: Bell = field(default_factory=Bell)

    def __post_init__(self) -> None:
        shared: dict[str, Any] = {"alerts": self.alerts, "clock": self.clock}
        self.budgets = RedisBudgets(self.redis, self.sql, self.calls, **shared, max_pause_s=0.05)
        self.spend = RedisGlobalSpend(
            self.redis, self.sql, self.calls, records=PostgresKillSwitchRecords(), **shared, poll_s=0.1, wait_s=1.0
        )

    async def reserve(self, user_id: UUID, tokens: int, *, day: int = DAY, month: int = MONTH, lease_s: float = LEASE_S) -> BudgetHold:
        return await self.budgets.reserve(user_id, day_limit=day, month_limit=month, tokens=tokens, lease_s=lease_s)

    async def spend_tokens(self, user_id: UUID, tokens: int, *, micro_usd: int = 0, **limits: Any) -> BudgetHold:
        """A whole call: reserve, record, settle."""
        hold = await self.reserve(user_id, tokens, **limits)
        await self.record(hold, tokens, micro_usd)
        await self.budgets.settle(hold, tokens=tokens, micro_usd=micro_usd)
        return hold

    async def record(self, hold: BudgetHold, tokens: int, micro_usd: int = 0) -> None:
        async with self.sql.begin() as tx:
            await self.calls.add(tx, call_of(hold, tokens, micro_usd))

    async def used(self, user_id: UUID) -> tuple[int, int, int, int, int]:
        """Of the day: tokens used and held, micro-dollars; of the month: tokens used and held."""
        used = await self.budgets.used(user_id)
        return used.day_tokens, used.day_held, used.day_micro_usd, used.month_tokens, used.month_held

    async def aclose(self) -> None:
        await self.budgets.aclose()
        await self.redis.aclose()


def call_of(hold: BudgetHold, tokens: int, micro_usd: int = 0) -> ModelCall:
    return ModelCall(
        id=hold.id,
        day=hold.day,
        user_id=hold.user_id,
        account_id="bali",
        source=CallSource.ROUTER,
        tier="free",
        model="claude-haiku",
        outcome=CallOutcome.ANSWERED,
        latency_ms=1,
        usage=Usage(tokens_in=tokens),
        micro_usd=micro_usd,
    )


def client_of(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=0.25, socket_connect_timeout=0.25, retry=Retry(NoBackoff(), 0))


@asynccontextmanager
async def process(url: str, database: Database, clock: HandClock | None = None) -> AsyncIterator[Process]:
    made = Process(client_of(url), Sql(database), clock or HandClock())
    try:
        yield made
    finally:
        await made.aclose()


@pytest.fixture
async def here(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


@pytest.fixture
async def there(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


@pytest.fixture
def ann(user: User) -> UUID:
    return user.id


class Wire:
    """An address of Redis that leads nowhere until it is plugged in."""

    def __init__(self, folder: str, redis_url: str) -> None:
        self._socket, self._real = Path(folder) / "wire", Path(redis_url.removeprefix("unix://").partition("?")[0])
        self.url = f"unix://{self._socket}"

    def plug_in(self) -> None:
        self._socket.symlink_to(self._real)


@pytest.fixture
async def cut_off(redis_url: str, database: Database) -> AsyncIterator[tuple[Process, Wire]]:
    """A process that cannot reach Redis."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        wire = Wire(folder, redis_url)
        async with process(wire.url, database) as made:
            yield made, wire


async def until_paid(budgets: RedisBudgets) -> None:
    async with asyncio.timeout(10):
        while budgets.owed:  # noqa: ASYNC110  # nobody rings a bell for it
            await asyncio.sleep(0.01)


async def outcomes(*tries: Any) -> list[Any]:
    """What came of each: what it returned, or the kind of error it raised."""
    return [type(each) if isinstance(each, Exception) else each for each in await asyncio.gather(*tries, return_exceptions=True)]


# --- reserve, settle, release


async def test_a_reservation_becomes_what_was_really_used(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 400)
    assert hold == BudgetHold(
        id=hold.id,
        user_id=ann,
        day=SUNDAY,
        tokens=400,
        day_limit=DAY,
        month_limit=MONTH,
        reserved_at=NOON,
        expires_at=NOON + timedelta(seconds=60),
    )
    assert await here.used(ann) == (0, 400, 0, 0, 400)
    await here.budgets.settle(hold, tokens=150, micro_usd=77)
    assert await here.budgets.used(ann) == BudgetUsage(day_tokens=150, day_held=0, day_micro_usd=77, month_tokens=150, month_held=0)


async def test_a_call_that_used_nothing_and_one_that_used_more_than_reserved_count_as_they_are(here: Process, ann: UUID) -> None:
    nothing, more = await here.reserve(ann, 400), await here.reserve(ann, 400)
    await here.budgets.settle(nothing, tokens=0, micro_usd=0)
    assert await here.used(ann) == (0, 400, 0, 0, 400)
    await here.budgets.settle(more, tokens=1_200, micro_usd=5)
    assert await here.used(ann) == (1_200, 0, 5, 1_200, 0)
    with pytest.raises(BudgetSpent):
        await here.reserve(ann, 1)


async def test_the_last_token_can_be_had_and_one_more_cannot(here: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 600)
    await here.reserve(ann, 399)
    with pytest.raises(BudgetSpent, match="the day's budget is spent until 2026-11-16 00:00 UTC") as spent:
        await here.reserve(ann, 2)
    assert (spent.value.window, spent.value.resets_at) == ("day", MONDAY_MIDNIGHT)
    await here.reserve(ann, 1)
    assert await here.used(ann) == (600, 400, 0, 600, 400)


async def test_the_month_is_named_where_both_windows_are_spent(here: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 900, month=900)
    with pytest.raises(BudgetSpent) as spent:
        await here.reserve(ann, 101, month=1_000)
    assert (spent.value.window, spent.value.resets_at) == ("month", DECEMBER)
    with pytest.raises(BudgetSpent) as spent:
        await here.reserve(ann, 101, month=1_001)
    assert (spent.value.window, spent.value.resets_at) == ("day", MONDAY_MIDNIGHT)
    assert await here.used(ann) == (900, 0, 0, 900, 0)


async def test_budgets_of_two_users_do_not_meet(here: Process, ann: UUID) -> None:
    await here.reserve(ann, DAY)
    await here.reserve(uuid4(), DAY)
    assert await here.used(uuid4()) == (0, 0, 0, 0, 0)


async def test_a_settled_hold_is_not_settled_again(here: Process, there: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 400)
    await here.budgets.settle(hold, tokens=150, micro_usd=7)
    await here.budgets.settle(hold, tokens=150, micro_usd=7)
    await there.budgets.settle(hold, tokens=999, micro_usd=999)
    await here.budgets.release(hold)
    assert await here.used(ann) == (150, 0, 7, 150, 0)


async def test_a_released_hold_is_free_again_and_what_was_used_after_all_still_counts(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 400)
    await here.budgets.release(hold)
    await here.budgets.release(hold)
    assert await here.used(ann) == (0, 0, 0, 0, 0)
    await here.budgets.settle(hold, tokens=30, micro_usd=1)
    assert await here.used(ann) == (30, 0, 1, 30, 0)


async def test_what_nobody_settles_is_free_when_its_lease_is_over(here: Process, ann: UUID) -> None:
    lost = await here.reserve(ann, DAY, lease_s=60)
    here.clock.move(seconds=59.999)
    with pytest.raises(BudgetSpent):
        await here.reserve(ann, 1)
    here.clock.move(seconds=0.001)
    hold = await here.reserve(ann, DAY)
    assert await here.used(ann) == (0, DAY, 0, 0, DAY)
    await here.budgets.settle(lost, tokens=250, micro_usd=9)  # it was only slow
    assert await here.used(ann) == (250, DAY, 9, 250, DAY)
    await here.budgets.settle(hold, tokens=1, micro_usd=0)
    assert await here.used(ann) == (251, 0, 9, 251, 0)


@pytest.mark.parametrize("amount", [-1, 1.5, "7", None])
async def test_only_whole_numbers_are_counted(here: Process, ann: UUID, amount: Any) -> None:
    hold = await here.reserve(ann, 10)
    for wrong in ({"tokens": amount, "micro_usd": 0}, {"tokens": 0, "micro_usd": amount}):
        with pytest.raises(ValueError, match="expected a whole number"):
            await here.budgets.settle(hold, **wrong)
    for wrong in ({"tokens": amount}, {"tokens": 0}, {"tokens": 1, "day": amount}, {"tokens": 1, "month": amount}):
        with pytest.raises(ValueError, match="expected a whole number"):
            await here.reserve(ann, **wrong)
    with pytest.raises(ValueError, match="expected a whole number"):
        await here.spend.add(amount)
    assert await here.used(ann) == (0, 10, 0, 0, 10)


async def test_every_key_has_a_date_and_an_end(here: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 10)
    await here.reserve(ann, 10)
    await here.spend.admit(100)
    await here.spend.add(5)
    left = {key.decode(): await here.redis.ttl(key) for key in await here.redis.keys()}
    assert left.pop(GENERATION_KEY) == -1
    assert {key: round(ttl / 86_400, 1) for key, ttl in left.items()} == {
        f"hermes:budgets:{ann}:2026-11": 18.5,
        f"hermes:budgets:{ann}:2026-11:leases": 18.5,
        f"hermes:budgets:{ann}:2026-11-15:settled": 3.5,
        "hermes:budgets:global:2026-11-15": 3.5,
        "hermes:budgets:global:2026-11-15:counted": 3.5,
        COUNTER: 3.5,
    }


# --- races


async def test_of_64_who_race_for_10_places_exactly_10_get_one_300_times(here: Process, there: Process, ann: UUID) -> None:
    base = 0
    for _ in range(300):
        tries = [(here, there)[number % 2].reserve(ann, 7, day=base + 76, month=10**9) for number in range(64)]  # ten of 7, and 6 left
        tried = await outcomes(*tries)
        held = [each for each in tried if isinstance(each, BudgetHold)]
        assert (len(held), tried.count(BudgetSpent)) == (10, 54)
        await asyncio.gather(*(there.budgets.settle(hold, tokens=7, micro_usd=3) for hold in held))
        base += 70
    assert await here.used(ann) == (21_000, 0, 9_000, 21_000, 0)


async def test_the_first_calls_of_somebody_new_race_no_better(here: Process, there: Process, user: User) -> None:
    for _ in range(20):
        newcomer = uuid4()
        tried = await outcomes(*((here, there)[number % 2].reserve(newcomer, 7, day=76) for number in range(64)))
        assert (len([each for each in tried if isinstance(each, BudgetHold)]), tried.count(BudgetSpent)) == (10, 54)
    assert here.calls.rebuilds + there.calls.rebuilds == 20


async def test_a_hold_that_is_settled_by_ten_at_once_counts_once(here: Process, there: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 400)
    await asyncio.gather(*((here, there)[number % 2].budgets.settle(hold, tokens=number + 1, micro_usd=0) for number in range(10)))
    tokens, held, *_ = await here.used(ann)
    assert (tokens in range(1, 11), held) == (True, 0)


# --- time


async def test_a_new_day_begins_at_midnight_utc_wherever_the_clock_stands(here: Process, ann: UUID) -> None:
    here.clock.moment = datetime(2026, 11, 16, 7, 59, 59, tzinfo=timezone(timedelta(hours=8)))  # Monday in Bali, still Sunday in UTC
    late = await here.reserve(ann, DAY)
    assert late.day == SUNDAY
    with pytest.raises(BudgetSpent) as spent:
        await here.reserve(ann, 1)
    assert spent.value.resets_at == MONDAY_MIDNIGHT
    here.clock.move(seconds=1)
    assert (await here.reserve(ann, DAY)).day == date(2026, 11, 16)
    assert await here.used(ann) == (0, DAY, 0, 0, 2 * DAY)


async def test_a_call_over_midnight_is_paid_by_the_day_it_was_reserved_on(here: Process, ann: UUID) -> None:
    here.clock.moment = MONDAY_MIDNIGHT - timedelta(seconds=1)
    hold = await here.reserve(ann, 400)
    here.clock.move(seconds=5)
    await here.budgets.settle(hold, tokens=300, micro_usd=11)
    assert await here.used(ann) == (0, 0, 0, 300, 0)
    here.clock.move(seconds=-5)
    assert await here.used(ann) == (300, 0, 11, 300, 0)


async def test_a_lease_over_midnight_is_given_back_to_the_month(here: Process, ann: UUID) -> None:
    here.clock.moment = MONDAY_MIDNIGHT - timedelta(seconds=1)
    await here.reserve(ann, 400, month=400)
    here.clock.move(seconds=5)
    with pytest.raises(BudgetSpent):
        await here.reserve(ann, 1, month=400)
    here.clock.move(seconds=60)
    await here.reserve(ann, 400, month=400)
    assert await here.used(ann) == (0, 400, 0, 0, 400)


@pytest.mark.parametrize(
    ("last", "first"),
    [((2026, 11, 30), (2026, 12, 1)), ((2026, 12, 31), (2027, 1, 1)), ((2028, 2, 29), (2028, 3, 1)), ((2027, 2, 28), (2027, 3, 1))],
)
async def test_a_new_month_begins_after_the_last_day(here: Process, ann: UUID, last: Any, first: Any) -> None:
    here.clock.moment = datetime(*last, 23, 59, 59, tzinfo=UTC)
    hold = await here.reserve(ann, DAY, month=DAY)
    with pytest.raises(BudgetSpent) as spent:
        await here.reserve(ann, 1, month=DAY)
    assert (spent.value.window, spent.value.resets_at) == ("month", datetime(*first, tzinfo=UTC))
    here.clock.move(seconds=1)
    await here.reserve(ann, DAY, month=DAY)
    await here.budgets.settle(hold, tokens=123, micro_usd=4)
    assert await here.used(ann) == (0, DAY, 0, 0, DAY)
    here.clock.move(seconds=-1)
    assert await here.used(ann) == (123, 0, 4, 123, 0)


async def test_a_charge_that_comes_days_too_late_stays_in_sql_alone(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 400)
    here.clock.move(days=3)
    with structlog.testing.capture_logs() as logs:
        await here.budgets.settle(hold, tokens=300, micro_usd=11)
    assert [line["event"] for line in logs] == ["charge_dropped"]
    assert await here.used(ann) == (0, 0, 0, 0, 0)


# --- Redis is lost


async def test_limits_hold_to_the_token_after_redis_lost_everything(here: Process, there: Process, ann: UUID) -> None:
    here.clock.move(days=-1)
    await here.spend_tokens(ann, 300, micro_usd=5)
    here.clock.move(days=1)
    await here.spend_tokens(ann, 600, micro_usd=8)
    await here.redis.flushall()
    with pytest.raises(BudgetSpent):
        await there.reserve(ann, 401)
    with pytest.raises(BudgetSpent):
        await there.reserve(ann, 101, month=1_000)
    await there.reserve(ann, 100, month=1_000)
    await there.reserve(ann, 300)
    assert await here.used(ann) == (600, 400, 8, 900, 400)


async def test_a_process_reserves_again_what_redis_lost_of_its_calls_under_way(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, 600)
    await here.reserve(uuid4(), 600)
    gone = await here.reserve(ann, 100, lease_s=1)
    here.clock.move(seconds=2)
    await here.redis.flushall()
    with pytest.raises(BudgetSpent):
        await here.reserve(ann, 401)
    assert await here.used(ann) == (0, 600, 0, 0, 600)
    await here.budgets.settle(hold, tokens=10, micro_usd=0)
    await here.budgets.settle(gone, tokens=5, micro_usd=0)
    assert await here.used(ann) == (15, 0, 0, 15, 0)


async def test_a_settle_after_a_flush_counts_once_whether_its_row_came_before_or_after(here: Process, there: Process, ann: UUID) -> None:
    before, after = await here.reserve(ann, 100), await here.reserve(ann, 100)
    await here.record(before, 70, 3)
    await here.redis.flushall()
    await there.budgets.settle(before, tokens=70, micro_usd=3)  # the rebuild has found it
    await there.budgets.settle(after, tokens=40, micro_usd=2)  # and this one it has not
    assert await there.used(ann) == (110, 0, 5, 110, 0)
    await there.record(after, 40, 2)
    await there.redis.flushall()
    assert await there.used(ann) == (110, 0, 5, 110, 0)


async def test_two_processes_rebuild_once(here: Process, there: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 600)
    await here.redis.flushall()
    here.calls.rebuilds = 0
    tried = await outcomes(*((here, there)[number % 2].reserve(ann, 100) for number in range(64)))
    assert (len([each for each in tried if isinstance(each, BudgetHold)]), tried.count(BudgetSpent)) == (4, 60)
    assert here.calls.rebuilds + there.calls.rebuilds == 1
    assert await here.used(ann) == (600, 400, 0, 600, 400)


async def test_whoever_waits_too_long_for_a_rebuild_is_refused(here: Process, there: Process, ann: UUID) -> None:
    there.calls.may_go.clear()
    rebuilding = asyncio.create_task(there.reserve(ann, 100))
    while there.calls.rebuilds == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    with pytest.raises(StoreUnavailable, match="being rebuilt"):
        await here.reserve(ann, 100)
    there.calls.may_go.set()
    await rebuilding
    await here.reserve(ann, 100)
    assert here.calls.rebuilds == 0


async def test_a_rebuild_that_was_overtaken_changes_nothing(here: Process, there: Process, ann: UUID) -> None:
    there.calls.may_go.clear()
    slow = asyncio.create_task(there.reserve(ann, 100))
    while there.calls.rebuilds == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await here.redis.flushall()  # and with it the lock
    await here.spend_tokens(ann, 600)
    there.calls.may_go.set()
    await slow
    assert await here.used(ann) == (600, 100, 0, 600, 100)
    assert (here.calls.rebuilds, there.calls.rebuilds) == (1, 1)


async def test_a_rebuild_that_fails_lets_the_next_one_try_at_once(here: Process, ann: UUID) -> None:
    here.sql.is_away = True
    with pytest.raises(StoreUnavailable):
        await here.reserve(ann, 100)
    here.sql.is_away = False
    await here.reserve(ann, 100)


@pytest.mark.parametrize("lost", [None, f"{'ab' * 20}:of-a-server-that-ran-before"])
async def test_counters_of_another_generation_are_not_believed(here: Process, there: Process, ann: UUID, lost: str | None) -> None:
    await here.spend_tokens(ann, 600, micro_usd=5)
    hold = await here.reserve(ann, 100)
    await here.spend.admit(None)
    await here.redis.hset(f"hermes:budgets:{ann}:2026-11", mapping={"used": 1, "used:15": 1})  # as an old copy of the disk would have it
    await here.redis.set(COUNTER, 1)
    await here.redis.delete(GENERATION_KEY)
    if lost:  # all of it from the disk of a server that was stopped, and of one piece
        await here.redis.set(GENERATION_KEY, lost)
        for counters in (f"hermes:budgets:{ann}:2026-11", "hermes:budgets:global:2026-11-15"):
            await here.redis.hset(counters, "generation", lost)
    assert await there.used(ann) == (600, 100, 5, 600, 100)  # reservations that Redis still has are kept
    await there.budgets.settle(hold, tokens=0, micro_usd=0)
    assert await there.used(ann) == (600, 0, 5, 600, 0)
    await there.spend.add(2)
    assert await here.redis.get(COUNTER) == b"7"


async def test_a_user_whose_counters_were_evicted_gets_them_back(here: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 600)
    await here.redis.delete(f"hermes:budgets:{ann}:2026-11")
    assert await here.used(ann) == (600, 0, 0, 600, 0)


# --- Redis is away


async def test_without_redis_nothing_is_reserved(cut_off: tuple[Process, Wire], ann: UUID) -> None:
    here, wire = cut_off
    with pytest.raises(StoreUnavailable, match="Redis cannot be used"):
        await here.reserve(ann, 1)
    with pytest.raises(StoreUnavailable):
        await here.budgets.used(ann)
    wire.plug_in()
    await here.reserve(ann, 1)


async def test_charges_that_redis_did_not_hear_are_sent_when_it_is_back(cut_off: tuple[Process, Wire], there: Process, ann: UUID) -> None:
    here, wire = cut_off
    holds = [await there.reserve(ann, 100) for _ in range(5)]
    for hold in holds[:4]:
        await here.budgets.settle(hold, tokens=30, micro_usd=2)
        await here.budgets.settle(hold, tokens=30, micro_usd=2)
    await here.budgets.release(holds[4])  # runs out by itself
    assert here.budgets.owed == 4
    assert await there.used(ann) == (0, 500, 0, 0, 500)
    wire.plug_in()
    await until_paid(here.budgets)
    assert await there.used(ann) == (120, 100, 8, 120, 100)


async def test_a_charge_that_redis_heard_and_did_not_acknowledge_counts_once(here: Process, ann: UUID, redis_url: str) -> None:
    hold = await here.reserve(ann, 400)
    async with Redis.from_url(redis_url) as operator:
        await operator.execute_command("CLIENT", "PAUSE", "400", "ALL")
    await here.budgets.settle(hold, tokens=150, micro_usd=7)
    assert here.budgets.owed == 1
    await until_paid(here.budgets)
    assert await here.used(ann) == (150, 0, 7, 150, 0)


@asynccontextmanager
async def stalled(redis_url: str, seconds: float) -> AsyncIterator[None]:
    """A server that does nothing for a while, and then all that it was sent meanwhile: also what no client waits for any more."""
    async with Redis.from_url(redis_url) as operator:
        pid = (await operator.info("server"))["process_id"]
    os.kill(pid, signal.SIGSTOP)
    going_on = asyncio.create_task(go_on(pid, seconds))
    try:
        yield
    finally:
        await going_on


async def go_on(pid: int, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_short_stall_of_redis_costs_a_reservation_time_and_is_reserved_once(here: Process, ann: UUID, redis_url: str) -> None:
    await here.reserve(ann, 1)
    async with stalled(redis_url, 0.6):
        holds = await asyncio.gather(*(here.reserve(ann, 100) for _ in range(5)))
    assert len({hold.id for hold in holds}) == 5
    assert await here.used(ann) == (0, 501, 0, 0, 501)
    await here.budgets.settle(holds[0], tokens=30, micro_usd=0)
    assert await here.used(ann) == (30, 401, 0, 30, 401)


async def test_a_redis_that_hangs_for_longer_refuses_and_nothing_stays_reserved(here: Process, ann: UUID, redis_url: str) -> None:
    await here.reserve(ann, 1)
    async with stalled(redis_url, 2.0):
        started = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable):
            await here.reserve(ann, 100)
        assert 1.0 <= asyncio.get_running_loop().time() - started < 1.8
    await until_paid(here.budgets)
    assert await here.used(ann) == (0, 1, 0, 0, 1)


class Lossy(ScriptBatch):
    """The way to Redis on which replies to reservations or to locks get lost, or the reservations come late."""

    def __init__(self, redis: Redis, *, lost: int = 0, late: int = 0, lost_locks: int = 0) -> None:
        super().__init__(redis)
        self.lost, self.late, self.lost_locks = lost, late, lost_locks
        self.on_their_way: list[tuple[AsyncScript, Sequence[str], Sequence[Any]]] = []

    async def run(self, script: AsyncScript, keys: Sequence[str], args: Sequence[Any], *, joined: Joined | None = None) -> Any:
        if script.script == SCRIPTS["reserve"] and self.late:
            self.late -= 1
            self.on_their_way.append((script, keys, args))
            raise ConnectionError("late")
        reply = await super().run(script, keys, args, joined=joined)
        if script.script == SCRIPTS["reserve"] and reply[0] == b"reserved" and self.lost:
            self.lost -= 1
            raise ConnectionError("lost")
        if script.script == SCRIPTS["lock"] and self.lost_locks:
            self.lost_locks -= 1
            raise ConnectionError("lost")
        return reply

    async def arrive(self) -> None:
        """What is late comes after all."""
        for script, keys, args in self.on_their_way:
            await super().run(script, keys, args)


def lossy(here: Process, **faults: int) -> tuple[RedisBudgets, Lossy]:
    way = Lossy(here.redis, **faults)
    return RedisBudgets(here.redis, here.sql, here.calls, alerts=here.alerts, clock=here.clock, batch=way, max_pause_s=0.05), way


async def test_a_process_whose_lock_was_set_without_its_knowledge_rebuilds_all_the_same(here: Process, ann: UUID) -> None:
    await here.redis.flushall()
    here.calls.rebuilds = 0
    budgets, _ = lossy(here, lost_locks=1)
    await budgets.reserve(ann, day_limit=DAY, month_limit=MONTH, tokens=100, lease_s=60)
    assert here.calls.rebuilds == 1


async def test_a_reservation_whose_answers_were_lost_is_made_once(here: Process, ann: UUID) -> None:
    budgets, _ = lossy(here, lost=3)
    hold = await budgets.reserve(ann, day_limit=100, month_limit=MONTH, tokens=100, lease_s=LEASE_S)
    assert await here.used(ann) == (0, 100, 0, 0, 100)
    await budgets.release(hold)
    assert await here.used(ann) == (0, 0, 0, 0, 0)


async def test_a_reservation_that_comes_after_it_was_given_up_reserves_nothing(here: Process, ann: UUID) -> None:
    budgets, way = lossy(here, late=1_000)
    with pytest.raises(StoreUnavailable):
        await budgets.reserve(ann, day_limit=DAY, month_limit=MONTH, tokens=100, lease_s=LEASE_S)
    await until_paid(budgets)
    await way.arrive()
    assert len(way.on_their_way) > 2
    assert await here.used(ann) == (0, 0, 0, 0, 0)


async def test_a_reservation_that_comes_after_it_was_refused_reserves_nothing(here: Process, ann: UUID) -> None:
    budgets, way = lossy(here, late=1)
    other = await here.reserve(ann, 950)
    with pytest.raises(BudgetSpent):
        await budgets.reserve(ann, day_limit=DAY, month_limit=MONTH, tokens=100, lease_s=LEASE_S)
    await until_paid(budgets)
    await here.budgets.release(other)
    await way.arrive()
    assert await here.used(ann) == (0, 0, 0, 0, 0)


async def test_a_reservation_that_is_cancelled_under_way_reserves_nothing(here: Process, ann: UUID, redis_url: str) -> None:
    await here.reserve(ann, 1)
    async with stalled(redis_url, 0.3):
        reserving = asyncio.create_task(here.reserve(ann, 100))
        await asyncio.sleep(0.05)
        reserving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reserving
    await until_paid(here.budgets)
    assert await here.used(ann) == (0, 1, 0, 0, 1)


async def test_reservations_that_were_given_up_leave_room_for_what_is_owed(
    cut_off: tuple[Process, Wire], there: Process, ann: UUID
) -> None:
    here, wire = cut_off
    budgets = RedisBudgets(
        here.redis, here.sql, here.calls, alerts=here.alerts, clock=here.clock, owed_max=4, max_pause_s=0.05, wait_s=0.01
    )
    holds = [await there.reserve(ann, 100) for _ in range(2)]
    refused = await outcomes(*(budgets.reserve(ann, day_limit=DAY, month_limit=MONTH, tokens=1, lease_s=LEASE_S) for _ in range(8)))
    assert (set(refused), budgets.owed) == ({StoreUnavailable}, 2)
    for hold in holds:
        await budgets.settle(hold, tokens=30, micro_usd=0)
    assert budgets.owed == 4
    wire.plug_in()
    await until_paid(budgets)
    assert await there.used(ann) == (60, 0, 0, 60, 0)


async def test_what_is_owed_is_bounded_and_the_rest_is_in_sql(cut_off: tuple[Process, Wire], there: Process, ann: UUID) -> None:
    here, wire = cut_off
    budgets = RedisBudgets(here.redis, here.sql, here.calls, alerts=here.alerts, clock=here.clock, owed_max=2, max_pause_s=0.05)
    holds = [await there.reserve(ann, 100) for _ in range(3)]
    with structlog.testing.capture_logs() as logs:
        for hold in holds:
            await there.record(hold, 30)
            await budgets.settle(hold, tokens=30, micro_usd=0)
    assert (budgets.owed, [line["hold_id"] for line in logs if line["event"] == "charge_dropped"]) == (2, [str(holds[0].id)])
    wire.plug_in()
    await until_paid(budgets)
    assert await there.used(ann) == (60, 100, 0, 60, 100)
    await there.redis.delete(GENERATION_KEY)
    there.clock.move(seconds=61)
    assert await there.used(ann) == (90, 0, 0, 90, 0)


async def test_who_is_cancelled_while_settling_has_still_used_it(here: Process, ann: UUID, redis_url: str) -> None:
    hold = await here.reserve(ann, 400)
    async with Redis.from_url(redis_url) as operator:
        await operator.execute_command("CLIENT", "PAUSE", "100", "ALL")
    settling = asyncio.create_task(here.budgets.settle(hold, tokens=150, micro_usd=7))
    await asyncio.sleep(0.02)
    settling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await settling
    await until_paid(here.budgets)
    assert await here.used(ann) == (150, 0, 7, 150, 0)


# --- thresholds


async def test_a_person_is_told_once_at_80_and_once_at_100_percent(here: Process, there: Process, ann: UUID) -> None:
    limits: dict[str, Any] = {"day": 1_000, "month": 2_000}
    await here.spend_tokens(ann, 799, **limits)
    assert here.alerts.rung == []
    hold = await here.spend_tokens(ann, 1, **limits)
    facts = {"user_id": str(ann), "window": "day", "period": "2026-11-15", "percent": 80, "limit_tokens": 1_000}
    assert here.alerts.rung == [("budget_threshold", facts)]
    await here.budgets.settle(hold, tokens=1, micro_usd=0)
    await asyncio.gather(*(each.spend_tokens(ann, 25, **limits) for each in (here, there) * 4))
    told = here.alerts.thresholds + there.alerts.thresholds
    assert sorted(told) == [(str(ann), "day", 80), (str(ann), "day", 100)]
    here.clock.move(days=1)
    await here.spend_tokens(ann, 1_000, **limits)
    assert here.alerts.thresholds[-4:] == [
        *((str(ann), "day", percent) for percent in (80, 100)),
        *((str(ann), "month", percent) for percent in (80, 100)),
    ]
    assert len(here.alerts.rung + there.alerts.rung) == 6


async def test_only_what_is_used_passes_a_threshold(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, DAY)
    with pytest.raises(BudgetSpent):
        await here.reserve(ann, 1)
    await here.budgets.settle(hold, tokens=799, micro_usd=0)
    assert here.alerts.rung == []


async def test_a_person_is_not_told_again_because_redis_was_lost(here: Process, ann: UUID) -> None:
    await here.spend_tokens(ann, 850)
    await here.redis.flushall()
    await here.spend_tokens(ann, 10)
    assert here.alerts.thresholds == [(str(ann), "day", 80)]


async def test_a_threshold_that_was_passed_while_redis_was_lost_is_told(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, DAY)
    await here.record(hold, DAY)
    await here.redis.flushall()
    await here.budgets.settle(hold, tokens=DAY, micro_usd=0)  # the rebuild has counted it
    assert here.alerts.thresholds == [(str(ann), "day", 80), (str(ann), "day", 100)]


async def test_without_sql_a_person_is_told_rather_twice_than_never(here: Process, ann: UUID) -> None:
    hold = await here.reserve(ann, DAY)
    here.sql.is_away = True
    await here.budgets.settle(hold, tokens=850, micro_usd=0)
    assert here.alerts.thresholds == [(str(ann), "day", 80)]
    await here.budgets.settle(await here.reserve(ann, 1), tokens=1, micro_usd=0)
    assert here.alerts.thresholds == [(str(ann), "day", 80)]  # as long as Redis remembers, once


# --- exactness


@dataclass
class Model:
    """What budgets must do, without any cleverness: every hold ever made, and sums over all of them at every question."""

    holds: dict[UUID, BudgetHold] = field(default_factory=dict)
    settled: dict[UUID, tuple[int, int]] = field(default_factory=dict)
    ended: set[UUID] = field(default_factory=set)

    def used(self, user_id: UUID, now: datetime) -> tuple[int, int, int, int, int]:
        mine = [
            hold for hold in self.holds.values() if hold.user_id == user_id and (hold.day.year, hold.day.month) == (now.year, now.month)
        ]
        today = [hold for hold in mine if hold.day == now.date()]
        day_used, day_usd = self.sums(today)
        return day_used, self.held(today, now), day_usd, self.sums(mine)[0], self.held(mine, now)

    def sums(self, holds: list[BudgetHold]) -> tuple[int, int]:
        charges = [self.settled[hold.id] for hold in holds if hold.id in self.settled]
        return sum(tokens for tokens, _ in charges), sum(micro_usd for _, micro_usd in charges)

    def held(self, holds: list[BudgetHold], now: datetime) -> int:
        return sum(hold.tokens for hold in holds if hold.id not in self.ended and hold.expires_at > now)

    def may_reserve(self, user_id: UUID, now: datetime, tokens: int, day: int, month: int) -> str | None:
        day_used, day_held, _, month_used, month_held = self.used(user_id, now)
        if month_used + month_held + tokens > month:
            return "month"
        return "day" if day_used + day_held + tokens > day else None


async def test_ten_thousand_random_calls_are_counted_to_the_last_token(  # noqa: PLR0912  # one branch per kind of step
    here: Process, there: Process, ann: UUID
) -> None:
    """Two processes, odd amounts up to 2^40, a clock that runs over days and months, flushes in between."""
    dice, model, clock = random.Random(7), Model(), here.clock
    there.budgets._clock = clock
    unrecorded: list[tuple[BudgetHold, int, int]] = []
    recent: list[BudgetHold] = []
    for number in range(10_000):
        budgets = dice.choice([here, there])
        action = dice.choices(["reserve", "settle", "release", "wait", "ask", "lose"], [40, 35, 8, 8, 8, 0.3])[0]
        if action == "reserve":
            tokens = dice.choice([1, 7, 4_099, 2**33 + 1, 2**40 - 1])
            day, month, lease_s = dice.choice([10**4, 2**41, 2**45]), dice.choice([10**6, 2**46]), dice.choice([1.0, 60.0, 4_000.0])
            refused = model.may_reserve(ann, clock.moment, tokens, day, month)
            if refused:
                with pytest.raises(BudgetSpent) as spent:
                    await budgets.reserve(ann, tokens, day=day, month=month, lease_s=lease_s)
                assert spent.value.window == refused
            else:
                hold = await budgets.reserve(ann, tokens, day=day, month=month, lease_s=lease_s)
                model.holds[hold.id] = hold
                recent = [*recent[-30:], hold]
        elif action in {"settle", "release"} and recent:
            hold = dice.choice(recent)
            if hold.day + timedelta(days=3) <= clock.moment.date():
                continue
            model.ended.add(hold.id)
            if action == "release":
                await budgets.budgets.release(hold)
            else:
                tokens, micro_usd = dice.choice([0, 1, hold.tokens, hold.tokens + 13]), dice.choice([0, 3, 2**37 + 5])
                if hold.id not in model.settled:
                    model.settled[hold.id] = tokens, micro_usd
                    unrecorded.append((hold, tokens, micro_usd))
                await budgets.budgets.settle(hold, tokens=tokens, micro_usd=micro_usd)
        elif action == "wait":
            clock.move(seconds=dice.choice([0.5, 59.5, 3_600, 30_000]))
        elif action == "lose":
            async with here.sql.begin() as tx:
                for hold, tokens, micro_usd in unrecorded:
                    await here.calls.add(tx, call_of(hold, tokens, micro_usd))
            unrecorded.clear()
            # What is under way is known to the process that reserved it alone; so let it all run out, and lose the rest.
            clock.move(seconds=4_000)
            await here.redis.flushall()
        else:
            assert await budgets.used(ann) == model.used(ann, clock.moment), number
    assert await here.used(ann) == model.used(ann, clock.moment)
    assert (len(model.settled) > 1_000, clock.moment.month != NOON.month) == (True, True)


# --- the platform's money


async def test_at_the_cap_every_call_is_refused_until_the_next_day(here: Process, there: Process) -> None:
    await here.spend.admit(10)
    await here.spend.add(9)
    await there.spend.admit(10)
    await there.spend.add(1)
    for each in (here, there):
        with pytest.raises(CallsPaused, match="paused by the cap until 2026-11-16 00:00 UTC") as paused:
            await each.spend.admit(10)
        assert (paused.value.reason, paused.value.until) == ("cap", MONDAY_MIDNIGHT)
    await here.spend.admit(11)
    await here.spend.admit(None)
    here.clock.moment = MONDAY_MIDNIGHT
    await here.spend.admit(10)


async def test_money_of_a_call_over_midnight_is_that_of_its_day(here: Process) -> None:
    here.clock.moment = MONDAY_MIDNIGHT
    await here.spend.add(7, day=SUNDAY)
    assert (await here.redis.get(COUNTER), await here.redis.get("agnt:global_spend:2026-11-16")) == (b"7", None)


async def test_many_odd_amounts_add_up_exactly(here: Process, there: Process) -> None:
    dice = random.Random(3)
    amounts = [dice.randrange(2**33) for _ in range(500)]
    await asyncio.gather(*((here, there)[number % 2].spend.add(amount) for number, amount in enumerate(amounts)))
    assert await here.redis.get(COUNTER) == str(sum(amounts)).encode()


async def test_the_platforms_counter_is_rebuilt_from_sql_once(here: Process, there: Process, ann: UUID) -> None:
    hold = await here.spend_tokens(ann, 10, micro_usd=70)
    await here.spend.add(70, call_id=hold.id)
    await here.redis.flushall()
    here.calls.rebuilds = 0
    tried = await outcomes(*((here, there)[number % 2].spend.admit(70) for number in range(20)))
    assert tried == [CallsPaused] * 20
    assert here.calls.rebuilds + there.calls.rebuilds == 1


async def test_money_that_a_rebuild_found_is_not_added_again(here: Process, ann: UUID) -> None:
    found, later = await here.spend_tokens(ann, 10, micro_usd=70), await here.reserve(ann, 10)
    await here.spend.add(70, call_id=found.id)  # the counter of the day is made here, out of SQL
    await here.record(later, 10, 5)
    await here.spend.add(5, call_id=later.id)
    assert await here.redis.get(COUNTER) == b"75"


async def test_without_redis_calls_are_admitted_and_their_money_is_not_forgotten(
    cut_off: tuple[Process, Wire], there: Process, ann: UUID
) -> None:
    here, wire = cut_off
    await there.spend.admit(10)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            await here.spend.admit(0)
            hold = replace(await there.reserve(ann, 1), id=uuid4())
            await there.record(hold, 1, 5)
            await here.spend.add(5, call_id=hold.id)
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["spend_not_seen"]
    await there.spend.admit(15)
    wire.plug_in()
    with pytest.raises(CallsPaused):
        await here.spend.admit(15)
    assert await there.redis.get(COUNTER) == b"15"


async def test_a_redis_that_hangs_admits(here: Process, redis_url: str) -> None:
    await here.spend.admit(1)
    async with Redis.from_url(redis_url) as operator:
        await operator.execute_command("CLIENT", "PAUSE", "400", "ALL")
        await here.spend.admit(0)
        await operator.ping()
    with pytest.raises(CallsPaused):
        await here.spend.admit(0)


async def test_a_person_is_told_of_the_cap_once_at_80_and_once_at_100_percent(here: Process, there: Process) -> None:
    for amount in (79, 1, 19, 1, 5):
        await here.spend.add(amount)
        await outcomes(*(each.spend.admit(100) for each in (here, there) * 3))
    await here.redis.flushall()
    await here.spend.add(105)
    await outcomes(here.spend.admit(100))
    told = here.alerts.rung + there.alerts.rung
    facts = {"user_id": None, "window": "cap", "period": "2026-11-15", "cap_micro_usd": 100}
    assert sorted(told, key=lambda each: str(each[1]["percent"]), reverse=True) == [
        ("budget_threshold", {**facts, "percent": 80, "spent_micro_usd": 80}),
        ("budget_threshold", {**facts, "percent": 100, "spent_micro_usd": 100}),
    ]


# --- the kill switch


async def paused(process: Process) -> tuple[str, datetime | None]:
    with pytest.raises(CallsPaused) as raised:
        await process.spend.admit(None)
    return raised.value.reason, raised.value.until


async def test_the_kill_switch_stops_every_process_at_once(here: Process, there: Process) -> None:
    await there.spend.admit(None)
    await here.spend.add(3)
    ttl = await here.redis.ttl(COUNTER)
    await here.spend.kill_switch("a loop", "ann")
    assert here.alerts.rung == [("kill_switch_engaged", {"by": "ann", "reason": "a loop"})]
    assert await here.redis.get(COUNTER) == b"999999000000"
    assert ttl - 5 <= await here.redis.ttl(COUNTER) <= ttl
    assert [await paused(here), await paused(there)] == [("kill switch", None)] * 2
    latch = await there.spend.kill_switch_record()
    assert latch is not None
    assert (latch.by, latch.reason) == ("ann", "a loop")


async def test_the_kill_switch_holds_without_redis_and_over_a_restart(
    cut_off: tuple[Process, Wire], there: Process, database: Database
) -> None:
    here, wire = cut_off
    await there.spend.admit(None)
    await here.spend.kill_switch("a loop", "ann")
    assert await paused(here) == ("kill switch", None)
    await asyncio.sleep(0.11)  # the real time between two looks at SQL
    assert await paused(there) == ("kill switch", None)
    async with process(wire.url, database) as restarted:
        assert await paused(restarted) == ("kill switch", None)


async def test_neither_a_new_day_nor_a_flush_releases_the_kill_switch(here: Process, there: Process) -> None:
    await here.spend.kill_switch("a loop", "ann")
    for each in (here, there):
        each.clock.move(days=1)
    await here.redis.flushall()
    assert [await paused(here), await paused(there)] == [("kill switch", None)] * 2
    await here.spend.add(5)
    assert await here.redis.get("agnt:global_spend:2026-11-16") == str(KILL_SWITCH_MICRO_USD + 5).encode()


async def test_only_a_person_releases_it_and_then_the_counter_says_what_was_spent(here: Process, there: Process, ann: UUID) -> None:
    hold = await here.spend_tokens(ann, 10, micro_usd=70)
    await here.spend.add(70, call_id=hold.id)
    await here.spend.kill_switch("a loop", "ann")
    assert await paused(there) == ("kill switch", None)
    await here.spend.release("ben")
    assert here.alerts.rung[-2:] == [("kill_switch_released", {"by": "ben"}), ("end of kill_switch_engaged", {})]
    await here.spend.release("ben")
    await here.spend.admit(71)
    await asyncio.sleep(0.11)
    await there.spend.admit(71)
    with pytest.raises(CallsPaused) as spent:
        await there.spend.admit(70)
    assert spent.value.reason == "cap"
    assert await there.spend.kill_switch_record() is None


async def test_a_release_elsewhere_is_heard_where_the_switch_was_pulled_and_stays(here: Process, there: Process) -> None:
    await here.spend.kill_switch("a loop", "ann")
    await there.spend.release("ben")
    for _ in range(3):
        await asyncio.sleep(0.11)
        await here.spend.admit(None)
        await there.spend.admit(None)


async def test_a_switch_pulled_again_right_after_a_release_elsewhere_holds(here: Process, there: Process) -> None:
    await here.spend.kill_switch("a loop", "ann")
    await there.spend.kill_switch_record()
    await there.spend.release("ben")
    await here.spend.kill_switch("again", "cat")  # this process has not heard of the release
    await asyncio.sleep(0.11)
    assert [await paused(here), await paused(there)] == [("kill switch", None)] * 2


async def test_without_sql_the_switch_holds_where_it_was_pulled_and_is_saved_later(here: Process, there: Process) -> None:
    await there.spend.admit(None)
    here.sql.is_away = there.sql.is_away = True
    with pytest.raises(StoreUnavailable):
        await here.spend.kill_switch("a loop", "ann")
    assert await paused(here) == ("kill switch", None)
    assert await paused(there) == ("kill switch", MONDAY_MIDNIGHT)  # as far as the counter knows
    here.sql.is_away = there.sql.is_away = False
    await asyncio.sleep(0.11)
    assert await paused(here) == ("kill switch", None)
    await asyncio.sleep(0.11)
    assert await paused(there) == ("kill switch", None)
    latch = await there.spend.kill_switch_record()
    assert latch is not None
    assert (latch.by, latch.reason) == ("ann", "a loop")


async def test_nothing_is_admitted_before_the_latch_was_read_and_what_was_read_stands(here: Process) -> None:
    here.sql.is_away = True
    with pytest.raises(StoreUnavailable, match="whether the kill switch is engaged"):
        await here.spend.admit(None)
    here.sql.is_away = False
    await here.spend.admit(None)
    here.sql.is_away = True
    await asyncio.sleep(0.11)
    await here.spend.admit(None)


async def test_a_ceiling_that_was_set_by_hand_holds_until_midnight(here: Process) -> None:
    await here.redis.set(COUNTER, KILL_SWITCH_MICRO_USD)
    assert await paused(here) == ("kill switch", MONDAY_MIDNIGHT)
    await here.redis.delete(GENERATION_KEY)
    assert await paused(here) == ("kill switch", MONDAY_MIDNIGHT)
    here.clock.moment = MONDAY_MIDNIGHT
    await here.spend.admit(None)


async def test_a_look_that_began_before_the_switch_was_pulled_does_not_release_it(here: Process) -> None:
    await here.spend.admit(None)
    await asyncio.sleep(0.11)
    engaged, has_read, may_go = here.spend._records.engaged, asyncio.Event(), asyncio.Event()

    async def slow(tx: Transaction) -> Any:
        found = await engaged(tx)
        has_read.set()
        await may_go.wait()
        return found

    here.spend._records.engaged = slow  # type: ignore[method-assign]
    looking = asyncio.create_task(here.spend.kill_switch_record())
    await has_read.wait()
    here.spend._records.engaged = engaged  # type: ignore[method-assign]
    await here.spend.kill_switch("a loop", "ann")
    may_go.set()
    await looking
    here.sql.is_away = True  # nobody can correct it now
    assert await paused(here) == ("kill switch", None)


async def test_many_who_ask_at_once_read_the_latch_once(here: Process) -> None:
    looks = 0
    engaged = here.spend._records.engaged

    async def counting(tx: Transaction) -> Any:
        nonlocal looks
        looks += 1
        return await engaged(tx)

    here.spend._records.engaged = counting  # type: ignore[method-assign]
    await asyncio.gather(*(here.spend.kill_switch_record() for _ in range(64)))
    assert looks == 1
