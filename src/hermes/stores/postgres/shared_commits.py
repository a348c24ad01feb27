"""Single statements of many callers, which go to PostgreSQL together: one trip and one commit for all that were waiting.

While one batch is under way, the next one gathers; a statement that comes alone goes at once, and alone. A statement is committed when its
caller goes on, as if it had been sent alone. If one of a batch fails or waits for a lock, none of the batch is done, and each of them is
sent again by itself: so no statement fails or waits because of another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from hermes.event_log import get_logger
from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import Database, SharedTransaction, fetch_shared
from hermes.stores.postgres.statement_line import BatchRefused, BoundStatement, LineBroken, Row, StatementLine, number_placeholders
from hermes.tasks import end_tasks

log = get_logger(__name__)

MAX_STATEMENTS = 32
"""Statements in one batch: more would hold their locks for too long."""
MAX_LINES = 2
"""Batches under way at once: while PostgreSQL commits one, it runs the statements of another."""
CLOSE_S = 5.0
"""How long a closing process waits for its statements."""
LOCK_LIMIT = "-c lock_timeout=200ms"
"""So long a batch waits for a lock that another transaction holds; a statement alone waits for as long as statements may."""


class WaitingStatement(NamedTuple):
    """A statement that waits for its batch, and the future that gets its rows."""

    bound: BoundStatement
    values: Mapping[str, Any]
    order: str
    rows: asyncio.Future[list[Row]]


class SharedCommits:
    """Sends statements in batches. Opens its connections at the first use."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[WaitingStatement] = []
        self._idle: list[StatementLine] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._is_due = False

    async def run(self, query: bytes, values: Mapping[str, Any], order: str = "") -> list[Row]:
        """Run a statement that returns rows, and commit it. Statements with locks in common have orders, and take them in this order: so
        two batches do not wait for each other. Raises as a connection of its own would."""
        loop = asyncio.get_running_loop()
        rows: asyncio.Future[list[Row]] = loop.create_future()
        self._waiting.append(WaitingStatement(number_placeholders(query).bind(values), values, order, rows))
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._start)  # after the other tasks that are ready now have come
        return await rows

    async def aclose(self) -> None:
        """Wait for what is under way, and close the connections. A server that does not answer is not waited for."""
        if self._under_way or self._others:
            await asyncio.wait(self._under_way | self._others, timeout=CLOSE_S)
        await end_tasks(*self._under_way, *self._others)
        while self._idle:
            await self._idle.pop().aclose()

    def _start(self) -> None:
        self._is_due = False
        while self._waiting and len(self._under_way) < MAX_LINES:
            # A caller may have been cancelled while its statement waited: then nothing of it was sent.
            taken = [each for each in self._waiting[:MAX_STATEMENTS] if not each.rows.done()]
            del self._waiting[:MAX_STATEMENTS]
            if taken:
                batch = asyncio.create_task(self._run(sorted(taken, key=place_in_batch)))
                self._under_way.add(batch)
                batch.add_done_callback(self._end)

    def _end(self, batch: asyncio.Task[None]) -> None:
        self._under_way.discard(batch)
        self._start()

    async def _run(self, taken: Sequence[WaitingStatement]) -> None:
        try:
            found = await self._run_together([each.bound for each in taken])
        except BatchRefused as error:
            log.info("batch_refused", statements=len(taken), error=str(error).splitlines()[0])
            for each in taken:
                self._go_on(self._run_alone(each))
        except (LineBroken, StoreUnavailable) as error:
            for each in taken:
                fail(each.rows, StoreUnavailable(f"PostgreSQL cannot be used: {error}"))
        except BaseException:  # the process is ending, or a fault of ours: each caller hears of it, and the task raises it
            for each in taken:
                fail(each.rows, StoreUnavailable("the write was given up"))
            raise
        else:
            for each, rows in zip(taken, found, strict=True):
                if not each.rows.done():  # its caller may have been cancelled
                    each.rows.set_result(rows)

    async def _run_together(self, batch: Sequence[BoundStatement]) -> list[list[Row]]:
        line = self._take_idle() or StatementLine(await self._database.connect(LOCK_LIMIT))
        try:
            return await line.run(batch)
        finally:
            if line.is_usable:
                self._idle.append(line)
            else:
                self._go_on(line.aclose())

    def _go_on(self, work: Coroutine[Any, Any, None]) -> None:
        """Start what no later batch waits for."""
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    def _take_idle(self) -> StatementLine | None:
        """A connection that is still there: after a restart of the server, all are gone."""
        while self._idle:
            line = self._idle.pop()
            if line.is_usable:
                return line
            self._go_on(line.aclose())
        return None

    async def _run_alone(self, waiting: WaitingStatement) -> None:
        if waiting.rows.done():  # its caller was cancelled meanwhile, and nothing of it is done
            return
        try:
            async with self._database.once() as tx:
                rows = await fetch_shared(tx, waiting.bound.statement.query, waiting.values)
            if not waiting.rows.done():
                waiting.rows.set_result(rows)
        except Exception as error:  # noqa: BLE001  # its caller raises it
            fail(waiting.rows, error)


@dataclass(frozen=True, slots=True)
class SharingTransactions:
    """The port Transactions, for callers of which many do the same at one time: what is written `once` may be committed together."""

    database: Database
    commits: SharedCommits

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        return self.database.begin()

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        async with AsyncExitStack() as stack:
            yield SharedTransaction(self.commits.run, self.database, stack)


@asynccontextmanager
async def open_sharing(database: Database) -> AsyncIterator[SharingTransactions]:
    """Share commits until the block ends."""
    commits = SharedCommits(database)
    try:
        yield SharingTransactions(database, commits)
    finally:
        await commits.aclose()


def place_in_batch(waiting: WaitingStatement) -> tuple[str, bytes]:
    """Like statements one after the other: PostgreSQL has then what it needs for them at hand."""
    return waiting.order, waiting.bound.statement.query


def fail(rows: asyncio.Future[list[Row]], error: BaseException) -> None:
    if not rows.done():
        rows.set_exception(error)
