"""Breakers in Redis: one small value per channel account. A process changes it only if it read the latest one, so that all processes share
one state and one probe.

The rules are in `hermes.delivery.breaker`. A closed breaker without failures has no key: then a send costs one read before it and one
delete after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

import structlog
from redis.asyncio import Redis

from hermes.delivery import breaker as rules
from hermes.delivery.breaker import CLOSED, DEFAULT_LIMITS, Breaker, BreakerLimits
from hermes.ports.live import ChannelLine
from hermes.ports.outbox import Admission, BreakerChange, ChannelName
from hermes.ports.runtime import Clock
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.value_swap import TooContended, ValueSwap

log = structlog.get_logger()

T = TypeVar("T")


class RedisBreakers:
    """The port Breakers."""

    def __init__(self, redis: Redis, clock: Clock, limits: BreakerLimits = DEFAULT_LIMITS) -> None:
        self._redis, self._clock, self._limits = redis, clock, limits
        self._values = ValueSwap(redis, decode_breaker, encode_breaker, limits.keep_s)
        self._is_down = False

    async def admit(self, channel_name: ChannelName) -> Admission:
        return await self._change(channel_name, lambda breaker, now: rules.admit(breaker, now, self._limits)) or Admission()

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        try:
            before = decode_breaker(await self._redis.getdel(breaker_key(channel_name)))
        except REDIS_ERRORS as error:
            self._note_outage(error)
            return None
        self._note_outage(None)
        return rules.record_success(before)[1]

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        return await self._change(
            channel_name, lambda breaker, now: rules.record_failure(breaker, now, self._limits, is_probe=admission.is_probe)
        )

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        if admission.is_probe:
            await self._change(channel_name, lambda breaker, _: (rules.release_probe(breaker, is_probe=True), None))

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        return await self._change(channel_name, lambda breaker, now: rules.record_unauthorized(breaker, now, self._limits))

    async def _change(self, channel_name: ChannelName, change: Callable[[Breaker, float], tuple[Breaker, T]]) -> T | None:
        """Change the state of a channel account atomically. None if Redis cannot be reached, or if other processes change it all the time:
        then one failure more or less makes no difference."""
        try:
            result = await self._values.change(breaker_key(channel_name), lambda breaker: change(breaker, self._clock.now().timestamp()))
        except REDIS_ERRORS as error:
            self._note_outage(error)
            return None
        except TooContended:
            log.warning("breaker_contended", platform=str(channel_name.platform), account=channel_name.account)
            return None
        self._note_outage(None)
        return result

    def _note_outage(self, error: Exception | None) -> None:
        """Log once that no breaker works, and once that they work again."""
        if error is not None and not self._is_down:
            log.warning("breakers_not_seen", error=type(error).__name__)
        elif error is None and self._is_down:
            log.info("breakers_seen_again")
        self._is_down = error is not None


class RedisBreakerReader:
    """The port BreakerReader."""

    def __init__(self, redis: Redis, clock: Clock) -> None:
        self._redis, self._clock = redis, clock

    async def states(self, channel_names: Sequence[ChannelName]) -> Sequence[ChannelLine] | None:
        if not channel_names:
            return []
        try:
            stored = await self._redis.mget([breaker_key(name) for name in channel_names])
        except REDIS_ERRORS:
            return None
        now = self._clock.now().timestamp()
        return [read_line(name, decode_breaker(value), now) for name, value in zip(channel_names, stored, strict=True)]


def read_line(name: ChannelName, breaker: Breaker, now: float) -> ChannelLine:
    failures = len(breaker.failed_at)
    if breaker.open_until is None:
        return ChannelLine(name, "closed", failures, None)
    wait_s = breaker.open_until - now
    return ChannelLine(name, "open", failures, wait_s) if wait_s > 0 else ChannelLine(name, "half_open", failures, None)


def breaker_key(channel_name: ChannelName) -> str:
    return f"hermes:breaker:{channel_name.platform}:{channel_name.account}"


def decode_breaker(stored: bytes | str | None) -> Breaker:
    """The state that was stored; a closed breaker if there is none, or if it cannot be read."""
    if not stored:
        return CLOSED
    try:
        fields = json.loads(stored)
        return Breaker(tuple(fields["failed_at"]), fields["open_until"], fields["probe_until"])
    except (ValueError, KeyError, TypeError):
        return CLOSED


def encode_breaker(breaker: Breaker) -> str:
    return "" if breaker == CLOSED else json.dumps(asdict(breaker))
