"""News of turns over Redis pub/sub: workers publish ids of turns while an operator watches; a web process with a watcher listens.

A key with a short life says that an operator watches. A worker looks at it every two seconds, and not with each turn; so an unwatched turn
costs nothing. A watched worker publishes at most ten times a second, the newest eight ids in less than 300 bytes, however many turns it
ends: a watcher reads the store anyway, and needs to know only that there is something to read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.stores.redis import REDIS_ERRORS
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

NEWS_CHANNEL = "hermes:ops"
WATCHED_KEY = "hermes:ops:watched"
WATCHED_TTL_S = 10
LOOK_S = 2.0
"""How often a worker looks whether an operator watches."""
RENEW_S = 3.0
"""How often a watcher says that it still watches, and how long it waits before it tries a lost connection again."""
GATHER_S = 0.1
"""How long a worker gathers ids before it publishes them: one message for all turns of this time."""
MAX_IDS_A_MESSAGE = 8
SEND_TIMEOUT_S = 1.0


class RedisTurnNews:
    """The port TurnNews."""

    def __init__(self, client: Redis, *, look_s: float = LOOK_S) -> None:
        self._client, self._look_s = client, look_s
        self.is_watched = False
        """Whether an operator watched when this worker looked last."""
        self._unsent: deque[UUID] = deque(maxlen=MAX_IDS_A_MESSAGE)
        self._has_news = asyncio.Event()

    # --- the worker

    @contextmanager
    def telling(self, turn_id: UUID) -> Iterator[None]:
        try:
            yield
        finally:
            self._tell(turn_id)

    def _tell(self, turn_id: UUID) -> None:
        if self.is_watched and turn_id not in self._unsent:
            self._unsent.append(turn_id)
            self._has_news.set()

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        tasks = (asyncio.create_task(self._look(), name="watched"), asyncio.create_task(self._send(), name="turn news"))
        try:
            yield
        finally:
            await end_tasks(*tasks)
            self.is_watched = False

    async def _look(self) -> None:
        """Keep up to date whether an operator watches."""
        while True:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    self.is_watched = bool(await self._client.exists(WATCHED_KEY))
            except REDIS_ERRORS:
                self.is_watched = False  # other parts report that Redis is away
            stop_if_cancelled()
            await asyncio.sleep(self._look_s)

    async def _send(self) -> None:
        """Publish what was told since the last message."""
        while True:
            await self._has_news.wait()
            await asyncio.sleep(GATHER_S)
            self._has_news.clear()
            text = ",".join(turn_id.hex for turn_id in self._unsent)
            self._unsent.clear()
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._client.publish(NEWS_CHANNEL, text)
            except REDIS_ERRORS:
                self.is_watched = False
            stop_if_cancelled()

    # --- the watcher

    @asynccontextmanager
    async def watching(self, on_news: Callable[[Sequence[UUID]], None]) -> AsyncIterator[None]:
        tasks = (asyncio.create_task(self._renew(), name="watching"), asyncio.create_task(self._listen(on_news), name="news of turns"))
        try:
            yield
        finally:
            await end_tasks(*tasks)

    async def _renew(self) -> None:
        """Say again and again that an operator watches."""
        while True:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await self._client.set(WATCHED_KEY, "1", ex=WATCHED_TTL_S)
            except REDIS_ERRORS as error:
                log.debug("watch_not_renewed", error=type(error).__name__)
            stop_if_cancelled()
            await asyncio.sleep(RENEW_S)

    async def _listen(self, on_news: Callable[[Sequence[UUID]], None]) -> None:
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as channel:
                    await channel.subscribe(NEWS_CHANNEL)
                    async for message in read_messages(channel):
                        on_news(parse_news(message["data"]))
            except REDIS_ERRORS as error:
                log.debug("news_not_heard", error=type(error).__name__)
            stop_if_cancelled()
            await asyncio.sleep(RENEW_S)


async def read_messages(channel: Any) -> AsyncIterator[dict[str, Any]]:
    """All messages of a subscription. Raises TimeoutError if the connection is silent and does not answer a ping."""
    is_asked = False
    while True:
        message = await channel.get_message(timeout=5.0)
        stop_if_cancelled()
        if message is not None:
            is_asked = False
            if message["type"] == "message":
                yield message
        elif is_asked:
            raise TimeoutError
        else:
            await channel.ping()
            stop_if_cancelled()
            is_asked = True


def parse_news(data: bytes | str) -> list[UUID]:
    """The turns of a message; none if it cannot be read."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        return [UUID(part) for part in text.split(",")[:MAX_IDS_A_MESSAGE]]
    except ValueError:
        return []
