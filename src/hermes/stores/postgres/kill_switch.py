"""The kill switch as it is stored, on PostgreSQL: it holds without Redis and after a restart."""

from __future__ import annotations

from collections.abc import Sequence

from hermes.ports.credits import KillSwitchRecord, KillSwitchUse
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows
from hermes.stores.postgres.queries import load_queries

CALLS = load_queries("model_calls")


class PostgresKillSwitchRecords:
    """The stored records of the kill switch. A unique index allows at most one record that is not released."""

    async def engaged(self, tx: Transaction) -> KillSwitchRecord | None:
        """Return the record that is engaged, if any."""
        return await fetch_row(tx, KillSwitchRecord, CALLS["engaged"])

    async def engage(self, tx: Transaction, by: str, reason: str) -> KillSwitchRecord:
        """Engage the kill switch, and return the record that stands: an earlier one stays as it is."""
        while True:
            await execute(tx, CALLS["engage"], {"by": by, "reason": reason})
            record = await self.engaged(tx)
            if record is not None:  # None: another process released the earlier record between these two statements
                return record

    async def release(self, tx: Transaction, by: str) -> bool:
        """Release the kill switch; False if it was not engaged."""
        return await execute(tx, CALLS["release"], {"by": by}) > 0


class PostgresKillSwitchHistory:
    """The port KillSwitchHistory."""

    async def list(self, tx: Transaction, *, limit: int) -> Sequence[KillSwitchUse]:
        return await fetch_rows(tx, KillSwitchUse, CALLS["kill_switch_uses"], {"limit": limit})
