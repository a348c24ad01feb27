"""The figures of Redis for the operator's metrics: the breakers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redis.asyncio import Redis

from hermes.ports.figures import StoreFigure
from hermes.ports.outbox import ChannelName
from hermes.stores.redis.breakers import breaker_key, decode_breaker

CLOSED, HALF_OPEN, OPEN = 0.0, 1.0, 2.0


async def read_figures(redis: Redis, channel_names: Sequence[ChannelName], now: datetime) -> Sequence[StoreFigure]:
    """Read the breaker of each account, in one round trip. Raises one of REDIS_ERRORS."""
    if not channel_names:
        return []
    breakers = await redis.mget([breaker_key(name) for name in channel_names])
    return [
        StoreFigure("breaker_state", (str(name.platform), name.account), breaker_state(stored, now.timestamp()))
        for name, stored in zip(channel_names, breakers, strict=True)
    ]


def breaker_state(stored: bytes | str | None, now: float) -> float:
    open_until = decode_breaker(stored).open_until
    return CLOSED if open_until is None else OPEN if now < open_until else HALF_OPEN
