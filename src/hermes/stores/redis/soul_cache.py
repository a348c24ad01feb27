"""The cached base of souls in Redis: one Fernet token per user, under the user's own key, for an hour.

Each has a mark that every drop changes. A base that a worker read before a drop and puts after it would show old facts for an hour; its
mark is no longer the current one, so it is not stored."""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.memories import CachedSoul
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import FernetCipher, SealError

log = structlog.get_logger()

REDIS_ERRORS = (RedisError, OSError, TimeoutError)
CACHE_ERRORS = (*REDIS_ERRORS, UserErased, StoreUnavailable, SealError)
NO_MARK = b"-"


class RedisSoulCache:
    """The port SoulCache. `redis` returns bytes, has short timeouts and does not retry by itself."""

    def __init__(self, redis: Redis, transactions: Transactions, keyring: Keyring, *, ttl_s: int = 3_600) -> None:
        self._redis, self._transactions, self._keyring, self._ttl_s = redis, transactions, keyring, ttl_s
        self._put = redis.register_script(PUT_SCRIPT)

    @property
    def ttl_s(self) -> int:
        return self._ttl_s

    async def get(self, user_id: UUID) -> CachedSoul:
        mark: bytes | None = None
        try:
            found: list[Any] = await self._redis.mget(base_key(user_id), mark_key(user_id))
            token, mark = found[0], found[1] or NO_MARK
            return CachedSoul(None if token is None else (await self._tokens(user_id)).decode(token), mark)
        except CACHE_ERRORS as error:
            log.info("soul_not_read", user_id=str(user_id), error=type(error).__name__)
            return CachedSoul(None, mark)

    async def put(self, user_id: UUID, value: bytes, mark: bytes | None) -> None:
        if mark is None:
            return
        try:
            token = (await self._tokens(user_id)).encode(value)
            await self._put(keys=[base_key(user_id), mark_key(user_id)], args=[token, mark, NO_MARK, self._ttl_s])
        except CACHE_ERRORS as error:
            log.info("soul_not_cached", user_id=str(user_id), error=type(error).__name__)

    async def drop(self, user_id: UUID) -> None:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                # Lives longer than any base that a worker is making now.
                pipe.set(mark_key(user_id), secrets.token_hex(8), ex=self._ttl_s)
                pipe.delete(base_key(user_id))
                await pipe.execute()
        except REDIS_ERRORS as error:
            raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}") from error

    async def _tokens(self, user_id: UUID) -> FernetCipher:
        known = self._keyring.known(user_id)
        if known is None:
            async with self._transactions.begin() as tx:
                known = await self._keyring.of(tx, user_id)
        return known.history(f"soul/{user_id}")


PUT_SCRIPT = """
if (redis.call('GET', KEYS[2]) or ARGV[3]) == ARGV[2] then
    redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[4])
end
"""
"""Puts a base if its mark is still the current one."""


def base_key(user_id: UUID) -> str:
    return f"soul:{user_id}:base"


def mark_key(user_id: UUID) -> str:
    return f"soul:{user_id}:mark"
