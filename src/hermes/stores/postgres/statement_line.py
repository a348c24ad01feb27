"""A connection for statements that go to PostgreSQL together: all are sent at once, run one after the other in one transaction, and
answered with one commit. That is libpq's pipeline mode; psycopg's own use of it waits for the socket at each statement.

Knows nothing about callers: who waits for which statement is known in `shared_commits.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow

from hermes.stores.postgres.packed_arrays import register_packed_arrays
from hermes.stores.postgres.queries import PositionalQuery

FORMATS = {"s": PyFormat.AUTO, "b": PyFormat.BINARY, "t": PyFormat.TEXT}
MAX_PREPARED = 200
"""Prepared statements of one connection. A statement is prepared for each combination of its values' types: few of them occur."""

Row = tuple[Any, ...]


class LineContext:
    """How values are written and read here: as on every connection of this package."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(psycopg.adapters)
        register_packed_arrays(self.adapters)


CONTEXT = LineContext()


class BoundStatement(NamedTuple):
    """A statement with its values, as they go over the wire."""

    statement: NumberedStatement
    values: Sequence[Buffer | None]
    types: tuple[int, ...]
    formats: Sequence[Format]


class NumberedStatement:
    """A named query with numbers in the place of its names."""

    def __init__(self, query: bytes) -> None:
        self.query, self._positional = query, PositionalQuery.of(query)
        self.text = self._positional.text
        self._formats = [FORMATS[format_] for format_ in self._positional.formats.values()]
        self._transformer = Transformer(CONTEXT)  # keeps what it learned of values' types

    def bind(self, values: Mapping[str, Any]) -> BoundStatement:
        """Write the values. Raises what psycopg raises for a value that it cannot write, and KeyError for one that is missing."""
        transformer = self._transformer
        written = transformer.dump_sequence(self._positional.values(values), self._formats)
        return BoundStatement(self, written, tuple(transformer.types or ()), list(transformer.formats or ()))

    def read(self, result: PGresult) -> list[Row]:
        """The rows of a result."""
        self._transformer.set_pgresult(result)
        return self._transformer.load_rows(0, result.ntuples, tuple)


@cache
def number_placeholders(query: bytes) -> NumberedStatement:
    """The numbered form of a query of this package."""
    return NumberedStatement(query)


class LineBroken(Exception):
    """The connection was lost. Whether the statements are committed is unknown, unless nothing was sent."""


class BatchRefused(Exception):
    """A statement failed, so none of its batch was done."""


class StatementLine:
    """Sends batches, one at a time. It belongs to one event loop, and its connection is used by nothing else."""

    def __init__(self, connection: psycopg.AsyncConnection[TupleRow]) -> None:
        self._connection, self._pgconn = connection, connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._socket = self._pgconn.socket
        self._prepared: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._waiter: asyncio.Future[None] | None = None
        self.is_usable = True
        """False: the next batch needs another connection."""
        self._pgconn.enter_pipeline_mode()
        self._loop.add_reader(self._socket, self._read_input)

    async def run(self, batch: Sequence[BoundStatement]) -> list[list[Row]]:
        """Run the statements of a batch in one transaction, and return the rows of each. Raises BatchRefused and LineBroken."""
        was_usable, self.is_usable = self.is_usable, False  # until the batch has ended: also if this is cancelled
        try:
            made = self._send(batch)
            await self._flush()
            results = await self._receive()
        except (psycopg.Error, OSError) as error:
            raise LineBroken(str(error).strip()) from error
        failed = next((result for result in results if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)), None)
        if failed is not None:
            self.is_usable = was_usable and not made  # what this batch was to prepare may be there or not
            raise BatchRefused(failed.error_message.decode(errors="replace").strip())
        self.is_usable = was_usable and len(self._prepared) < MAX_PREPARED
        rows = [result for result in results if result.status == ExecStatus.TUPLES_OK]
        return [each.statement.read(result) for each, result in zip(batch, rows, strict=True)]

    async def aclose(self) -> None:
        self.is_usable = False
        self._loop.remove_reader(self._socket)
        await self._connection.close()

    def _send(self, batch: Sequence[BoundStatement]) -> int:
        """Put a batch into libpq's buffer; return how many statements were new to this connection."""
        pgconn, known = self._pgconn, len(self._prepared)
        for each in batch:
            key = (each.statement.text, each.types)
            name = self._prepared.get(key)
            if name is None:
                name = self._prepared[key] = b"line_%d" % len(self._prepared)
                pgconn.send_prepare(name, each.statement.text, param_types=each.types)
            pgconn.send_query_prepared(name, each.values, param_formats=each.formats)
        pgconn.pipeline_sync()
        return len(self._prepared) - known

    async def _flush(self) -> None:
        while self._pgconn.flush():
            # The server stops reading if nothing reads its answers; the reader does.
            writable = self._loop.create_future()
            self._loop.add_writer(self._socket, resolve, writable)
            try:
                await writable
            finally:
                self._loop.remove_writer(self._socket)

    async def _receive(self) -> list[PGresult]:
        """The results of a batch, without the one that ends it."""
        results: list[PGresult] = []
        while True:
            while self._pgconn.status == ConnStatus.OK and self._pgconn.is_busy():
                self._waiter = self._loop.create_future()
                await self._waiter
            if self._pgconn.status != ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
            result = self._pgconn.get_result()
            if result is None:
                continue  # between two statements
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)

    def _read_input(self) -> None:
        """Read what has come: answers, or between two batches a notice or the end of the connection."""
        try:
            self._pgconn.consume_input()
        except psycopg.Error:
            self.is_usable = False
        if self._pgconn.status != ConnStatus.OK:
            self.is_usable = False
            self._loop.remove_reader(self._socket)
        if self._waiter is not None:
            resolve(self._waiter)


def resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
