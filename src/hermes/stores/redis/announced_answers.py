"""Answers that may leave before they are recorded, announced in Redis: so a request that shows one waits for its record in every process.

A call announces its answer before the answer can leave, under the list in which it is sampled and under its session, and withdraws that
after the record. Both names are digests under the user's key, or random: a reader of Redis learns nothing from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence

from redis.asyncio import Redis

from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import Joined, ScriptBatch

KEPT_S = 900
"""How long the announcement of a process that was killed stays: longer than the longest call."""
WAIT_S = 1.0
"""How long a request waits for the record of an answer that it shows. Then that process hangs, or was killed."""
LOOK_S = 0.01

ANNOUNCE = f"""
local KEPT_S = {KEPT_S}
for _, key in ipairs(KEYS) do
    redis.call('INCR', key)
    redis.call('EXPIRE', key, KEPT_S)
end
"""
WITHDRAW = """
for _, key in ipairs(KEYS) do
    if redis.call('DECR', key) <= 0 then
        redis.call('DEL', key)
    end
end
"""


class RedisAnnouncedAnswers:
    """The port AnnouncedAnswers."""

    def __init__(self, redis: Redis, batch: ScriptBatch | None = None) -> None:
        """With the `batch` of the budgets, an answer is announced in the same round trip as its call's reservation."""
        self._batch = batch or ScriptBatch(redis)
        self._announce, self._withdraw = redis.register_script(ANNOUNCE), redis.register_script(WITHDRAW)

    def announce(self, names: Sequence[bytes]) -> Awaitable[None]:
        return self._batch.post(self._announce, keys_of(names), joined=Joined.SCRIPT)

    def withdraw(self, names: Sequence[bytes]) -> None:
        # Not joined to an earlier withdrawal that still waits: it would come before this call's own announcement.
        self._batch.post(self._withdraw, keys_of(names))

    async def wait_for(self, names: Sequence[bytes]) -> None:
        give_up, keys = time.monotonic() + WAIT_S, keys_of(names)
        try:
            while await self._batch.read("EXISTS", *keys) and time.monotonic() < give_up:  # noqa: ASYNC110  # it is another process
                await asyncio.sleep(LOOK_S)
        except REDIS_ERRORS:
            return  # no answer could be announced either: each is recorded before it leaves


def keys_of(names: Sequence[bytes]) -> list[str]:
    return [f"hermes:unrecorded:{name.hex()}" for name in names]
