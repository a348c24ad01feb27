"""What an API key uses now, without a whole Hermes, for `hermes keys show`: the counters in Redis.

Beside the tables, because to load a client of Redis takes as long as all the rest of the command."""

from __future__ import annotations

from uuid import UUID

from hermes.app.clock import SystemClock
from hermes.app.home import home_of
from hermes.app.redis_client import check_redis_address, redis_client
from hermes.app.tables import Tables
from hermes.ports.key_use import KeyUsage
from hermes.stores.embedded.home import home_at
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.key_counters import KeyCounters


async def read_key_usage(tables: Tables, key_id: UUID) -> KeyUsage:
    """Return what a key uses. Raises StartRefused for an invalid address, and StoreUnavailable."""
    settings = tables.settings
    check_redis_address(settings)
    url = settings.redis_url.reveal() if settings.redis_url else home_at(home_of(settings)).addresses.redis_url
    client = redis_client(url, settings)
    try:
        return await KeyCounters(client, tables.database, PostgresModelCalls(), clock=SystemClock()).used(key_id)
    finally:
        await client.aclose()
