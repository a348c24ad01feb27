"""How many model calls run at once in this process, and who is next. Fair between users: one who asks for much waits for themselves.

Holds slots and a queue, knows nothing of models. Not thread-safe: one event loop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.ports.models import NoCapacity


class Slots:
    """A number of slots. Waiting callers are served user by user, in turns; each user's own in order."""

    def __init__(self, count: int = 30, *, wait_s: float = 15.0, longest_queue: int = 1_000) -> None:
        self._free, self.count, self._wait_s, self._longest_queue = count, count, wait_s, longest_queue
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def used(self) -> int:
        return self.count - self._free

    @property
    def waiting(self) -> int:
        return sum(map(len, self._lines.values()))

    @asynccontextmanager
    async def hold(self, user: str) -> AsyncIterator[None]:
        """Hold a slot as long as the block lasts. Raises NoCapacity after `wait_s`, or at once when the queue is too long."""
        await self._take(user)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, user: str) -> None:
        if self._free and not self._lines:
            self._free -= 1
            return
        if self.waiting >= self._longest_queue:
            raise NoCapacity(f"{self.waiting} calls wait already")
        ticket: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(user, deque()).append(ticket)
        try:
            async with asyncio.timeout(self._wait_s):
                await ticket
        except BaseException as error:
            if ticket.done() and not ticket.cancelled():
                # The slot was handed over in the very moment in which its owner gave up: pass it on.
                self._give_back()
            else:
                self._leave(user, ticket)
            if isinstance(error, TimeoutError):
                raise NoCapacity(f"no slot became free within {self._wait_s:g} s") from None
            raise

    def _leave(self, user: str, ticket: asyncio.Future[None]) -> None:
        line = self._lines.get(user)
        if line is not None and ticket in line:
            line.remove(ticket)
            if not line:
                del self._lines[user]

    def _give_back(self) -> None:
        while self._lines:
            user, line = next(iter(self._lines.items()))
            ticket = line.popleft()
            if line:
                self._lines.move_to_end(user)  # the next slot is for the next user
            else:
                del self._lines[user]
            if not ticket.done():
                ticket.set_result(None)
                return
        self._free += 1
