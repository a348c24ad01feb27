"""The models for a command: with tables and a client of Redis, without a whole Hermes."""

from __future__ import annotations

from hermes.app.home import home_of
from hermes.app.model_list import list_models
from hermes.app.redis_client import check_redis_address, redis_client
from hermes.app.tables import Tables
from hermes.console.models import ModelStatus
from hermes.stores.embedded.home import home_at


async def list_from_tables(tables: Tables) -> list[ModelStatus]:
    """Return the models. Without Redis, the state of no breaker is known. Raises StartRefused for an invalid address."""
    settings = tables.settings
    check_redis_address(settings)
    url = settings.redis_url.reveal() if settings.redis_url else home_at(home_of(settings)).addresses.redis_url
    client = redis_client(url, settings)
    try:
        return await list_models(settings, tables.database, client)
    finally:
        await client.aclose()
