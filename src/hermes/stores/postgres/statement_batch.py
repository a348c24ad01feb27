"""Statements of many callers that go to PostgreSQL together: one connection, one write, one commit for all that were waiting.

While one batch is under way, the next one gathers. A caller that is alone waits for nobody. A statement that fails takes its batch with
it, so each of that batch is then run by itself: a caller gets its own result or its own error, as if it had been alone.

If the connection is lost, the batch may be committed all the same. Then a statement that finds its own rows there counts as written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import psycopg

from hermes.ports.errors import StoreUnavailable
from hermes.stores.postgres.database import Database, connection_of, execute

MAX_STATEMENTS = 64
"""Statements in one batch: more would hold their locks for too long."""
MAX_BATCHES = 2
"""Batches under way at once: while PostgreSQL writes one, the next one is on its way."""


class BatchFate(StrEnum):
    """What became of the statements of a batch."""

    WRITTEN = "written"
    NOT_WRITTEN = "not written"
    UNKNOWN = "unknown"


class WaitingStatement(NamedTuple):
    """A statement that waits for its batch, and the future that gets how many rows it changed."""

    query: bytes
    values: Mapping[str, Any]
    written: bytes
    rows: asyncio.Future[int]


class StatementBatch:
    """Sends statements in batches. Each is a transaction of its own, or part of one with others: it must not matter to its caller."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._size = MAX_STATEMENTS if psycopg.Pipeline.is_supported() else 1  # an old libpq has no pipelines
        self._waiting: list[WaitingStatement] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def execute(self, query: bytes, values: Mapping[str, Any], *, written: bytes) -> int:
        """Run a statement; return how many rows it changed or returned. Raises as a transaction of its own would.

        A second run must change nothing. `written` returns the rows of a first run, by the same values."""
        rows: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingStatement(query, values, written, rows))
        self._start()
        return await rows

    def _start(self) -> None:
        if self._waiting and len(self._under_way) < MAX_BATCHES:
            taken, self._waiting = self._waiting[: self._size], self._waiting[self._size :]
            batch = asyncio.create_task(self._run(taken))
            self._under_way.add(batch)
            batch.add_done_callback(self._end)

    def _end(self, batch: asyncio.Task[None]) -> None:
        self._under_way.discard(batch)
        self._start()

    async def _run(self, taken: Sequence[WaitingStatement]) -> None:
        try:
            fate = await self._run_together(taken) if len(taken) > 1 else BatchFate.NOT_WRITTEN
            if fate is not BatchFate.WRITTEN:
                for statement in taken:
                    await self._run_alone(statement, may_be_written=fate is BatchFate.UNKNOWN)
        finally:
            for statement in taken:
                if not statement.rows.done():  # the process is ending
                    statement.rows.set_exception(StoreUnavailable("the write was given up"))

    async def _run_together(self, taken: Sequence[WaitingStatement]) -> BatchFate:
        """Run all in one implicit transaction. If one of them fails, nothing is written."""
        try:
            async with self._database.once() as tx:
                connection = connection_of(tx)
                try:
                    async with connection.pipeline():
                        cursors = [await connection.execute(statement.query, statement.values) for statement in taken]
                except psycopg.Error:
                    fate = BatchFate.UNKNOWN if connection.broken else BatchFate.NOT_WRITTEN
                    # The batch took back what was prepared in it, and psycopg would go on as if it were there.
                    await connection.close()
                    return fate
        except StoreUnavailable:
            return BatchFate.NOT_WRITTEN  # there was no connection
        for statement, cursor in zip(taken, cursors, strict=True):
            settle(statement.rows, cursor.rowcount)
        return BatchFate.WRITTEN

    async def _run_alone(self, statement: WaitingStatement, *, may_be_written: bool) -> None:
        try:
            async with self._database.once() as tx:
                # If the lost batch is still under way on the server, this waits for its locks: afterwards its fate is known.
                try:
                    count = await execute(tx, statement.query, statement.values)
                except psycopg.IntegrityError:
                    if not may_be_written or not (count := await execute(tx, statement.written, statement.values)):
                        raise
                if count == 0 and may_be_written:
                    count = await execute(tx, statement.written, statement.values)
                settle(statement.rows, count)
        except (psycopg.Error, StoreUnavailable) as error:
            if not statement.rows.done():
                statement.rows.set_exception(error)


def settle(rows: asyncio.Future[int], count: int) -> None:
    if not rows.done():  # its caller may have been cancelled
        rows.set_result(count)
