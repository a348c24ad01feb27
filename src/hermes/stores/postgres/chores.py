"""Chores on PostgreSQL: one lease row per chore."""

from __future__ import annotations

from typing import Any

from hermes.ports.runtime import ChoreLease, Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("chores")


class PostgresChores:
    """The port Chores."""

    async def take(self, tx: Transaction, chore: str, slot: int, *, lease_s: float) -> ChoreLease | None:
        row = await (await connection_of(tx).execute(SQL["take"], {"name": chore, "slot": slot, "lease_s": lease_s})).fetchone()
        return None if row is None else ChoreLease(chore, slot, row[0])

    async def keep(self, tx: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        return await (await connection_of(tx).execute(SQL["keep"], {**lease_columns(lease), "lease_s": lease_s})).fetchone() is not None

    async def end(self, tx: Transaction, lease: ChoreLease) -> None:
        await connection_of(tx).execute(SQL["end"], lease_columns(lease))

    async def give_back(self, tx: Transaction, lease: ChoreLease, *, pause_s: float = 0.0) -> None:
        await connection_of(tx).execute(SQL["give_back"], {**lease_columns(lease), "pause_s": pause_s})


def lease_columns(lease: ChoreLease) -> dict[str, Any]:
    return {"name": lease.chore, "slot": lease.slot, "epoch": lease.epoch}
