"""The leases of chores on PostgreSQL: one row for each chore, with an epoch that every write of a chore checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from hermes.ports.errors import LeaseLost
from hermes.ports.runtime import ChoreLease, ChoreRecord, Transaction
from hermes.stores.postgres.database import execute, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("chores")


class PostgresChores:
    """The port Chores."""

    async def take(
        self, tx: Transaction, chore: str, slot: int, *, lease_s: float, holder: UUID | None = None, even_if_done: bool = False
    ) -> ChoreLease | None:
        values = {"name": chore, "slot": slot, "lease_s": lease_s, "holder": holder, "even_if_done": even_if_done}
        epoch: int | None = await fetch_value(tx, SQL["take"], values)
        return None if epoch is None else ChoreLease(chore, slot, epoch)

    async def keep(self, tx: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        return await execute(tx, SQL["keep"], {**lease_columns(lease), "lease_s": lease_s}) > 0

    async def fence(self, tx: Transaction, lease: ChoreLease) -> None:
        if await execute(tx, SQL["fence"], lease_columns(lease)) == 0:
            raise LeaseLost

    async def end(self, tx: Transaction, lease: ChoreLease) -> None:
        await execute(tx, SQL["end"], lease_columns(lease))

    async def give_back(self, tx: Transaction, lease: ChoreLease, *, pause_s: float = 0.0, failed: str | None = None) -> None:
        await execute(tx, SQL["give_back"], {**lease_columns(lease), "pause_s": pause_s, "failed": failed})

    async def ask(self, tx: Transaction, chore: str) -> bool:
        return await execute(tx, SQL["ask"], {"name": chore}) > 0

    async def all(self, tx: Transaction) -> Sequence[ChoreRecord]:
        return await fetch_rows(tx, ChoreRecord, SQL["all"])


def lease_columns(lease: ChoreLease) -> dict[str, Any]:
    return {"name": lease.chore, "slot": lease.slot, "epoch": lease.epoch}
