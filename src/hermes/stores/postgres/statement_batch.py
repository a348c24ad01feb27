"""Work of many callers that goes to PostgreSQL together: one connection, one statement, one commit for all that were waiting.

While one batch is under way, the next one gathers. A caller that is alone waits for no other. Items that must not be in one batch, such as
two changes of one row, have the same key. A batch that fails is done again item by item, so each caller gets its own result or its own
error, as if it had been alone.

If the connection is lost, the batch may be committed all the same. Then an item that finds its own rows there counts as done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from enum import StrEnum
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import psycopg

from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import Database, connection_of

MAX_ITEMS = 64
"""Items in one batch: more would hold their locks for too long."""
MAX_BATCHES = 2
"""Batches under way at once: while PostgreSQL writes one, the next one is on its way."""
MAX_HELD_UP_S = 0.25
"""How long a batch may hold up the next ones. One that takes longer waits for a lock that another transaction holds."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchFate(StrEnum):
    """What became of the items of a batch."""

    WRITTEN = "written"
    NOT_WRITTEN = "not written"
    UNKNOWN = "unknown"
    NO_CONNECTION = "no connection"


class WaitingItem(NamedTuple, Generic[Item, Result]):
    """An item that waits for its batch, and the future that gets its result."""

    item: Item
    key: Hashable
    order: Hashable
    result: asyncio.Future[Result]


class StatementBatch(Generic[Item, Result]):
    """Runs items in batches. Each is a transaction of its own, or part of one with others: it must not matter to its caller."""

    def __init__(
        self,
        database: Database,
        run: Callable[[Transaction, Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        is_done: Callable[[Transaction, Item], Awaitable[Result]] | None = None,
    ) -> None:
        """`run` does all items in one statement, and returns the result of each; a second run of an item changes nothing, and returns
        nothing true or raises. `is_done` returns the result of a first run whose reply was lost; None: the items only read."""
        self._database, self._do, self._is_done = database, run, is_done
        self._waiting: list[WaitingItem[Item, Result]] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._slow: set[asyncio.Task[None]] = set()
        """Batches that wait for a lock. The next ones do not wait for them."""
        self._is_due = False

    async def run(self, item: Item, *, key: Hashable = None, order: Hashable = None) -> Result:
        """Do an item with others, and return its result. Raises as a transaction of its own would. If a batch fails, items of one `order`
        are done one after the other, as they came, and all others at the same time."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Result] = loop.create_future()
        self._waiting.append(WaitingItem(item, key, order, result))
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._start)  # after the other tasks that are ready now have come
        return await result

    def _start(self) -> None:
        self._is_due = False
        while self._waiting and len(self._under_way) < MAX_BATCHES:
            batch = asyncio.create_task(self._run(self._take()))
            self._under_way.add(batch)
            timer = asyncio.get_running_loop().call_later(MAX_HELD_UP_S, self._let_go_on, batch)
            batch.add_done_callback(partial(self._end, timer))

    def _take(self) -> list[WaitingItem[Item, Result]]:
        """The items of the next batch, in their order; the second item of a key stays for the batch after it."""
        taken: list[WaitingItem[Item, Result]] = []
        left: list[WaitingItem[Item, Result]] = []
        keys: set[Hashable] = set()
        for each in self._waiting:
            if len(taken) == MAX_ITEMS or each.key in keys:
                left.append(each)
                continue
            if each.key is not None:
                keys.add(each.key)
            taken.append(each)
        self._waiting = left
        return taken

    def _let_go_on(self, batch: asyncio.Task[None]) -> None:
        """Let the next batch begin beside a slow one."""
        self._slow.add(batch)
        self._under_way.discard(batch)
        self._start()

    def _end(self, timer: asyncio.TimerHandle, batch: asyncio.Task[None]) -> None:
        timer.cancel()
        self._slow.discard(batch)
        self._under_way.discard(batch)
        self._start()

    async def _run(self, taken: Sequence[WaitingItem[Item, Result]]) -> None:
        try:
            fate = await self._run_together(taken) if len(taken) > 1 else BatchFate.NOT_WRITTEN
            if fate in (BatchFate.NOT_WRITTEN, BatchFate.UNKNOWN):
                lines: dict[Hashable, list[WaitingItem[Item, Result]]] = {}
                for number, each in enumerate(taken):
                    lines.setdefault(("alone", number) if each.order is None else each.order, []).append(each)
                # Not one line after the other: an item may wait half a minute for a lock, and the others have nothing to do with it.
                await asyncio.gather(*(self._run_line(line, may_be_written=fate is BatchFate.UNKNOWN) for line in lines.values()))
        finally:
            for each in taken:
                if not each.result.done():  # there is no connection, or the process is ending
                    each.result.set_exception(StoreUnavailable("PostgreSQL cannot be used: the write was given up"))

    async def _run_together(self, taken: Sequence[WaitingItem[Item, Result]]) -> BatchFate:
        """Do all items in one statement. If one of them fails, nothing is written."""
        try:
            async with self._database.once() as tx:
                try:
                    results = await self._do(tx, [each.item for each in taken])
                except Exception:  # noqa: BLE001  # the item that fails gets its error below
                    return BatchFate.UNKNOWN if connection_of(tx).broken else BatchFate.NOT_WRITTEN
        except StoreUnavailable:
            return BatchFate.NO_CONNECTION
        for each, result in zip(taken, results, strict=True):
            settle(each.result, result)
        return BatchFate.WRITTEN

    async def _run_line(self, line: Sequence[WaitingItem[Item, Result]], *, may_be_written: bool) -> None:
        for each in line:
            if not await self._run_alone(each, may_be_written=may_be_written):
                return  # each of the others would wait as long for a connection

    async def _run_alone(self, waiting: WaitingItem[Item, Result], *, may_be_written: bool) -> bool:
        """Do one item by itself; return whether there was a connection."""
        is_done, is_connected = self._is_done if may_be_written else None, False
        try:
            async with self._database.once() as tx:
                is_connected = True
                # If the lost batch is still under way on the server, this waits for its locks: afterwards its fate is known.
                try:
                    [result] = await self._do(tx, [waiting.item])
                except psycopg.IntegrityError:
                    if is_done is None or not (result := await is_done(tx, waiting.item)):
                        raise
                if is_done is not None and not result:
                    result = await is_done(tx, waiting.item)
                settle(waiting.result, result)
        except Exception as error:  # noqa: BLE001  # its caller raises it
            if not waiting.result.done():
                waiting.result.set_exception(error)
        return is_connected


def settle(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():  # its caller may have been cancelled
        future.set_result(result)
