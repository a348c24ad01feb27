"""The cache of answers in Redis: one Fernet token each, under the user's own key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import FernetCipher, SealError

log = structlog.get_logger()

CACHE_ERRORS = (RedisError, OSError, TimeoutError, UserErased, StoreUnavailable, SealError)


class RedisAnswerCache:
    """The port AnswerCache."""

    def __init__(self, redis: Redis, transactions: Transactions, keyring: Keyring, *, ttl_s: int = 3_600) -> None:
        self._redis, self._transactions, self._keyring, self._ttl_s = redis, transactions, keyring, ttl_s

    async def get(self, user_id: UUID, key: str) -> bytes | None:
        try:
            token: Any = await self._redis.get(cache_key(user_id, key))
            return None if token is None else (await self._tokens(user_id, key)).decode(token)
        except CACHE_ERRORS as error:
            log.info("cache_not_read", error=type(error).__name__)
            return None

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        try:
            await self._redis.set(cache_key(user_id, key), (await self._tokens(user_id, key)).encode(value), ex=self._ttl_s)
        except CACHE_ERRORS as error:
            log.info("cache_not_written", error=type(error).__name__)

    async def _tokens(self, user_id: UUID, key: str) -> FernetCipher:
        """The key is part of the label: a token moved to another question does not open."""
        known = self._keyring.known(user_id)
        if known is None:
            async with self._transactions.begin() as tx:
                known = await self._keyring.of(tx, user_id)
        return known.history(f"cache/{key}")


def cache_key(user_id: UUID, key: str) -> str:
    return f"hermes:cache:{user_id}:{key}"
