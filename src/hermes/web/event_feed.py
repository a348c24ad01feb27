"""New events for all readers of this process: one poller asks the store, and the readers share what it found.

A reader keeps its own cursor and asks for the page after it. The newest events are in memory; a reader that is further behind, because it
resumes or is slow, gets its pages from the store. So a slow reader costs no memory, and two hundred readers cost one query a second."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from hermes.ports.errors import StoreUnavailable
from hermes.ports.events import EventCursor, EventPage, OperationsEvent, OperationsEvents
from hermes.ports.runtime import Transactions
from hermes.tasks import end_tasks, stop_if_cancelled

PAGE_EVENTS = 200
MAX_KEPT_EVENTS = 2_000
MAX_STORE_READERS = 2
"""How many readers may read pages from the store at the same time: messages need its connections too."""


class EventFeed:
    """The events of the store, as they come. The poller runs while there is a reader."""

    def __init__(self, transactions: Transactions, events: OperationsEvents, *, poll_s: float = 1.0) -> None:
        self._transactions, self._events, self._poll_s = transactions, events, poll_s
        self._kept: list[OperationsEvent] = []
        self._start: EventCursor | None = None
        """The cursor before the oldest event in memory; None until the poller has asked once."""
        self._end: EventCursor | None = None
        self._readers = 0
        self._poller: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._store_readers = asyncio.Semaphore(MAX_STORE_READERS)
        self.is_store_away = False

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Count one reader for as long as the block lasts."""
        self._readers += 1
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="events")
        try:
            yield
        finally:
            self._readers -= 1

    async def end(self) -> EventCursor:
        """Return the cursor behind everything that happened until now. Raises StoreUnavailable."""
        async with self._transactions.once() as tx:
            return await self._events.end(tx)

    async def page(self, after: EventCursor) -> EventPage:
        """Return the next events after a cursor: from memory, or else from the store. Raises StoreUnavailable.

        The store is also asked about a cursor beyond the newest event: one of the database from which the rows came may look like that."""
        if self._start is not None and self._end is not None and self._start <= after <= self._end:
            first = bisect_right(self._kept, after, key=lambda event: event.cursor)
            found = self._kept[first : first + PAGE_EVENTS]
            is_last = first + len(found) == len(self._kept)
            return EventPage(found, self._end if is_last else found[-1].cursor, is_last)
        async with self._store_readers, self._transactions.once() as tx:
            return await self._events.read(tx, after, limit=PAGE_EVENTS)

    async def turn(self, turn_id: UUID, after: EventCursor) -> EventPage:
        """Return the events of one turn after a cursor, without a look at all others. Raises StoreUnavailable."""
        async with self._store_readers, self._transactions.once() as tx:
            events = await self._events.read_turn(tx, turn_id, after, only_settled=True)
        return EventPage(events, events[-1].cursor if events else after, is_last=True)

    @property
    def changed(self) -> asyncio.Event:
        """Set at the next new events, and when the store goes away or comes back. A reader takes it before it reads a page, so that no
        change is missed meanwhile."""
        return self._changed

    async def aclose(self) -> None:
        """Stop the poller."""
        if self._poller is not None:
            await end_tasks(self._poller)

    async def _poll(self) -> None:
        """Ask for new events again and again, until no reader is left."""
        self._kept, self._start, self._end = [], None, None  # what happened since the last reader left is not in memory
        while self._readers:
            try:
                is_last = await self._read_new()
            except StoreUnavailable:
                is_last, is_away = True, True
            else:
                is_away = False
            stop_if_cancelled()
            if is_away != self.is_store_away:
                self.is_store_away = is_away
                self.wake()
            if is_last:
                await asyncio.sleep(self._poll_s)
        self._kept, self._start, self._end = [], None, None

    async def _read_new(self) -> bool:
        """Read one page into memory; return whether it was the last."""
        async with self._transactions.once() as tx:
            if self._end is None:
                self._start = self._end = await self._events.end(tx)
            page = await self._events.read(tx, self._end, limit=PAGE_EVENTS)
        self._end = page.next
        self._kept += page.events
        if len(self._kept) > MAX_KEPT_EVENTS:
            dropped = len(self._kept) - MAX_KEPT_EVENTS
            self._start = self._kept[dropped - 1].cursor
            del self._kept[:dropped]
        if page.events:
            self.wake()
        return page.is_last

    def wake(self) -> None:
        """Let all readers look, also for news that are not in the store's stream yet."""
        self._changed.set()
        self._changed = asyncio.Event()
