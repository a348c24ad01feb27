"""News of turns between processes: ids in small messages while an operator watches, and nothing otherwise."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
import structlog
from psycopg import AsyncCursor
from redis.asyncio import Redis

from hermes.stores.redis.turn_news import GATHER_S, NEWS_CHANNEL, WATCHED_KEY, RedisTurnNews, parse_news
from tests.flows.service import Service, running


async def watched(news: Any) -> None:
    """Wait until the worker knows that an operator watches."""
    async with asyncio.timeout(10):
        while not news.is_watched:  # noqa: ASYNC110  # a flag, and no bell
            await asyncio.sleep(0.01)


async def next_news(channel: Any) -> bytes:
    async with asyncio.timeout(10):
        while True:
            message = await channel.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                return bytes(message["data"])


async def say(service: Service, text: str) -> UUID:
    got = await service.post("/v1/messages", {"text": text, "user": "ann"}, await service.key())
    return UUID(got.body["turn_id"])


async def say_slowly(service: Service, text: str) -> UUID:
    """Have a turn whose model thinks for longer than news are gathered."""
    service.thinker.may_answer.clear()
    asked = asyncio.create_task(say(service, text))
    async with asyncio.timeout(10):
        while text not in service.thinker.asked:  # noqa: ASYNC110  # the model rings no bell
            await asyncio.sleep(0.01)
    await asyncio.sleep(3 * GATHER_S)
    service.thinker.may_answer.set()
    return await asked


async def test_a_worker_publishes_its_turns_only_while_an_operator_watches(database_url: str, redis_url: str) -> None:
    async with running(database_url, redis_url) as service, service.hermes.redis.pubsub() as channel:
        await channel.subscribe(NEWS_CHANNEL)
        await say(service, "alone")
        assert await service.hermes.redis.exists(WATCHED_KEY) == 0
        await service.hermes.redis.set(WATCHED_KEY, "1")
        await watched(service.hermes.adapters.turn_news)
        turn_id = await say(service, "watched")
        assert parse_news(await next_news(channel)) == [turn_id]  # of the turn before nothing was said


async def test_watching_adds_no_sql_to_a_turn_and_one_publish(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for a turn that is longer than news are gathered."""
    statements: Counter[str] = Counter()
    execute = AsyncCursor.execute

    async def count(cursor: Any, *query: Any, **options: Any) -> Any:
        statements[str(structlog.contextvars.get_contextvars().get("turn_id"))] += 1
        return await execute(cursor, *query, **options)

    monkeypatch.setattr(AsyncCursor, "execute", count)
    async with running(database_url, redis_url) as service, service.hermes.redis.pubsub() as channel:
        await channel.subscribe(NEWS_CHANNEL)
        for text in ("one", "two"):  # they fill the caches
            await say(service, text)
        alone = await say_slowly(service, "alone")
        await service.hermes.redis.set(WATCHED_KEY, "1")
        await watched(service.hermes.adapters.turn_news)
        seen = await say_slowly(service, "seen")
        heard = parse_news(await next_news(channel))
        while message := await channel.get_message(ignore_subscribe_messages=True, timeout=0.5):
            heard += parse_news(message["data"])
    assert heard.count(seen) == 1
    assert statements[str(seen)] == statements[str(alone)] > 0


async def test_news_of_many_turns_are_one_small_message_that_a_watcher_hears(redis_url: str) -> None:
    heard: list[UUID] = []
    has_heard = asyncio.Event()

    def hear(turn_ids: Sequence[UUID]) -> None:
        heard.extend(turn_ids)
        has_heard.set()

    async with Redis.from_url(redis_url) as client, client.pubsub() as channel:
        await channel.subscribe(NEWS_CHANNEL)
        worker, web = RedisTurnNews(client, look_s=0.01), RedisTurnNews(client)
        turn_ids = [uuid4() for _ in range(20)]
        async with worker.publishing():
            with worker.telling(uuid4()):  # unwatched: it is not sent later either
                pass
            async with web.watching(hear):
                await watched(worker)
                while (await client.pubsub_numsub(NEWS_CHANNEL))[0][1] < 2:  # noqa: ASYNC110  # the watcher's own connection
                    await asyncio.sleep(0.01)
                for turn_id in turn_ids:
                    with worker.telling(turn_id):
                        pass
                message = await next_news(channel)
                assert len(message) <= 300
                assert parse_news(message) == turn_ids[-8:]  # one message for all of them
                async with asyncio.timeout(10):
                    await has_heard.wait()
                assert heard == turn_ids[-8:]


async def test_news_without_redis_harm_nothing() -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as client:
        news = RedisTurnNews(client, look_s=0.01)
        async with news.publishing(), news.watching(lambda _: None):
            with news.telling(uuid4()):
                await asyncio.sleep(0)
        assert not news.is_watched


def test_news_that_cannot_be_read_are_none() -> None:
    assert parse_news(b"x,y") == []
    assert parse_news("") == []
