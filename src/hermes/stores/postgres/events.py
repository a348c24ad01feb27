"""The stream of events on PostgreSQL: three tables read as one, behind no transaction that is still open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.events import EFFECT_NAMES, EventCursor, EventPage, EventSource, OperationsEvent
from hermes.ports.runtime import Transaction
from hermes.ports.users import DEFAULT_AGENT
from hermes.stores.postgres.database import fetch_rows
from hermes.stores.postgres.queries import load_queries
from hermes.stores.postgres.table_copy import OLDEST_XID

SQL = load_queries("events")

MOVED_XID = int(OLDEST_XID)
"""The transaction of all rows that came from another database: below every transaction of this one."""


class PostgresOperationsEvents:
    """The port OperationsEvents. It needs two statements and no transaction: the second sees at least what the first one saw as ended."""

    async def read(self, tx: Transaction, after: EventCursor, *, limit: int) -> EventPage:
        horizon = await read_horizon(tx)
        after = horizon.known(after)
        values = {**event_values(after), "settled": horizon.settled, "limit": limit}
        events = await fetch_rows(tx, read_stream_event, SQL["read"], values)
        is_last = len(events) < limit
        return EventPage(events, max(after, EventCursor(horizon.settled, 0)) if is_last else events[-1].cursor, is_last)

    async def read_turn(
        self, tx: Transaction, turn_id: UUID, after: EventCursor, *, only_settled: bool = False
    ) -> Sequence[OperationsEvent]:
        horizon = await read_horizon(tx)
        values = {**event_values(horizon.known(after)), "turn_id": turn_id}
        events = await fetch_rows(tx, read_stream_event, SQL["read_turn"], values)
        return [event for event in events if event.cursor.xid < horizon.settled] if only_settled else events

    async def end(self, tx: Transaction) -> EventCursor:
        return EventCursor((await read_horizon(tx)).settled, 0)


class Horizon(NamedTuple):
    """Which transactions of this database have surely ended, which number the next one gets, and which one copied it from another."""

    settled: int
    next: int
    copied: int

    def known(self, cursor: EventCursor) -> EventCursor:
        """Return the cursor as this database knows it. One that lies before its beginning or in its future is of the database from which
        the rows came, and goes on by its number."""
        is_foreign = MOVED_XID < cursor.xid < self.copied or cursor.xid > self.next
        return EventCursor(MOVED_XID, cursor.number) if is_foreign else cursor


async def read_horizon(tx: Transaction) -> Horizon:
    [horizon] = await fetch_rows(tx, Horizon, SQL["horizon"])
    return horizon


def event_values(after: EventCursor) -> dict[str, Any]:
    return {"xid": after.xid, "number": after.number, "effects": Jsonb(dict(EFFECT_NAMES)), "default_agent": DEFAULT_AGENT}


def read_stream_event(*, xid: int, number: int, source: str, facts: Mapping[str, Any], **columns: Any) -> OperationsEvent:
    return OperationsEvent(cursor=EventCursor(xid, number), source=EventSource(source), facts=facts, **columns)
