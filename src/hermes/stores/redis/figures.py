"""The figures of Redis for the operator's metrics: the money of today, and the breakers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from redis.asyncio import Redis

from hermes.ports.figures import StoreFigure
from hermes.ports.outbox import ChannelName
from hermes.stores.redis.breakers import breaker_key, decode_breaker
from hermes.stores.redis.counters import KILL_SWITCH_MICRO_USD, global_keys

CLOSED, HALF_OPEN, OPEN = 0.0, 1.0, 2.0
ALL_SCOPE = "all"
"""The scope of the money that all users spend together."""


async def read_figures(redis: Redis, channel_names: Sequence[ChannelName], now: datetime) -> Sequence[StoreFigure]:
    """Read today's spend and the breaker of each account, in one round trip. Raises one of REDIS_ERRORS.

    A missing counter does not mean zero but that the next call rebuilds it, so then there is no figure; and none while the kill switch
    has set the counter to its own value."""
    [_, counter, *_] = global_keys(now.astimezone(UTC).date())
    spent, *breakers = await redis.mget([counter, *(breaker_key(name) for name in channel_names)])
    figures = [
        StoreFigure("breaker_state", (str(name.platform), name.account), breaker_state(stored, now.timestamp()))
        for name, stored in zip(channel_names, breakers, strict=True)
    ]
    if spent is not None and int(spent) < KILL_SWITCH_MICRO_USD:
        figures.append(StoreFigure("spend", (ALL_SCOPE,), int(spent) / 1_000_000))
    return figures


def breaker_state(stored: bytes | str | None, now: float) -> float:
    open_until = decode_breaker(stored).open_until
    return CLOSED if open_until is None else OPEN if now < open_until else HALF_OPEN
