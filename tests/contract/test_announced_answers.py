"""In another process, too, a request that shows an answer waits for that answer's record."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.announced_answers import RedisAnnouncedAnswers

NAMES = (b"list", b"session")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as redis:
        yield redis


async def test_what_is_announced_is_waited_for_until_it_is_withdrawn(redis: Redis) -> None:
    ours, theirs = RedisAnnouncedAnswers(redis), RedisAnnouncedAnswers(redis)
    await ours.announce(NAMES)
    await asyncio.wait_for(theirs.wait_for([b"another"]), 0.5)
    for name in NAMES:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(theirs.wait_for([name]), 0.1)
    waiting = asyncio.create_task(theirs.wait_for(NAMES))
    ours.withdraw(NAMES)
    await asyncio.wait_for(waiting, 0.9)
    assert await redis.keys("hermes:unrecorded:*") == []


async def test_two_answers_to_one_list_are_both_waited_for(redis: Redis) -> None:
    answers = RedisAnnouncedAnswers(redis)
    await asyncio.gather(answers.announce(NAMES[:1]), answers.announce(NAMES[:1]))
    answers.withdraw(NAMES[:1])
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answers.wait_for(NAMES[:1]), 0.1)
    answers.withdraw(NAMES[:1])
    await asyncio.wait_for(answers.wait_for(NAMES[:1]), 0.9)


async def test_a_process_that_was_killed_holds_a_request_up_for_a_second_and_leaves_nothing(redis: Redis) -> None:
    answers = RedisAnnouncedAnswers(redis)
    await answers.announce(NAMES)
    began = time.monotonic()
    await answers.wait_for(NAMES)
    assert 0.9 < time.monotonic() - began < 5
    assert 0 < await redis.ttl(f"hermes:unrecorded:{NAMES[0].hex()}") <= 900


async def test_without_redis_nothing_is_announced_and_nothing_is_waited_for() -> None:
    answers = RedisAnnouncedAnswers(Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.2))
    with pytest.raises(REDIS_ERRORS):
        await answers.announce(NAMES)
    answers.withdraw(NAMES)
    await answers.wait_for(NAMES)
