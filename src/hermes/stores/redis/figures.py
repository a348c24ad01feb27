"""The figures of Redis for the operator's metrics: the breakers of channel accounts and of models."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from redis.asyncio import Redis

from hermes.ports.figures import StoreFigure
from hermes.ports.models import WHOLE_BACKEND, ModelAddress
from hermes.ports.outbox import ChannelName
from hermes.stores.redis.breakers import breaker_key, decode_breaker
from hermes.stores.redis.model_breakers import decode_model_breaker, model_breaker_key

CLOSED, HALF_OPEN, OPEN = 0.0, 1.0, 2.0


async def read_figures(
    redis: Redis, channel_names: Sequence[ChannelName], models: Sequence[ModelAddress], now: datetime
) -> Sequence[StoreFigure]:
    """Read the breaker of each account and of each model, in one round trip. Raises one of REDIS_ERRORS.

    A model shows its own breaker or its backend's, whichever is worse."""
    backends = [ModelAddress(name, WHOLE_BACKEND) for name in dict.fromkeys(model.backend for model in models)]
    addresses = [*models, *backends]
    keys = [*(breaker_key(name) for name in channel_names), *(model_breaker_key(address) for address in addresses)]
    if not keys:
        return []
    stored = await redis.mget(keys)
    channels, calls = stored[: len(channel_names)], stored[len(channel_names) :]
    at = now.timestamp()
    states = {address: breaker_state(decode_model_breaker(value).open_until, at) for address, value in zip(addresses, calls, strict=True)}
    return [
        *(
            StoreFigure("breaker_state", (str(name.platform), name.account), breaker_state(decode_breaker(value).open_until, at))
            for name, value in zip(channel_names, channels, strict=True)
        ),
        *(
            StoreFigure(
                "model_breaker_state",
                (model.backend, model.model),
                max(states[model], states[ModelAddress(model.backend, WHOLE_BACKEND)]),
            )
            for model in models
        ),
    ]


def breaker_state(open_until: float | None, now: float) -> float:
    return CLOSED if open_until is None else OPEN if now < open_until else HALF_OPEN
