"""One answer for equal requests of one user: from the cache, or from an equal call that is under way, in whichever process.

A user who greets on three channels at once is answered by one sample. The first call makes it; the others wait for it a while, and then
each makes its own: a wait is never worth more than an answer."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

from hermes.gateway.answer_cache import cache_key, decode, encode, may_keep
from hermes.gateway.chain import ChainAnswer, ChainLink
from hermes.ports.backends import Completion, ModelRequest
from hermes.ports.models import AnswerCache

WAIT_S = 8.0
"""Longest wait for the answer of an equal call."""
LOOK_INTERVAL_S = 0.05


class SharedAnswer:
    """The answer to one request of one user, as far as the cache can give it."""

    def __init__(self, cache: AnswerCache, user_id: UUID, ask: ModelRequest, link: ChainLink) -> None:
        """`link` is the model that will probably be asked."""
        self._cache, self._user_id, self._ask = cache, user_id, ask
        self._key = cache_key(ask, link)
        self._is_claimed = False

    async def find(self) -> tuple[Completion, UUID] | None:
        """Return the answer and the call that sampled it. None: the caller asks a model, and calls `keep` or `give_up` afterwards."""
        until = time.monotonic() + WAIT_S
        while True:
            found = await self._cache.get_or_claim(self._user_id, self._key, lease_s=WAIT_S)
            if found.value is not None:
                return decode(found.value)
            self._is_claimed = found.is_claimed
            if self._is_claimed or time.monotonic() >= until:
                return None
            await asyncio.sleep(LOOK_INTERVAL_S)

    async def keep(self, answered: ChainAnswer, call_id: UUID) -> None:
        """Keep an answer under the model that gave it, which need not be the one that was asked first."""
        key = cache_key(self._ask, answered.link)
        if may_keep(answered.completion):
            await self._cache.put(self._user_id, key, encode(answered.completion, call_id))
            self._is_claimed &= key != self._key
        await self.give_up()

    async def give_up(self) -> None:
        """Let an equal call ask a model."""
        if self._is_claimed:
            await self._cache.release(self._user_id, self._key)
