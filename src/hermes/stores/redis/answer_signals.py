"""Bells between processes over Redis pub/sub: one channel for all turns, one connection per process that listens.

Every process hears every announcement, 32 characters each, and rings the bells that somebody here waits at. So listening asks nothing of
Redis, and after a lost connection there is one subscription to renew, however many wait. Pub/sub knows no database numbers: two
installations on one server hear each other, and ignore what they hear, because turn ids are unique."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

PUBSUB_CHANNEL = "hermes:replies"
REDIS_ERRORS = (RedisError, OSError, TimeoutError)


class RedisAnswerSignal:
    """The port Bell. Rings that come between two waits are one ring."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def strike(self) -> None:
        """Ring it."""
        self._rung.set()


class RedisAnswerSignals:
    """The port Replies. The first listener opens the connection; `aclose` ends it, and belongs before the client's own."""

    def __init__(self, client: Redis, *, announce_timeout_s: float = 1.0, idle_s: float = 5.0, longest_pause_s: float = 5.0) -> None:
        """`idle_s` is how long the connection may be silent before it is asked for a sign of life, and then before it counts as dead."""
        self._client = client
        self._announce_timeout_s, self._idle_s, self._longest_pause_s = announce_timeout_s, idle_s, longest_pause_s
        self._bells: dict[UUID, set[RedisAnswerSignal]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def announce(self, turn_id: UUID) -> None:
        try:
            async with asyncio.timeout(self._announce_timeout_s):
                await self._client.publish(PUBSUB_CHANNEL, turn_id.hex)
        except REDIS_ERRORS as error:
            log.info("reply_not_announced", turn_id=str(turn_id), error=type(error).__name__)

    @asynccontextmanager
    async def listen(self, turn_id: UUID) -> AsyncIterator[RedisAnswerSignal]:
        if self._reader is None:
            self._reader = asyncio.create_task(self._read(), name="replies")
        bell = RedisAnswerSignal()
        self._bells.setdefault(turn_id, set()).add(bell)
        try:
            yield bell
        finally:
            waiting = self._bells[turn_id]
            waiting.discard(bell)
            if not waiting:
                del self._bells[turn_id]

    async def aclose(self) -> None:
        """Stop listening."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await end_tasks(reader)

    async def _read(self) -> None:
        """Keep the subscription, for ever."""
        failures = 0
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=False) as channel:
                    await channel.subscribe(PUBSUB_CHANNEL)
                    stop_if_cancelled()
                    async for heard in self._messages(channel):
                        if heard["type"] == "subscribe":
                            if failures:
                                log.info("replies_heard_again", failures=failures)
                            failures = 0
                            # What was announced while nobody could hear it is lost, so let everybody look for themselves.
                            for turn_id in self._bells:
                                self._strike(turn_id)
                        elif heard["type"] == "message":
                            self._strike(parse_turn_id(heard["data"]))
            except REDIS_ERRORS as error:
                failures += 1
                if failures == 1:
                    log.warning("replies_not_heard", error=type(error).__name__)
            stop_if_cancelled()
            # Full jitter: after a restart of Redis every process comes back at once.
            await asyncio.sleep(random.uniform(0, min(self._longest_pause_s, 0.1 * 2**failures)))  # noqa: S311  # no secret

    async def _messages(self, channel: Any) -> AsyncIterator[dict[str, Any]]:
        """All that comes over the connection; raises TimeoutError when it does not even answer a ping."""
        is_asked = False
        while True:
            heard = await channel.get_message(timeout=self._idle_s)
            stop_if_cancelled()
            if heard is not None:
                is_asked = False
                yield heard
            elif is_asked:
                raise TimeoutError
            else:
                await channel.ping()
                stop_if_cancelled()
                is_asked = True

    def _strike(self, turn_id: UUID | None) -> None:
        for bell in self._bells.get(turn_id, ()) if turn_id else ():
            bell.strike()


def parse_turn_id(data: bytes | str) -> UUID | None:
    """Read an announcement; None for what is none."""
    try:
        return UUID(data.decode() if isinstance(data, bytes) else data)
    except ValueError:
        return None
