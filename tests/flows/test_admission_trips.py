"""All that a call asks of Redis before it may begin goes there in one round trip, also for an agent that has a cap."""

import asyncio
from typing import Any

from redis.asyncio import Redis

from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.unwell_models import ModelWatch
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.agent_spend import RedisAgentSpend
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.redis.global_spend import RedisGlobalSpend
from hermes.stores.redis.model_breakers import RedisModelBreakers
from tests.flows.gateway_house import HELLO, Noon, open_house

AGENTS = ("rex", None)


async def test_an_agent_with_a_cap_is_admitted_with_one_round_trip(database: Database, redis_url: str) -> None:
    async with open_house(database, redis_url) as house, Redis.from_url(redis_url) as redis:
        batch, clock, calls, gateway = ScriptBatch(redis), Noon(), PostgresModelCalls(), house.gateway  # one batch, as in `app.adapters`
        budgets = RedisBudgets(redis, database, calls, alerts=house.bell, clock=clock, batch=batch)
        spend = RedisGlobalSpend(redis, database, calls, records=PostgresKillSwitchRecords(), alerts=house.bell, clock=clock, batch=batch)
        agents = RedisAgentSpend(redis, database, calls, alerts=house.bell, clock=clock, batch=batch)
        watch = ModelWatch(RedisModelBreakers(redis, clock, batch=batch), house.bell)
        for name, part in {
            "budgets": budgets,
            "spend": spend,
            "agent_caps": AgentCaps(agents, lambda: {"rex": 10**6}),
            "watch": watch,
        }.items():
            object.__setattr__(gateway, name, part)
        trip, trips = batch._round_trip, list[int]()

        async def counted(taken: Any) -> Any:
            trips.append(len(taken))
            return await trip(taken)

        batch._round_trip = counted  # type: ignore[method-assign]
        for agent in AGENTS:
            for _ in range(2):  # the first one makes the counters
                await asyncio.sleep(0.01)  # the trip before has ended
                trips.clear()
                admitted = await gateway._admit(HELLO, house.caller(agent=agent))
                seen = list(trips)
                await budgets.release(admitted.hold)
            assert len(seen) == 1, (agent, seen)
        await gateway.wait_settled()
        await budgets.aclose()
        await batch.aclose()
