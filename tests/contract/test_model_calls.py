"""The port ModelCalls: every call once, and sums that budgets can be rebuilt from. The record of the kill switch: one at most."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from hermes.ports.backends import Usage
from hermes.ports.credits import KillSwitchRecord
from hermes.ports.models import CallAttempt, CallOutcome, CallPurpose, CallSource, CallTotals, DayTotals, ModelCall
from hermes.ports.users import User
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.turn import Platform

SATURDAY, SUNDAY, MONDAY = date(2026, 11, 14), date(2026, 11, 15), date(2026, 11, 16)
calls, latches = PostgresModelCalls(), PostgresKillSwitchRecords()


def call(
    user_id: UUID | None, day: date = SUNDAY, *, tokens_in: int = 100, tokens_out: int = 20, micro_usd: int = 7, **more: Any
) -> ModelCall:
    """A short answer of Haiku."""
    usage = Usage(tokens_in=tokens_in, tokens_out=tokens_out)
    plain = {"account_id": "bali", "source": CallSource.ROUTER, "tier": "free", "model": "claude-haiku", "outcome": CallOutcome.ANSWERED}
    return ModelCall(
        **{"id": uuid4(), "day": day, "user_id": user_id, "usage": usage, "micro_usd": micro_usd, "latency_ms": 800, **plain, **more}
    )


async def add(database: Database, *made: ModelCall) -> list[bool]:
    async with database.begin() as tx:
        return [await calls.add(tx, each) for each in made]


async def stored(database: Database) -> list[dict[str, Any]]:
    async with database.begin() as tx, connection_of(tx).cursor(row_factory=dict_row) as cursor:
        await cursor.execute("select * from calls order by created_at, id")
        return await cursor.fetchall()


async def test_a_call_is_stored_with_all_that_it_cost_and_nothing_that_was_said(database: Database, user: User) -> None:
    turn_id, session_id, api_key_id = uuid4(), uuid4(), uuid4()
    whole = call(
        user.id,
        turn_id=turn_id,
        session_id=session_id,
        response_id="ab12",
        source=CallSource.COMPLETIONS,
        backend="ollama",
        answered_by="llama3.2:3b",
        attempts=[
            CallAttempt("claude-haiku", "anthropic", "claude-haiku-4-5", "Overloaded", 41, 529),
            CallAttempt("ollama", "ollama", "llama3.2:3b", "answered", 700),
        ],
        usage=Usage(tokens_in=1_000, tokens_out=50, cache_read=600, cache_write=300, cache_write_1h=100, is_estimated=True),
        micro_usd=1_250,
        rate={"in": 1_000_000, "out": 5_000_000},
        first_token_ms=120,
        purpose=CallPurpose.COMPLETIONS,
        agent="bali",
        platform=Platform.COMPLETIONS,
        api_key_id=api_key_id,
        error="CutShort",
        waited_ms=30,
        plan=7,
    )
    assert await add(database, whole) == [True]
    [row] = await stored(database)
    del row["created_at"]
    assert row == {
        "id": whole.id,
        "turn_id": turn_id,
        "user_id": user.id,
        "account_id": "bali",
        "session_id": session_id,
        "response_id": "ab12",
        "source": "completions",
        "tier": "free",
        "backend": "ollama",
        "model": "claude-haiku",
        "answered_by": "llama3.2:3b",
        "attempts": [
            {"name": "claude-haiku", "backend": "anthropic", "model": "claude-haiku-4-5", "outcome": "Overloaded", "ms": 41, "status": 529},
            {"name": "ollama", "backend": "ollama", "model": "llama3.2:3b", "outcome": "answered", "ms": 700, "status": None},
        ],
        "tokens_in": 1_000,
        "tokens_out": 50,
        "cache_read": 600,
        "cache_write": 300,
        "cache_write_1h": 100,
        "tokens": 1_050,
        "micro_usd": 1_250,
        "rate": {"in": 1_000_000, "out": 5_000_000},
        "is_estimated": True,
        "cache_hit": False,
        "outcome": "answered",
        "latency_ms": 800,
        "first_token_ms": 120,
        "day": SUNDAY,
        "purpose": "completions",
        "agent": "bali",
        "platform": "completions",
        "api_key_id": api_key_id,
        "error": "CutShort",
        "waited_ms": 30,
        "times": 1,
        "plan": 7,
    }


async def test_a_call_that_is_added_again_stays_as_it_was(database: Database, user: User) -> None:
    first = call(user.id)
    assert await add(database, first, first) == [True, False]
    before = await stored(database)
    assert await add(database, replace(first, micro_usd=999)) == [False]
    assert await stored(database) == before


async def test_sums_are_those_of_a_user_or_of_everybody(database: Database, user: User) -> None:
    await add(database, call(user.id, SATURDAY), call(user.id, SUNDAY), call(user.id, MONDAY), call(None, SUNDAY, source=CallSource.CANARY))
    async with database.begin() as tx:
        assert await calls.totals(tx, since=SUNDAY, until=MONDAY) == CallTotals(2, 240, 14)
        assert await calls.totals(tx, since=SUNDAY, until=MONDAY, user_id=user.id) == CallTotals(1, 120, 7)
        assert await calls.totals(tx, since=SATURDAY, until=date(2026, 12, 1), user_id=user.id) == CallTotals(3, 360, 21)
        assert await calls.totals(tx, since=SATURDAY, until=date(2026, 12, 1), user_id=uuid4()) == CallTotals(0, 0, 0)


async def test_what_a_cache_answered_uses_no_budget(database: Database, user: User) -> None:
    hit = call(user.id, cache_hit=True, micro_usd=0)
    assert (hit.tokens, call(user.id).tokens) == (0, 120)
    await add(database, hit)
    async with database.begin() as tx:
        assert await calls.totals(tx, since=SUNDAY, until=MONDAY, user_id=user.id) == CallTotals(1, 0, 0)
    with pytest.raises(psycopg.errors.CheckViolation):
        await add(database, call(user.id, cache_hit=True, micro_usd=1))


async def test_days_come_with_the_calls_that_they_count(database: Database, user: User) -> None:
    made = [call(user.id, SATURDAY), call(user.id, SUNDAY, micro_usd=2**40), call(user.id, SUNDAY, micro_usd=2**41 + 1)]
    await add(database, *made, call(None, SUNDAY))
    async with database.begin() as tx:
        saturday, sunday = await calls.by_day(tx, user.id, since=SATURDAY, until=MONDAY, ids_since=SUNDAY)
        assert await calls.by_day(tx, uuid4(), since=SATURDAY, until=MONDAY, ids_since=SUNDAY) == []
    assert saturday == DayTotals(SATURDAY, CallTotals(1, 120, 7), [])
    assert (sunday.day, sunday.totals, set(sunday.ids)) == (SUNDAY, CallTotals(2, 240, 2**40 + 2**41 + 1), {made[1].id, made[2].id})


async def test_a_day_of_the_platform_names_its_latest_calls(database: Database, user: User) -> None:
    old, new = call(user.id), call(None)
    await add(database, old, new, call(user.id, SATURDAY))
    async with database.begin() as tx:
        await connection_of(tx).execute("update calls set created_at = now() - interval '10 minutes' where id = %s", [old.id])
        assert await calls.on_day(tx, SUNDAY, recent_s=300) == DayTotals(SUNDAY, CallTotals(2, 240, 14), [new.id])
        assert await calls.on_day(tx, MONDAY, recent_s=300) == DayTotals(MONDAY, CallTotals(0, 0, 0), [])


async def test_a_threshold_is_noted_once_per_subject_period_and_percent(database: Database) -> None:
    asked = [
        ("ann", "2026-11", 80),
        ("ann", "2026-11", 80),
        ("ann", "2026-11", 100),
        ("ann", "2026-11-15", 80),
        ("platform", "2026-11", 80),
    ]
    async with database.begin() as tx:
        assert [await calls.note_alert(tx, *each) for each in asked] == [True, False, True, True, True]


# --- the kill switch


async def test_the_first_reason_stands_until_somebody_releases_it(database: Database) -> None:
    async with database.begin() as tx:
        assert await latches.engaged(tx) is None
        first = await latches.engage(tx, "ann", "a loop")
        assert (first.by, first.reason) == ("ann", "a loop")
        assert await latches.engage(tx, "ben", "the bill") == first
        assert await latches.engaged(tx) == first
        assert [await latches.release(tx, "cat"), await latches.release(tx, "cat")] == [True, False]
        assert await latches.engaged(tx) is None
        again = await latches.engage(tx, "ben", "the bill")
        assert (again.by, again.reason) == ("ben", "the bill")
        rows = await connection_of(tx).execute("select by, reason, released_by, released_at is null from kill_latch order by id")
        assert await rows.fetchall() == [("ann", "a loop", "cat", False), ("ben", "the bill", None, True)]


async def test_ten_who_pull_the_switch_at_once_engage_one_latch(database: Database) -> None:
    async def pull(number: int) -> KillSwitchRecord:
        async with database.begin() as tx:
            return await latches.engage(tx, f"person {number}", "panic")

    pulled = await asyncio.gather(*(pull(number) for number in range(10)))
    assert len(set(pulled)) == 1
