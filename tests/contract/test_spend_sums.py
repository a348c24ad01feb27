"""The port SpendSums: the sums of every hour equal the rows, to the micro-dollar, whatever the order in which rows arrive."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.gateway.spend_sums import HOUR, HourSummer
from hermes.ports.backends import Usage
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, CallTotals, ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.spending import SpendDimension, SpendTotals, SumSource
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from hermes.turn import Platform

NOW = datetime.now(UTC)
THIS_HOUR = NOW.replace(minute=0, second=0, microsecond=0)
FOREVER = {"since": datetime(2020, 1, 1, tzinfo=UTC), "until": datetime(2100, 1, 1, tzinfo=UTC)}
KEYS = (UUID(int=1), UUID(int=2))
ANSWERED = (CallAttempt("haiku", "anthropic", "claude-haiku", "answered", 5),)
FELL_OVER = (CallAttempt("sonnet", "anthropic", "claude-sonnet", "Overloaded", 5), *ANSWERED)
calls, sums = PostgresModelCalls(), PostgresSpendSums()


def call(**more: Any) -> ModelCall:
    plain: dict[str, Any] = {
        "id": uuid4(),
        "day": date(2026, 11, 15),
        "account_id": "bali",
        "source": CallSource.ROUTER,
        "tier": "free",
        "model": "claude-haiku",
        "outcome": CallOutcome.ANSWERED,
        "latency_ms": 800,
        "attempts": ANSWERED,
        "usage": Usage(tokens_in=100, tokens_out=20, cache_read=10),
        "micro_usd": 7,
    }
    return ModelCall(**{**plain, **more})


async def add(database: Database, made: ModelCall, at: datetime) -> None:
    """Record a call as if its transaction had begun at that time."""
    async with database.begin() as tx:
        await connection_of(tx).execute("insert into accounts (id) values (%s) on conflict do nothing", [made.account_id])
        await calls.add(tx, made)
        await connection_of(tx).execute("update calls set created_at = %s where id = %s", [at, made.id])


async def rows(database: Database, query: bytes) -> list[tuple[Any, ...]]:
    async with database.begin() as tx:
        return await (await connection_of(tx).execute(query)).fetchall()


async def spend_by(database: Database, dimension: SpendDimension, **window: datetime) -> dict[str, SpendTotals]:
    async with database.begin() as tx:
        return {totals.value: totals for totals in await sums.spend_by(tx, dimension, **{**FOREVER, **window})}


def summer(database: Database) -> HourSummer:
    return HourSummer(database, sums)


made_calls = st.lists(
    st.tuples(
        st.builds(
            call,
            account_id=st.sampled_from(["bali", "shop"]),
            agent=st.sampled_from([None, "bali", "hermes"]),
            platform=st.sampled_from([None, Platform.REST, Platform.TELEGRAM]),
            purpose=st.sampled_from([None, CallPurpose.ANSWER, CallPurpose.DREAM]),
            api_key_id=st.sampled_from([None, *KEYS]),
            outcome=st.sampled_from([CallOutcome.ANSWERED, CallOutcome.FAILED]),
            attempts=st.sampled_from([(), ANSWERED, FELL_OVER]),
            micro_usd=st.integers(0, 2**45),
            id=st.builds(uuid4),
        ),
        st.integers(0, 60 * 5),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=made_calls)
async def test_random_calls_in_any_order_are_summed_exactly(database: Database, made: list[tuple[ModelCall, int, bool]]) -> None:
    await rows(database, b"with c as (delete from calls), s as (delete from sum_marks) delete from spend_hours returning 1")
    expected: dict[SpendDimension, Counter[str]] = {dimension: Counter() for dimension in SpendDimension}
    for each, minutes, is_summed in made:
        at = NOW - timedelta(minutes=minutes)
        await add(database, each, at)
        if is_summed:
            await summer(database).sum_recent()
            # As it is after a transaction that began before all of these and is open still.
            await rows(database, b"update sum_marks set summed_to = summed_to - interval '6 hours' returning 1")
        for dimension, value in {
            SpendDimension.AGENT: each.agent or "",
            SpendDimension.PLATFORM: each.platform or "",
            SpendDimension.PURPOSE: each.purpose or each.source,
            SpendDimension.KEY: str(each.api_key_id or ""),
            SpendDimension.ACCOUNT: each.account_id,
            SpendDimension.TIER: each.tier,
            SpendDimension.MODEL: each.model,
            SpendDimension.DAY: f"{at:%Y-%m-%d}",
            SpendDimension.HOUR: f"{at:%Y-%m-%dT%H}:00Z",
        }.items():
            expected[dimension][value] += each.micro_usd
    await summer(database).sum_recent()
    for dimension in SpendDimension:
        found = await spend_by(database, dimension)
        assert {value: totals.micro_usd for value, totals in found.items()} == expected[dimension]
        assert sum(totals.calls for totals in found.values()) == len(made)
        assert sum(totals.fell_over for totals in found.values()) == sum(
            each.outcome is CallOutcome.ANSWERED and each.attempts is FELL_OVER for each, *_ in made
        )
    before = await rows(database, b"select * from spend_hours order by hour, micro_usd, calls")
    await summer(database).sum_recent()
    assert await rows(database, b"select * from spend_hours order by hour, micro_usd, calls") == before


async def test_a_sum_says_how_its_calls_ended(database: Database) -> None:
    await add(database, call(), NOW)
    await add(database, call(cache_hit=True, micro_usd=0, latency_ms=0), NOW)
    await add(database, call(outcome=CallOutcome.FAILED, usage=Usage(), micro_usd=0), NOW)
    await add(database, call(attempts=FELL_OVER), NOW)
    await add(database, call(outcome=CallOutcome.REFUSED, usage=Usage(), micro_usd=0, latency_ms=0, times=40), NOW)
    await summer(database).sum_recent()
    [totals] = (await spend_by(database, SpendDimension.TIER)).values()
    assert asdict(totals) == {
        "value": "free",
        "calls": 4,
        "failed": 1,
        "refused": 40,
        "cache_hits": 1,
        "fell_over": 1,
        "tokens_in": 200,
        "tokens_out": 40,
        "cache_read": 20,
        "micro_usd": 14,
        "latency_ms": 2_400,
    }


async def test_a_call_whose_transaction_was_open_for_hours_is_summed_when_it_commits(database: Database, database_url: str) -> None:
    await add(database, call(), NOW)
    async with await psycopg.AsyncConnection.connect(database_url) as slow:
        [began] = await (await slow.execute("select now()")).fetchone() or [None]
        async with database.once() as tx:
            window = await sums.window(tx, SumSource.CALLS)
        assert window is not None
        assert window.open_since == began.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        await summer(database).sum_recent()
        marks = await rows(database, b"select name, summed_to from sum_marks order by name")
        assert marks == [("calls", window.open_since), ("tool_costs", window.open_since)]
    # What the mark is when that transaction began five hours ago: its row is found, and the hours before are left alone.
    async with database.begin() as tx:
        await connection_of(tx).execute("update sum_marks set summed_to = %s", [THIS_HOUR - 5 * HOUR])
    await add(database, call(micro_usd=11), NOW - timedelta(hours=5))
    await add(database, call(micro_usd=13), NOW - timedelta(hours=6))
    await summer(database).sum_recent()
    [totals] = (await spend_by(database, SpendDimension.TIER)).values()
    assert totals.micro_usd == 18
    await summer(database).sum_yesterday(NOW + timedelta(days=1))
    await summer(database).sum_yesterday(NOW)
    [totals] = (await spend_by(database, SpendDimension.TIER)).values()
    assert totals.micro_usd == 31


async def test_the_first_sums_of_an_old_table_are_made_hour_by_hour_and_go_on_where_they_were(database: Database) -> None:
    for day in range(40):
        await add(database, call(), NOW - timedelta(days=day))

    class Stopped(PostgresSpendSums):
        left = 3

        async def sum_hour(self, tx: Transaction, source: SumSource, hour: datetime, *, summed_to: datetime) -> None:
            self.left -= source is SumSource.CALLS
            if self.left < 0:
                raise asyncio.CancelledError
            await super().sum_hour(tx, source, hour, summed_to=summed_to)

    with pytest.raises(asyncio.CancelledError):
        await HourSummer(database, Stopped()).sum_recent()
    assert len(await spend_by(database, SpendDimension.DAY)) == 3
    [[mark]] = await rows(database, b"select summed_to from sum_marks where name = 'calls'")
    assert mark == THIS_HOUR - timedelta(days=37) + HOUR
    await summer(database).sum_recent()
    found = await spend_by(database, SpendDimension.DAY)
    assert (len(found), sum(totals.micro_usd for totals in found.values())) == (40, 280)
    assert list(found) == sorted(found)


async def test_sums_of_rows_that_are_gone_or_changed_are_made_anew(database: Database) -> None:
    await add(database, call(agent="bali"), NOW)
    await add(database, call(agent="hermes"), NOW)
    await summer(database).sum_recent()
    await rows(database, b"update calls set agent = 'vera', micro_usd = 3 where agent = 'bali' returning 1")
    await summer(database).sum_recent()
    assert {value: totals.micro_usd for value, totals in (await spend_by(database, SpendDimension.AGENT)).items()} == {
        "hermes": 7,
        "vera": 3,
    }


async def test_two_processes_never_put_older_sums_in_the_place_of_newer_ones(database: Database) -> None:
    await add(database, call(), NOW)
    first = database.begin()
    tx = await first.__aenter__()
    await sums.sum_hour(tx, SumSource.CALLS, THIS_HOUR, summed_to=THIS_HOUR)
    second = asyncio.create_task(summer(database).sum_recent())
    await add(database, call(), NOW)
    while not await rows(database, b"select 1 from pg_locks where locktype = 'advisory' and not granted"):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await first.__aexit__(None, None, None)
    await second
    assert {totals.micro_usd for totals in (await spend_by(database, SpendDimension.TIER)).values()} == {14}


async def test_money_is_found_by_what_it_was_spent_for_and_the_most_comes_first(database: Database) -> None:
    await add(database, call(agent="bali", micro_usd=1), NOW)
    await add(database, call(agent="hermes", micro_usd=5), NOW - HOUR)
    await summer(database).sum_recent()
    assert list(await spend_by(database, SpendDimension.AGENT)) == ["hermes", "bali"]
    assert list(await spend_by(database, SpendDimension.AGENT, since=THIS_HOUR)) == ["bali"]
    assert list(await spend_by(database, SpendDimension.AGENT, until=THIS_HOUR)) == ["hermes"]


async def test_a_turns_cost_is_all_that_it_caused(database: Database) -> None:
    turn = uuid4()
    for purpose in (CallPurpose.COMPACT, CallPurpose.ANSWER, CallPurpose.CONCLUDE, CallPurpose.REMEMBER):
        await add(database, call(turn_id=turn, purpose=purpose), NOW)
    await add(database, replace(call(turn_id=turn), outcome=CallOutcome.REFUSED, usage=Usage(), micro_usd=0), NOW)
    await add(database, call(turn_id=uuid4()), NOW)
    async with database.once() as tx:
        assert await calls.cost_of_turn(tx, turn) == CallTotals(4, 480, 28)
        assert await calls.cost_of_turn(tx, uuid4()) == CallTotals(0, 0, 0)
