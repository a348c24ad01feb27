"""The rows of processes and their events on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from hermes.ports.processes import ProcessBeat, ProcessEvent, ProcessRecord, ProcessRestart, ProcessRole
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("processes")


class PostgresProcesses:
    """The port Processes."""

    async def beat(self, tx: Transaction, beat: ProcessBeat, *, stalled_after_s: float | None = None) -> Sequence[ProcessRecord]:
        values = {**asdict(beat), "id": beat.process_id, "stalled_after_s": stalled_after_s}
        return await fetch_rows(tx, read_process, SQL["beat"], values)

    async def stop(self, tx: Transaction, process_id: UUID) -> None:
        await execute(tx, SQL["stop"], {"id": process_id})

    async def record_restart(self, tx: Transaction, restart: ProcessRestart) -> None:
        await execute(tx, SQL["record_restart"], {**asdict(restart), "id": restart.process_id})

    async def all(self, tx: Transaction) -> Sequence[ProcessRecord]:
        return await fetch_rows(tx, read_process, SQL["all"])

    async def events(self, tx: Transaction, *, limit: int = 100) -> Sequence[ProcessEvent]:
        return await fetch_rows(tx, ProcessEvent, SQL["events"], {"limit": limit})

    async def prune(self, tx: Transaction, *, rows_older_than_s: float, events_older_than_s: float) -> int:
        await execute(tx, SQL["prune_events"], {"events_older_than_s": events_older_than_s})
        return await execute(tx, SQL["prune"], {"rows_older_than_s": rows_older_than_s})


def read_process(role: str, **columns: Any) -> ProcessRecord:
    return ProcessRecord(role=ProcessRole(role), **columns)
