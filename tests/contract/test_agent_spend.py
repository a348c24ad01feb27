"""The port AgentSpend: what each agent spends is counted once in all processes, and its cap holds, whatever happens to Redis."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from redis.asyncio import Redis

from hermes.ports.backends import Usage
from hermes.ports.credits import CallsPaused
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.agent_spend import RedisAgentSpend
from tests.contract.test_budgets import MONDAY_MIDNIGHT, SUNDAY, Bell, HandClock, Wire, client_of, outcomes

NO_CAPS: dict[str, int | None] = {"cap_micro_usd": None, "fleet_cap_micro_usd": None}


@dataclass
class Process:
    """What one process has of the agents' spend."""

    redis: Redis
    database: Database
    clock: HandClock = field(default_factory=HandClock)
    alerts: Bell = field(default_factory=Bell)

    def __post_init__(self) -> None:
        calls = PostgresModelCalls()
        self.spend = RedisAgentSpend(self.redis, self.database, calls, alerts=self.alerts, clock=self.clock, wait_s=1.0)

    async def pay(self, agent: str | None, micro_usd: int) -> UUID:
        """A call: its row, and then its count."""
        call = ModelCall(
            id=uuid4(),
            day=SUNDAY,
            account_id="bali",
            source=CallSource.ROUTER,
            tier="free",
            model="claude-haiku",
            outcome=CallOutcome.ANSWERED,
            latency_ms=1,
            usage=Usage(tokens_in=1),
            micro_usd=micro_usd,
            agent=agent,
        )
        async with self.database.begin() as tx:
            await connection_of(tx).execute("insert into accounts (id) values ('bali') on conflict do nothing")
            await PostgresModelCalls().add(tx, call)
        if agent is not None:
            await self.spend.add(agent, micro_usd, day=SUNDAY, call_id=call.id)
        return call.id

    async def admit(self, agent: str, **caps: Any) -> None:
        await self.spend.admit(agent, **{**NO_CAPS, **caps})


@asynccontextmanager
async def process(url: str, database: Database) -> AsyncIterator[Process]:
    made = Process(client_of(url), database)
    try:
        yield made
    finally:
        await made.redis.aclose()


@pytest.fixture
async def here(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


@pytest.fixture
async def there(redis_url: str, database: Database) -> AsyncIterator[Process]:
    async with process(redis_url, database) as made:
        yield made


async def test_an_agent_is_refused_at_its_cap_in_every_process_until_midnight(here: Process, there: Process) -> None:
    await here.pay("bali", 9)
    await there.admit("bali", cap_micro_usd=10)
    await there.pay("bali", 1)
    for each in (here, there):
        with pytest.raises(CallsPaused, match=r"paused by the agent's cap until 2026-11-16 00:00 UTC"):
            await each.admit("bali", cap_micro_usd=10)
    await here.admit("bali", cap_micro_usd=11)
    await here.admit("hermes", cap_micro_usd=10)
    here.clock.moment = MONDAY_MIDNIGHT
    await here.admit("bali", cap_micro_usd=10)


async def test_the_fleet_has_spent_what_its_agents_have(here: Process) -> None:
    await here.pay("bali", 6)
    await here.pay("hermes", 4)
    await here.pay(None, 1_000)
    await here.admit("bali", fleet_cap_micro_usd=11)
    with pytest.raises(CallsPaused, match="paused by the fleet's cap"):
        await here.admit("vera", fleet_cap_micro_usd=10)
    assert await here.spend.spent_today() == {"bali": 6, "hermes": 4}


async def test_a_cap_of_nothing_allows_nothing(here: Process) -> None:
    with pytest.raises(CallsPaused):
        await here.admit("bali", cap_micro_usd=0)


async def test_counters_that_redis_lost_are_rebuilt_from_the_rows_and_no_call_counts_twice(here: Process, there: Process) -> None:
    paid = await here.pay("bali", 70)
    await here.pay("hermes", 2**53 + 1)  # beyond what a floating-point number holds exactly
    await here.redis.flushall()
    tried = await outcomes(*((here, there)[number % 2].admit("bali", cap_micro_usd=70) for number in range(20)))
    assert tried == [CallsPaused] * 20
    await there.spend.add("bali", 70, day=SUNDAY, call_id=paid)  # the row was counted by the rebuild
    assert await there.spend.spent_today() == {"bali": 70, "hermes": 2**53 + 1}


async def test_many_processes_count_every_call_once(here: Process, there: Process) -> None:
    await asyncio.gather(*((here, there)[number % 2].pay(("bali", "hermes")[number % 3 == 0], number) for number in range(100)))
    of_hermes = sum(range(0, 100, 3))
    assert await here.spend.spent_today() == {"hermes": of_hermes, "bali": sum(range(100)) - of_hermes}


async def test_without_redis_calls_are_admitted_and_their_money_is_not_forgotten(
    redis_url: str, database: Database, there: Process
) -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        wire = Wire(folder, redis_url)
        async with process(wire.url, database) as here:
            with structlog.testing.capture_logs() as logs:
                for _ in range(3):
                    await here.admit("bali", cap_micro_usd=1)
                    await here.pay("bali", 5)
            assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["agent_spend_not_seen"]
            wire.plug_in()
            with pytest.raises(CallsPaused):
                await here.admit("bali", cap_micro_usd=15)
            assert await there.spend.spent_today() == {"bali": 15}


async def test_the_operator_is_alerted_once_at_80_and_once_at_100_percent_of_each_cap(here: Process, there: Process) -> None:
    for amount in (79, 1, 19, 1):
        await here.pay("bali", amount)
        await outcomes(*(each.admit("bali", cap_micro_usd=100, fleet_cap_micro_usd=1_000) for each in (here, there) * 3))
    await here.redis.flushall()
    await outcomes(here.admit("bali", cap_micro_usd=100))
    await here.admit("bali", cap_micro_usd=120)  # another cap has thresholds of its own
    told = [facts for event, facts in here.alerts.rung + there.alerts.rung if event == "budget_threshold"]
    assert sorted(
        (facts["window"], facts["agent"], facts["cap_micro_usd"], facts["percent"], facts["spent_micro_usd"]) for facts in told
    ) == [
        ("agent", "bali", 100, 80, 80),
        ("agent", "bali", 100, 100, 100),
        ("agent", "bali", 120, 80, 100),
    ]


async def test_every_key_ends(here: Process) -> None:
    await here.pay("bali", 1)
    left = {key.decode(): await here.redis.ttl(key) for key in await here.redis.keys("hermes:budgets:agents:*")}
    assert {key: round(ttl / 86_400, 1) for key, ttl in left.items()} == {
        "hermes:budgets:agents:2026-11-15": 3.5,
        "hermes:budgets:agents:2026-11-15:counted": 3.5,
    }
