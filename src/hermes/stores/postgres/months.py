"""The months of calls and of the journal, on PostgreSQL: partitions by the time that their ids begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from psycopg import sql

from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of, execute, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("months")
AHEAD = timedelta(days=62)
"""Two months: so long may the chore fail before new rows come into the partition that takes what has none."""
ANALYZE_EVERY = timedelta(days=1)


class EmptiedMonth(NamedTuple):
    """A month of the journal without content, and the index in whose order it is rewritten."""

    table: str
    index_name: str


@dataclass(frozen=True, slots=True)
class PostgresMonths:
    """The port Months."""

    lock_ms: int = 2_000
    """How long a statement waits for a lock: so long may turns wait behind it."""
    analyze_from_rows: int = 10_000
    """With fewer rows in all months every plan is good."""

    async def make(self, tx: Transaction, now: datetime) -> Sequence[str]:
        await execute(tx, SQL["patience"], {"lock_ms": self.lock_ms})
        stray: datetime | None = await fetch_value(tx, SQL["stray"])
        since = now if stray is None else min(now, stray)
        return await fetch_values(tx, SQL["make"], {"since": since, "until": now + AHEAD})

    async def drop_calls(self, tx: Transaction, before: date) -> Sequence[str]:
        await execute(tx, SQL["patience"], {"lock_ms": self.lock_ms})
        names: list[str] = await fetch_values(tx, SQL["dropped"], {"before": before})
        for name in names:
            await connection_of(tx).execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
        return names

    async def delete_calls(self, tx: Transaction, before: date, *, limit: int) -> int:
        ids = await fetch_values(tx, SQL["old_calls"], {"before": before, "limit": limit})
        return await execute(tx, SQL["delete_calls"], {"ids": ids}) if ids else 0

    async def rewrite_emptied(self, tx: Transaction, before: date) -> str | None:
        await execute(tx, SQL["patience"], {"lock_ms": self.lock_ms})
        for month in await fetch_rows(tx, EmptiedMonth, SQL["emptied"], {"before": before}):
            table, index = sql.Identifier(month.table), sql.Identifier(month.index_name)
            has_content = sql.SQL("select exists (select from {} where request is not null or result is not null)").format(table)
            [(has_it,)] = await (await connection_of(tx).execute(has_content)).fetchall()
            if not has_it:
                await connection_of(tx).execute(sql.SQL("cluster {} using {}").format(table, index))
                return month.table
        return None

    async def analyze(self, tx: Transaction, now: datetime) -> bool:
        if not await fetch_value(tx, SQL["is_unplanned"], {"before": now - ANALYZE_EVERY, "rows": self.analyze_from_rows}):
            return False
        await execute(tx, SQL["patience"], {"lock_ms": self.lock_ms})
        await connection_of(tx).execute("analyze calls, run_events")
        return True
