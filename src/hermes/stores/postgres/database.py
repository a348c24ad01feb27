"""The pool of connections, the transactions on it, and how a query's rows are read. The only place where psycopg's errors become errors of
the ports."""

from __future__ import annotations

import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncRawCursor
from psycopg.rows import TupleRow, kwargs_row, scalar_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests

from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.packed_arrays import register_packed_arrays
from hermes.stores.postgres.queries import PositionalQuery

Connection = psycopg.AsyncConnection[TupleRow]
Row = TypeVar("Row")
NO_VALUES: Mapping[str, Any] = {}
ONE_CALL = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""Looks at a socket with one call of the system. The default selector needs four, and every transaction looks."""

# Connection lost, server restarting, too many connections, deadlock victim, a time-out of the server: the caller may try again.
POSTGRES_ERRORS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    TooManyRequests,
)


@dataclass(slots=True)
class Database:
    """PostgreSQL, as the other adapters of this package use it. The port Transactions."""

    pool: AsyncConnectionPool[Connection]

    async def connect(self, settings: str = "") -> Connection:
        """Open a connection outside of the pool, which the caller closes; `settings` as PostgreSQL's `options`. Raises StoreUnavailable."""
        conninfo, options = self.pool.conninfo, self.pool.kwargs
        if not isinstance(conninfo, str) or not isinstance(options, dict):
            raise TypeError("this pool computes its connections' settings")
        with translate_errors():
            return await open_connection(conninfo, {**options, "options": f"{options.get('options', '')} {settings}"})

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        """Open a transaction; the contract is at Transactions.begin."""
        with translate_errors():
            async with self.pool.connection() as connection, connection.transaction():
                yield connection

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        """Lend a connection for one statement; the contract is at Transactions.once. Two round trips fewer than `begin`."""
        with translate_errors():
            async with self.pool.connection() as connection:
                yield connection

    async def ping(self) -> None:
        """Check that the server answers; raise StoreUnavailable if not."""
        with translate_errors():
            async with self.pool.connection() as connection:
                await connection.execute("select 1")


@dataclass(frozen=True, slots=True)
class NestedTransactions:
    """The port Transactions within one transaction that is open already: what is begun here is kept only if that one commits."""

    connection: Connection

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        with translate_errors():
            async with self.connection.transaction():
                yield self.connection

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        with translate_errors():
            yield self.connection


@asynccontextmanager
async def open_database(
    url: str, *, pool_min: int = 2, pool_max: int = 8, connect_timeout_s: float = 5.0, statement_timeout_s: float = 30.0
) -> AsyncIterator[Database]:
    """Keep a pool of connections open until the block ends. Raises StoreUnavailable if the server gives no connection in time."""
    limit_ms = round(statement_timeout_s * 1000)
    options: dict[str, Any] = {
        "connect_timeout": max(1, round(connect_timeout_s)),
        # PostgreSQL keeps a plan as long as its connection. A plan made while a table was empty would scan the whole table for ever; every
        # query here has an index, so sequential scans are off. (Their penalty would trigger jit, which never pays off here.)
        # A process that freezes inside a transaction keeps its rows locked no longer than a statement may take.
        "options": f"-c statement_timeout={limit_ms} -c idle_in_transaction_session_timeout={limit_ms} "
        "-c timezone=UTC -c enable_seqscan=off -c jit=off",
        "application_name": "hermes",
    }
    pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
        url,
        connection_class=psycopg.AsyncConnection,
        kwargs=options,
        min_size=pool_min,
        max_size=pool_max,
        timeout=connect_timeout_s,
        # The pool doubles its pauses as long as it tries. With an early end the next caller tries at once, so Hermes works again as soon as
        # PostgreSQL does.
        reconnect_timeout=connect_timeout_s,
        configure=configure_connection,
        open=False,
        check=check_connection,
    )
    try:
        with translate_errors():
            await pool.open(wait=True, timeout=connect_timeout_s)
        yield Database(pool)
    finally:
        await pool.close()


async def open_connection(conninfo: str, options: Mapping[str, Any]) -> Connection:
    connection = await psycopg.AsyncConnection.connect(conninfo, **options)
    await configure_connection(connection)
    return connection


async def check_connection(connection: Connection) -> None:
    """Detect a dead connection before it is used: after a restart of the server, all connections are dead.

    A server that stops sends a message or closes the socket; either way an idle connection has something to read. Looking for that
    costs microseconds; the pool's own check asks the server, which costs a round trip for every transaction."""
    with ONE_CALL() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        has_data = bool(selector.select(0))
    if has_data:
        await AsyncConnectionPool.check_connection(connection)


async def configure_connection(connection: Connection) -> None:
    """Turn autocommit on, so that only an explicit begin opens a transaction. (Not among the options: the job queue passes its own
    autocommit to its listener.)"""
    await connection.set_autocommit(True)  # psycopg's signature
    register_packed_arrays(connection.adapters)


def connection_of(tx: Transaction) -> Connection:
    """The connection that a transaction of this package runs on."""
    if not isinstance(tx, psycopg.AsyncConnection):
        raise TypeError(f"expected a transaction of this database, got {type(tx).__name__}")
    return tx


@dataclass(slots=True)
class SharedTransaction:
    """A transaction of `once` without a connection of its own, until a statement needs one."""

    run: Callable[[bytes, Mapping[str, Any], str], Awaitable[list[tuple[Any, ...]]]]
    """Runs a statement together with those of other callers; see SharedCommits."""
    _database: Database
    _stack: AsyncExitStack
    _own: Transaction | None = None

    async def connection(self) -> Connection:
        if self._own is None:
            self._own = await self._stack.enter_async_context(self._database.once())
        return connection_of(self._own)


async def take_connection(tx: Transaction) -> Connection:
    """The connection of a transaction, also of one that takes it only now."""
    return await tx.connection() if isinstance(tx, SharedTransaction) else connection_of(tx)


async def fetch_shared(tx: Transaction, query: bytes, values: Mapping[str, Any], *, order: str = "") -> list[tuple[Any, ...]]:
    """The rows of a query that is all that its transaction does. It may be committed together with others; then its locks are taken in the
    order of `order`."""
    if isinstance(tx, SharedTransaction):
        return await tx.run(query, values, order)
    return await (await connection_of(tx).execute(query, values)).fetchall()


async def execute(tx: Transaction, query: bytes, values: Mapping[str, Any] = NO_VALUES) -> int:
    """Run a query; return how many rows it changed, returned or locked."""
    return (await (await take_connection(tx)).execute(query, values)).rowcount


async def fetch_rows(tx: Transaction, row: Callable[..., Row], query: bytes, values: Mapping[str, Any] = NO_VALUES) -> list[Row]:
    """The rows of a query. `row` is a class or a function that takes every column by its name."""
    return await (await (await take_connection(tx)).cursor(row_factory=kwargs_row(row)).execute(query, values)).fetchall()


async def fetch_row(tx: Transaction, row: Callable[..., Row], query: bytes, values: Mapping[str, Any] = NO_VALUES) -> Row | None:
    """As `fetch_rows`, the first row only; None without rows."""
    return await (await (await take_connection(tx)).cursor(row_factory=kwargs_row(row)).execute(query, values)).fetchone()


async def fetch_values(tx: Transaction, query: bytes, values: Mapping[str, Any] = NO_VALUES) -> list[Any]:
    """The first column of every row."""
    return await (await (await take_connection(tx)).cursor(row_factory=scalar_row).execute(query, values)).fetchall()


async def fetch_value(tx: Transaction, query: bytes, values: Mapping[str, Any] = NO_VALUES) -> Any:
    """The first column of the first row; None without rows."""
    return await (await (await take_connection(tx)).cursor(row_factory=scalar_row).execute(query, values)).fetchone()


async def fetch_positional(tx: Transaction, query: PositionalQuery, values: Mapping[str, Any]) -> list[Any]:
    """As `fetch_values`, for a long query that is run often."""
    cursor = AsyncRawCursor(connection_of(tx), row_factory=scalar_row)
    return await (await cursor.execute(query.text, query.values(values))).fetchall()


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise StoreUnavailable in place of psycopg's errors that may be tried again."""
    try:
        yield
    except POSTGRES_ERRORS as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be used: {str(error).strip().splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
