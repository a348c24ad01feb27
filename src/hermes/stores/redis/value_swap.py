"""Change a small value that all processes share: a process writes it only if no other process wrote since it read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from redis.asyncio import Redis

V = TypeVar("V")
T = TypeVar("T")

MAX_TRIES = 50
"""How often another process may change the value first."""

SWAP_SCRIPT = """
if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1"""


class TooContended(Exception):
    """Other processes changed the value MAX_TRIES times in a row."""


class ValueSwap(Generic[V]):
    """Changes values of one kind atomically. An empty text stands for no value."""

    def __init__(self, redis: Redis, decode: Callable[[bytes | str | None], V], encode: Callable[[V], str], keep_s: float) -> None:
        self._redis, self._decode, self._encode, self._keep_ms = redis, decode, encode, round(keep_s * 1_000)
        self._swap = redis.register_script(SWAP_SCRIPT)

    async def change(self, key: str, change: Callable[[V], tuple[V, T]]) -> T:
        """Replace a value by the first thing that `change` returns, and return the second. Raises TooContended, and REDIS_ERRORS."""
        for _ in range(MAX_TRIES):
            stored: Any = await self._redis.get(key) or b""
            before = self._decode(stored)
            after, result = change(before)
            if after == before or await self._swap(keys=[key], args=[stored, self._encode(after), self._keep_ms]):
                return result
        raise TooContended(key)
