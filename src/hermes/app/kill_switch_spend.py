"""The spend of all users without a whole Hermes, for `hermes kill-switch`: its counter in Redis may say stop, and the daily cap may hold.

Beside kill_switch.py, because to load a client of Redis takes as long as all the rest of the command."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from hermes.app.clock import SystemClock
from hermes.app.console_access import access_from
from hermes.app.home import home_of
from hermes.app.kill_switch import open_command_alerts
from hermes.app.redis_client import check_redis_address, redis_client
from hermes.app.tables import Tables
from hermes.console.kill_switch import KillSwitchControl
from hermes.gateway.prices import micro_usd_of
from hermes.ports.operators import Actor
from hermes.stores.embedded.home import home_at
from hermes.stores.postgres.kill_switch import PostgresKillSwitchHistory, PostgresKillSwitchRecords
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.global_spend import RedisGlobalSpend


@asynccontextmanager
async def open_kill_switch(tables: Tables) -> AsyncIterator[KillSwitchControl]:
    """Yield what reads, engages and releases the kill switch. Raises StartRefused for an invalid address."""
    settings = tables.settings
    check_redis_address(settings)
    url = settings.redis_url.reveal() if settings.redis_url else home_at(home_of(settings)).addresses.redis_url
    client = redis_client(url, settings)
    try:
        async with open_command_alerts(tables) as alerts:
            spend = RedisGlobalSpend(
                client, tables.database, PostgresModelCalls(), records=PostgresKillSwitchRecords(), alerts=alerts, clock=SystemClock()
            )
            yield KillSwitchControl(
                access_from(settings, tables.database),
                tables.database,
                spend,
                PostgresKillSwitchHistory(),
                cap_micro_usd=micro_usd_of(settings.llm.global_daily_budget_usd),
            )
    finally:
        await client.aclose()


async def release_from_command(tables: Tables, actor: Actor, *, by: str) -> None:
    """Allow model calls again. Raises StoreUnavailable if a part of it could not be done."""
    async with open_kill_switch(tables) as switch:
        await switch.release(actor, by=by)


async def read_cap_end(tables: Tables) -> datetime | None:
    """Return when the daily cap ends, if it is reached."""
    async with open_kill_switch(tables) as switch:
        return (await switch.read()).capped_until
