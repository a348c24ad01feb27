"""The figures that are watched each minute, on PostgreSQL."""

from __future__ import annotations

from typing import NamedTuple

from hermes.ports.alerts import AgentHourSpend, WatchFigures, WellPlace
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_row, fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("watch")


class FailingChore(NamedTuple):
    """A chore whose last try failed."""

    name: str
    failed: str


class PostgresWatch:
    """The port WatchReader."""

    async def read(self, tx: Transaction, *, failed_within_s: float) -> WatchFigures:
        figures: dict[str, float] = {}
        for query in ("waiting", "dead_letters", "turns"):
            figures.update(await fetch_row(tx, dict, SQL[query], {"failed_within_s": failed_within_s}) or {})
        chores = await fetch_rows(tx, FailingChore, SQL["failing_chores"])
        return WatchFigures(
            waiting=int(figures["waiting"]),
            oldest_s=figures["oldest_s"],
            new_dead_letters=int(figures["new_dead_letters"]),
            dead_letters=int(figures["dead_letters"]),
            turns=int(figures["turns"]),
            failed=int(figures["failed"]),
            kill_switch=await fetch_row(tx, dict, SQL["kill_switch"]) or {},
            failing_chores={chore.name: chore.failed for chore in chores},
            well_places=await fetch_rows(tx, WellPlace, SQL["well_places"]),
            spends=await fetch_rows(tx, AgentHourSpend, SQL["spends"]),
        )
