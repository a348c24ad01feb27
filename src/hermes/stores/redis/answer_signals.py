"""Answer signals between processes over Redis pub/sub: one channel for all turns, one connection per process that listens.

Every process receives every announcement, 32 characters each, and fires the signals of its own waiting tasks. So a new listener sends
nothing to Redis, and after a lost connection there is one subscription to renew, however many tasks wait. Pub/sub ignores database numbers:
two installations on one server receive each other's announcements and ignore them, because turn ids are unique."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.ports.inbox import AnswerSignal
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import ScriptBatch
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

PUBSUB_CHANNEL = "hermes:replies"
MAX_RECENT = 2_000
"""Announcements without a listener that a process remembers. A turn may end before its request begins to listen."""


class RedisAnswerSignals:
    """The port AnswerSignals. The first listener opens the connection; `aclose` closes it, and must be called before the client's own."""

    def __init__(
        self,
        client: Redis,
        *,
        announce_timeout_s: float = 1.0,
        idle_s: float = 5.0,
        max_pause_s: float = 5.0,
        batch: ScriptBatch | None = None,
    ) -> None:
        """`idle_s` is how long the connection may be silent before it gets a ping, and then how long it may be silent before it counts as
        dead."""
        self._client, self._batch = client, batch or ScriptBatch(client)
        self._announce_timeout_s, self._idle_s, self._max_pause_s = announce_timeout_s, idle_s, max_pause_s
        self._signals: dict[UUID, set[AnswerSignal]] = {}
        self._recent: OrderedDict[UUID, None] = OrderedDict()
        self._reader: asyncio.Task[None] | None = None
        self._is_heard = False

    @property
    def is_heard(self) -> bool:
        return self._is_heard

    async def announce(self, turn_id: UUID) -> None:
        try:
            async with asyncio.timeout(self._announce_timeout_s):
                await self._batch.execute("PUBLISH", PUBSUB_CHANNEL, turn_id.hex)
        except REDIS_ERRORS as error:
            log.info("reply_not_announced", turn_id=str(turn_id), error=type(error).__name__)

    @asynccontextmanager
    async def listen(self, turn_id: UUID) -> AsyncIterator[AnswerSignal]:
        if self._reader is None:
            self._reader = asyncio.create_task(self._read(), name="replies")
        signal = AnswerSignal()
        self._signals.setdefault(turn_id, set()).add(signal)
        if turn_id in self._recent:
            signal.fire()
        try:
            yield signal
        finally:
            waiting = self._signals[turn_id]
            waiting.discard(signal)
            if not waiting:
                del self._signals[turn_id]

    async def aclose(self) -> None:
        """Stop listening."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await end_tasks(reader)

    async def _read(self) -> None:
        """Keep the subscription until cancelled."""
        failures = 0
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=False) as channel:
                    await channel.subscribe(PUBSUB_CHANNEL)
                    stop_if_cancelled()
                    async for message in self._messages(channel):
                        if message["type"] == "subscribe":
                            if failures:
                                log.info("replies_heard_again", failures=failures)
                            failures, self._is_heard = 0, True
                            # Announcements during the outage are lost, so every waiting task must look for its answer.
                            for turn_id in self._signals:
                                self._fire(turn_id)
                        elif message["type"] == "message":
                            self._fire(parse_turn_id(message["data"]))
            except REDIS_ERRORS as error:
                self._is_heard = False
                failures += 1
                if failures == 1:
                    log.warning("replies_not_heard", error=type(error).__name__)
            stop_if_cancelled()
            # Full jitter: after a restart of Redis every process connects at once.
            await asyncio.sleep(random.uniform(0, min(self._max_pause_s, 0.1 * 2**failures)))  # noqa: S311  # no secret

    async def _messages(self, channel: Any) -> AsyncIterator[dict[str, Any]]:
        """All messages of the connection. Raises TimeoutError if it does not answer a ping."""
        is_asked = False
        while True:
            message = await channel.get_message(timeout=self._idle_s)
            stop_if_cancelled()
            if message is not None:
                is_asked = False
                yield message
            elif is_asked:
                raise TimeoutError
            else:
                await channel.ping()
                stop_if_cancelled()
                is_asked = True

    def _fire(self, turn_id: UUID | None) -> None:
        if turn_id is None:
            return
        listeners = self._signals.get(turn_id)
        for signal in listeners or ():
            signal.fire()
        if not listeners:
            self._recent[turn_id] = None
            while len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)


def parse_turn_id(data: bytes | str) -> UUID | None:
    """The turn id of an announcement; None if the data is no turn id."""
    try:
        return UUID(data.decode() if isinstance(data, bytes) else data)
    except ValueError:
        return None
