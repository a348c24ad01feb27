"""Read the figures of all stores, for the operator's metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

from redis.asyncio import Redis

from hermes.app.channels import AccountChannels
from hermes.app.clock import SystemClock
from hermes.config import Settings
from hermes.ports.credits import SpendToday
from hermes.ports.figures import FigureReader, StoreFigure
from hermes.ports.models import ModelAddress
from hermes.stores.postgres import figures as postgres_figures
from hermes.stores.postgres.database import Database
from hermes.stores.redis import figures as redis_figures

ALL_SCOPE, FLEET_SCOPE, AGENT_SCOPE = "all", "fleet", "agent:"
"""The scopes of money: of all users together, of all agents together, and of one agent, with its name."""
MAX_AGENTS = 100
"""Agents that have a scope of their own: those that have used most of their cap, then those that spent most."""
MICRO = 1_000_000


def figure_readers(
    settings: Settings,
    database: Database,
    redis: Redis,
    channels: AccountChannels,
    *,
    models: Sequence[ModelAddress],
    spent_today: Callable[[], Awaitable[SpendToday | None]],
) -> dict[str, FigureReader]:
    """Return a reader for each store. If one store is away, the figures of the others are shown all the same."""

    async def read_postgres() -> Sequence[StoreFigure]:
        async with database.once() as tx:
            return await postgres_figures.read_figures(tx, stalled_after_s=settings.work.stalled_after_s)

    async def read_redis() -> Sequence[StoreFigure]:
        return await redis_figures.read_figures(redis, channels.names, models, SystemClock().now())

    async def read_spend() -> Sequence[StoreFigure]:
        spend = await spent_today()
        return [] if spend is None else list(spend_figures(spend))

    return {"postgres": read_postgres, "redis": read_redis, "spend": read_spend}


def spend_figures(spend: SpendToday) -> Iterator[StoreFigure]:
    """Yield what each scope spent, and its cap if it has one."""

    def nearest_to_cap(name: str) -> tuple[float, int, str]:
        of_agent = spend.agents[name]
        share = 0.0 if of_agent.cap_micro_usd is None else of_agent.micro_usd / max(of_agent.cap_micro_usd, 1)
        return -share, -of_agent.micro_usd, name

    agents = sorted(spend.agents, key=nearest_to_cap)[:MAX_AGENTS]
    scopes = {ALL_SCOPE: spend.platform, FLEET_SCOPE: spend.fleet, **{f"{AGENT_SCOPE}{name}": spend.agents[name] for name in agents}}
    for scope, of_day in scopes.items():
        yield StoreFigure("spend", (scope,), of_day.micro_usd / MICRO)
        if of_day.cap_micro_usd is not None:
            yield StoreFigure("spend_cap", (scope,), of_day.cap_micro_usd / MICRO)
