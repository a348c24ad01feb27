"""Whatever goes wrong at whichever moment: the caller repeats what it was doing, and the books are as if nothing had gone wrong.

A connection of psycopg talks to the server in one method, `wait`. Here it is wrapped, so every round trip is a place for a fault:
the check of the pool, begin, each statement, the commit. After a fault behind the
commit the caller does not know whether it happened."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database, connection_of

BANK = PostgresCredits()


class Place(StrEnum):
    STATEMENT = "statement"
    ROUND_TRIP = "round trip"


class Line:
    """The line to the server. Armed with a fault, it does it once, before or after the statement or round trip with that number."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url
        self._fault: Fault | None = None
        self._left = 0
        self._is_after = False

    def arm(self, fault: Fault, *, is_after: bool, at: int) -> None:
        self._fault, self._is_after, self._left = fault, is_after, at

    def disarm(self) -> bool:
        """Take the fault away; return whether it happened."""
        happened, self._fault = self._fault is None, None
        return happened

    async def around(self, connection: FaultyConnection, place: Place, work: Callable[[], Awaitable[Any]]) -> Any:
        fault = self._due(place)
        if fault is not None and not self._is_after:
            await fault.happen(connection, self.database_url)
        result = await work()
        if fault is not None and self._is_after:
            await fault.happen(connection, self.database_url)
        return result

    def _due(self, place: Place) -> Fault | None:
        if self._fault is None or self._fault.place is not place:
            return None
        self._left -= 1
        if self._left:
            return None
        fault, self._fault = self._fault, None
        return fault


class FaultyCursor(psycopg.AsyncCursor[Any]):
    """Every statement goes through a cursor, also one that a connection executes."""

    async def execute(self, *arguments: Any, **options: Any) -> Any:
        async def statement() -> Any:
            return await super(FaultyCursor, self).execute(*arguments, **options)

        connection = self.connection
        line = connection.line if isinstance(connection, FaultyConnection) else None
        return await (statement() if line is None else line.around(connection, Place.STATEMENT, statement))


class FaultyConnection(psycopg.AsyncConnection[TupleRow]):
    line: Line | None = None

    async def wait(self, *arguments: Any, **options: Any) -> Any:
        async def round_trip() -> Any:
            return await super(FaultyConnection, self).wait(*arguments, **options)

        return await (round_trip() if self.line is None else self.line.around(self, Place.ROUND_TRIP, round_trip))


# --- what can go wrong


class Fault(NamedTuple):
    place: Place
    happen: Callable[[FaultyConnection, str], Awaitable[None]]


async def error(connection: FaultyConnection, database_url: str) -> None:
    """Nothing came back. The connection lives, and goes back to the pool in the middle of things."""
    raise psycopg.OperationalError("the server did not answer")


async def cut(connection: FaultyConnection, database_url: str) -> None:
    """The network is gone: this side knows at once, the other side whenever it notices."""
    connection.pgconn.finish()
    raise psycopg.OperationalError("the connection is lost")


async def kill(connection: FaultyConnection, database_url: str) -> None:
    """The server ends this connection, as at a restart; we learn of it at the next word."""
    backend = [connection.info.backend_pid]
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other:
        await other.execute("select pg_terminate_backend(%s)", backend)
        while await (await other.execute("select from pg_stat_activity where pid = %s", backend)).fetchone() is not None:
            pass  # the server can wait for this itself, but it looks ten times a second only


async def cancel(connection: FaultyConnection, database_url: str) -> None:
    """The worker is told to stop: the task is cancelled at the next thing that it waits for, which may be in mid-statement."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


FAULTS = [Fault(Place.STATEMENT, error), Fault(Place.ROUND_TRIP, cut), Fault(Place.ROUND_TRIP, kill), Fault(Place.ROUND_TRIP, cancel)]


# --- what was under way


class Scenario(NamedTuple):
    run: Callable[[Database, UUID, UUID], Awaitable[None]]
    balance: Balance
    entries: dict[str, int]


async def a_charged_turn(books: Database, user_id: UUID, turn_id: UUID) -> None:
    async with books.begin() as tx:
        await BANK.grant(tx, user_id, 3, f"signup:{user_id}")
    async with books.begin() as tx:
        await BANK.reserve(tx, user_id, turn_id)
    async with books.begin() as tx:
        await BANK.post(tx, turn_id)


async def a_failed_turn(books: Database, user_id: UUID, turn_id: UUID) -> None:
    async with books.begin() as tx:
        await BANK.grant(tx, user_id, 3, f"signup:{user_id}")
    async with books.begin() as tx:
        await BANK.reserve(tx, user_id, turn_id)
    async with books.begin() as tx:
        await BANK.void(tx, turn_id)


async def a_refunded_turn(books: Database, user_id: UUID, turn_id: UUID) -> None:
    await a_charged_turn(books, user_id, turn_id)
    async with books.begin() as tx:
        await BANK.refund(tx, turn_id)


async def a_turn_in_one_transaction(books: Database, user_id: UUID, turn_id: UUID) -> None:
    async with books.begin() as tx:
        await BANK.grant(tx, user_id, 3, f"signup:{user_id}")
        await BANK.reserve(tx, user_id, turn_id)
        await BANK.post(tx, turn_id)


async def a_late_turn(books: Database, user_id: UUID, turn_id: UUID) -> None:
    """Its reserve expires before the answer comes; the end of the turn reserves again."""
    async with books.begin() as tx:
        await BANK.grant(tx, user_id, 3, f"signup:{user_id}")
    async with books.begin() as tx:
        await BANK.reserve(tx, user_id, turn_id)
    async with books.begin() as tx:
        await BANK.expire(tx, older_than_s=0)
    async with books.begin() as tx:
        try:
            await BANK.post(tx, turn_id)
        except NotFound:
            await BANK.reserve(tx, user_id, turn_id)
            await BANK.post(tx, turn_id)


SCENARIOS = [
    Scenario(a_charged_turn, Balance(available=2, reserved=0), {"grant": 1, "post": 1, "refund": 0, "open": 0}),
    Scenario(a_failed_turn, Balance(available=3, reserved=0), {"grant": 1, "post": 0, "refund": 0, "open": 0}),
    Scenario(a_refunded_turn, Balance(available=3, reserved=0), {"grant": 1, "post": 1, "refund": 1, "open": 0}),
    Scenario(a_late_turn, Balance(available=2, reserved=0), {"grant": 1, "post": 1, "refund": 0, "open": 0}),
    Scenario(a_turn_in_one_transaction, Balance(available=2, reserved=0), {"grant": 1, "post": 1, "refund": 0, "open": 0}),
]


@pytest.fixture
async def line(database_url: str) -> Line:
    return Line(database_url)


@pytest.fixture
async def books(database_url: str, line: Line) -> AsyncIterator[Database]:
    """The database behind a pool of two connections on that line."""

    async def configure(connection: FaultyConnection) -> None:
        connection.line = line

    pool = AsyncConnectionPool(
        database_url,
        connection_class=FaultyConnection,
        kwargs={"autocommit": True, "cursor_factory": FaultyCursor},
        min_size=2,
        max_size=2,
        open=False,
        configure=configure,
        check=AsyncConnectionPool.check_connection,
    )
    async with pool:
        yield Database(pool)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.happen.__name__)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.run.__name__)
async def test_a_turn_that_is_repeated_after_a_fault_counts_once(books, line, scenario, fault):
    for is_after in (False, True):
        happened = 0
        while True:
            user_id, turn_id = await newcomer(books), uuid4()
            line.arm(fault, is_after=is_after, at=happened + 1)
            is_failed = await attempt(scenario.run(books, user_id, turn_id))
            if not line.disarm():
                break
            happened += 1
            if is_failed:
                await scenario.run(books, user_id, turn_id)
            async with books.begin() as tx:
                found = await BANK.balance(tx, user_id), await entries(tx, user_id)
                assert (*found, await BANK.audit(tx)) == (scenario.balance, scenario.entries, []), f"{fault.place} {happened}, {is_after=}"
        assert not is_failed
        assert happened >= 5  # the shortest scenario: a check of the pool, and four statements


async def attempt(work: Any) -> bool:
    """Do the work in a task of its own; return whether a fault ended it."""
    try:
        await asyncio.create_task(work)
    except (StoreUnavailable, asyncio.CancelledError):
        return True
    return False


async def newcomer(books: Database) -> UUID:
    async with books.begin() as tx:
        made = await connection_of(tx).execute(
            "insert into users (state, referral_code) values ('active', %s) returning id", [secrets.token_hex(8)]
        )
        return (await made.fetchall())[0][0]


async def entries(tx: Transaction, user_id: UUID) -> dict[str, int]:
    """How often each thing that must not happen twice happened, and how many reserves are left open."""
    query = """
        select count(*) filter (where kind = 'grant'), count(*) filter (where kind = 'post'), count(*) filter (where kind = 'refund'),
               (select count(*) from open_reserves where user_id = %(user_id)s)
        from credit_entries where user_id = %(user_id)s"""
    (row,) = await (await connection_of(tx).execute(query.encode(), {"user_id": user_id})).fetchall()
    return dict(zip(("grant", "post", "refund", "open"), row, strict=True))
