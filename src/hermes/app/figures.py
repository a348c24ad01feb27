"""Read the figures of all stores, for the operator's metrics."""

from __future__ import annotations

from collections.abc import Sequence

from redis.asyncio import Redis

from hermes.app.channels import AccountChannels
from hermes.app.gateway import SystemClock
from hermes.config import Settings
from hermes.ports.figures import FigureReader, StoreFigure
from hermes.stores.postgres import figures as postgres_figures
from hermes.stores.postgres.database import Database
from hermes.stores.redis import figures as redis_figures


def figure_readers(settings: Settings, database: Database, redis: Redis, channels: AccountChannels) -> dict[str, FigureReader]:
    """Return a reader for each store. If one store is away, the figures of the others are shown all the same."""

    async def read_postgres() -> Sequence[StoreFigure]:
        async with database.once() as tx:
            return await postgres_figures.read_figures(tx, stalled_after_s=settings.work.stalled_after_s)

    async def read_redis() -> Sequence[StoreFigure]:
        return await redis_figures.read_figures(redis, channels.names, SystemClock().now())

    async def read_settings() -> Sequence[StoreFigure]:
        cap_usd = settings.llm.global_daily_budget_usd
        return [] if cap_usd is None else [StoreFigure("spend_cap", (redis_figures.ALL_SCOPE,), float(cap_usd))]

    return {"postgres": read_postgres, "redis": read_redis, "settings": read_settings}
