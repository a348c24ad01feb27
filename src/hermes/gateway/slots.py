"""How many model calls are in flight at once in this process, and which caller is next. Fair between users: a user with many calls waits
behind their own calls. Fair between backends: a backend that hangs holds at most two thirds of the slots, and the others go on.

Holds slots and queues, knows nothing of models. Not thread-safe: one event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from hermes.ports.models import NoCapacity


def max_slots_per_backend(slots: int, own: int | None = None) -> int:
    """How many of the slots one backend may hold: two thirds, and no more than its own limit."""
    share = max(1, slots * 2 // 3)
    return share if own is None else min(own, share)


@dataclass(eq=False, slots=True)
class QueuePlace:
    """A caller's place in the queue."""

    backend: str
    is_next: asyncio.Future[None]


class Slots:
    """A number of slots. The users take turns; the calls of one user are served in order. A caller whose backend has no room is passed
    over and keeps its place."""

    def __init__(self, count: int = 30, *, wait_s: float = 15.0, max_queue: int = 1_000, limits: Mapping[str, int] | None = None) -> None:
        """`wait_s` is for the whole chain of a call; `max_queue` is for each backend; `limits` has the most calls of single backends."""
        self.count, self.wait_s, self._max_queue, self._limits = count, wait_s, max_queue, dict(limits or {})
        self._used: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[QueuePlace]] = OrderedDict()

    @property
    def used(self) -> int:
        return self._used.total()

    @property
    def waiting(self) -> int:
        return self._waiting.total()

    @asynccontextmanager
    async def hold(self, user: str, backend: str, *, wait_s: float | None = None) -> AsyncIterator[None]:
        """Hold a slot for a backend as long as the block lasts. Raises NoCapacity after `wait_s`, or at once when the queue is too long."""
        await self._take(user, backend, self.wait_s if wait_s is None else wait_s)
        try:
            yield
        finally:
            self._give_back(backend)

    def has_room(self, backend: str) -> bool:
        return self.used < self.count and self._used[backend] < max_slots_per_backend(self.count, self._limits.get(backend))

    async def _take(self, user: str, backend: str, wait_s: float) -> None:
        if self.has_room(backend):  # then no caller waits for it: a slot that becomes free is handed over at once
            self._used[backend] += 1
            return
        if self._waiting[backend] >= self._max_queue:
            raise NoCapacity(f"{self._waiting[backend]} calls of {backend} wait already")
        place = QueuePlace(backend, asyncio.get_running_loop().create_future())
        self._queues.setdefault(user, deque()).append(place)
        self._waiting[backend] += 1
        try:
            async with asyncio.timeout(wait_s):
                await place.is_next
        except BaseException as error:
            if place.is_next.done() and not place.is_next.cancelled():
                # The slot was handed over in the moment in which the caller gave up: pass it on.
                self._give_back(backend)
            else:
                self._leave(user, place)
            if isinstance(error, TimeoutError):
                raise NoCapacity(f"no slot of {backend} became free within {wait_s:g} s") from None
            raise

    def _leave(self, user: str, place: QueuePlace) -> None:
        queue = self._queues[user]
        queue.remove(place)
        if not queue:
            del self._queues[user]
        self._waiting[place.backend] -= 1

    def _give_back(self, backend: str) -> None:
        """Free a slot and hand it to the next caller whose backend has room. One slot became free, so at most one caller can go on."""
        self._used[backend] -= 1
        with_room = {backend for backend, waiting in self._waiting.items() if waiting and self.has_room(backend)}
        if not with_room:
            return  # often so while a backend hangs: this saves the search through the many callers that wait for it
        for user, queue in self._queues.items():
            for place in queue:
                if place.backend in with_room and not place.is_next.done():
                    self._queues.move_to_end(user)  # the next slot is for the next user
                    self._leave(user, place)
                    self._used[place.backend] += 1
                    place.is_next.set_result(None)
                    return
