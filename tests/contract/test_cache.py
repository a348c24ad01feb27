"""The cache of answers: sealed for one user and one question, for a while; never a reason to fail."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from hermes.ports.models import CachedValue
from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.caches import RedisAnswerCache
from hermes.turn import Platform


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def cache(redis: Redis, database: Database, keyring: Keyring) -> RedisAnswerCache:
    return RedisAnswerCache(redis, database, keyring, ttl_s=60)


async def test_what_was_put_is_there_for_a_while(cache: RedisAnswerCache, redis: Redis, user: User) -> None:
    await cache.put(user.id, "k", b"an answer")
    assert await cache.get_or_claim(user.id, "k", lease_s=9.0) == CachedValue(b"an answer")
    [place] = await redis.keys("*")
    assert 0 < await redis.ttl(place) <= 60
    assert b"answer" not in await redis.get(place)


async def test_of_equal_callers_one_makes_the_value_and_the_others_wait_for_it(cache: RedisAnswerCache, redis: Redis, user: User) -> None:
    async def look() -> CachedValue:
        return await cache.get_or_claim(user.id, "k", lease_s=0.2)

    mine, waits = CachedValue(None, is_claimed=True), CachedValue(None)
    assert [await look(), await look()] == [mine, waits]
    await cache.release(user.id, "k")
    assert [await look(), await look()] == [mine, waits]
    await asyncio.sleep(0.25)
    assert await look() == mine, "a claim ends by itself"
    await cache.put(user.id, "k", b"an answer")
    assert await look() == CachedValue(b"an answer")
    assert [key async for key in redis.scan_iter("*claim")] == []


async def test_nobody_reads_what_was_kept_for_another_nor_under_another_question(
    cache: RedisAnswerCache, redis: Redis, database: Database, keyring: Keyring, user: User
) -> None:
    async with database.begin() as tx:
        other, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.TELEGRAM, "43", state=UserState.ACTIVE)
    await cache.put(user.id, "k", b"an answer")
    token = await redis.get(f"hermes:cache:{user.id}:k")
    await redis.set(f"hermes:cache:{other.id}:k", token)
    await redis.set(f"hermes:cache:{user.id}:k2", token)
    looked = [await cache.get_or_claim(other.id, "k", lease_s=9.0), await cache.get_or_claim(user.id, "k2", lease_s=9.0)]
    assert looked == [CachedValue(None, is_claimed=True)] * 2


async def test_without_redis_or_without_a_key_nothing_is_there_and_nothing_fails(
    cache: RedisAnswerCache, database: Database, keyring: Keyring, user: User
) -> None:
    async with Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.2) as nowhere:
        away = RedisAnswerCache(nowhere, database, keyring)
        await away.put(user.id, "k", b"x")
        await away.release(user.id, "k")
        assert await away.get_or_claim(user.id, "k", lease_s=9.0) == CachedValue(None, is_claimed=True)
    await cache.put(user.id, "k", b"x")
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user.id)
    assert await cache.get_or_claim(user.id, "k", lease_s=9.0) == CachedValue(None, is_claimed=True)
    await cache.put(user.id, "k", b"y")
