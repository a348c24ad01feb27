"""The pool of connections and the transactions on it. The one place where psycopg's errors become ours."""

from __future__ import annotations

import selectors
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolTimeout, TooManyRequests

from hermes.ports.errors import StoreUnavailable
from hermes.ports.transactions import Transaction

Connection = psycopg.AsyncConnection[TupleRow]

# Connection lost, server restarting, too many connections, deadlock victim, a time-out of the server: all may be tried again.
POSTGRES_ERRORS = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    PoolTimeout,
    TooManyRequests,
)


@dataclass(slots=True)
class Database:
    """PostgreSQL, as the other adapters of this package see it."""

    pool: AsyncConnectionPool[Connection]

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        """Open a transaction; see Transactions.begin for what it promises."""
        with translate_errors():
            async with self.pool.connection() as connection, connection.transaction():
                yield connection

    @asynccontextmanager
    async def once(self) -> AsyncIterator[Transaction]:
        """Lend a connection for one statement; see Transactions.once. Two trips less than `begin`."""
        with translate_errors():
            async with self.pool.connection() as connection:
                yield connection

    async def ping(self) -> None:
        """Ask the server for a sign of life; raise StoreUnavailable."""
        with translate_errors():
            async with self.pool.connection() as connection:
                await connection.execute("select 1")


@asynccontextmanager
async def open_database(
    url: str, *, pool_min: int = 2, pool_max: int = 8, connect_timeout_s: float = 5.0, statement_timeout_s: float = 30.0
) -> AsyncIterator[Database]:
    """Hold a pool of connections as long as the block lasts. Raises StoreUnavailable when none can be had in time."""
    limit_ms = round(statement_timeout_s * 1000)
    options: dict[str, Any] = {
        "connect_timeout": max(1, round(connect_timeout_s)),
        # A plan is kept for as long as its connection. One that was made while a table was empty would go on reading it whole; every
        # query here has an index, so that is never right. (And jit, which the penalty on whole tables would set off, never pays here.)
        # A process that is frozen in the middle of a transaction holds its rows no longer than a statement may take.
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
        # The pool doubles its pauses for as long as it tries; giving up early makes the next caller try at once. So an outage ends for us
        # when it ends.
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


async def check_connection(connection: Connection) -> None:
    """Find out that a connection is dead before work is put on it: after a restart of the server, all of them are.

    A server that goes away says so, or closes the socket; either way there is something to read on a connection that has asked nothing.
    Looking for that costs microseconds; asking the server, as the pool's own check does, costs a round trip for every transaction."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        has_news = bool(selector.select(0))
    if has_news:
        await AsyncConnectionPool.check_connection(connection)


async def configure_connection(connection: Connection) -> None:
    """A transaction is opened by name, never by accident. (Not among the options: the job queue passes its own to its listener.)"""
    await connection.set_autocommit(True)  # psycopg's signature


def connection_of(tx: Transaction) -> Connection:
    """Return the connection that a transaction of this package runs on."""
    if not isinstance(tx, psycopg.AsyncConnection):
        raise TypeError(f"expected a transaction of this database, got {type(tx).__name__}")
    return tx


@contextmanager
def translate_errors() -> Iterator[None]:
    """Attribute a lost connection to the store."""
    try:
        yield
    except POSTGRES_ERRORS as error:
        raise StoreUnavailable(
            f"PostgreSQL cannot be used: {str(error).strip().splitlines()[0] if str(error) else type(error).__name__}"
        ) from error
