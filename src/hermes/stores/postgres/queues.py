"""What waits, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from hermes.ports.queues import (
    MAX_COUNTED,
    MAX_JOBS,
    PAGE_ROWS,
    Accounts,
    BuriedMessage,
    DeadEntry,
    DrivenTurn,
    JobCount,
    MessageOwner,
    OutboxEntry,
    QueueCount,
    WaitingMessage,
    WaitReason,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("queues")


class PostgresQueues:
    """The ports QueueReader and JobGiver."""

    async def counts(self, tx: Transaction, accounts: Accounts) -> Sequence[QueueCount]:
        return await fetch_rows(tx, QueueCount, SQL["counts"], {"accounts": as_list(accounts), "limit": MAX_COUNTED})

    async def waiting(
        self, tx: Transaction, accounts: Accounts, *, after: tuple[datetime, UUID] | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[WaitingMessage]:
        place = {"after_at": after[0] if after else None, "after_id": after[1] if after else None}
        return await fetch_rows(tx, read_waiting, SQL["waiting"], {"accounts": as_list(accounts), **place, "limit": limit})

    async def buried(
        self,
        tx: Transaction,
        accounts: Accounts,
        *,
        before: tuple[datetime, UUID] | None = None,
        since: datetime | None = None,
        limit: int = PAGE_ROWS,
    ) -> Sequence[BuriedMessage]:
        values = {"accounts": as_list(accounts), **place_before(before), "since": since, "limit": limit}
        return await fetch_rows(tx, BuriedMessage, SQL["buried"], values)

    async def outbox(
        self, tx: Transaction, accounts: Accounts, *, after: int | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[OutboxEntry]:
        return await fetch_rows(tx, OutboxEntry, SQL["outbox"], {"accounts": as_list(accounts), "after": after, "limit": limit})

    async def dead(
        self, tx: Transaction, accounts: Accounts, *, before: tuple[datetime, int] | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[DeadEntry]:
        values = {"accounts": as_list(accounts), **place_before(before), "limit": limit}
        return await fetch_rows(tx, DeadEntry, SQL["dead"], values)

    async def jobs(self, tx: Transaction) -> Sequence[JobCount]:
        return await fetch_rows(tx, JobCount, SQL["jobs"], {"limit": MAX_JOBS})

    async def running(self, tx: Transaction) -> Sequence[DrivenTurn]:
        return await fetch_rows(tx, DrivenTurn, SQL["running"], {"limit": MAX_COUNTED})

    async def owner(self, tx: Transaction, turn_id: UUID) -> MessageOwner | None:
        return await fetch_row(tx, MessageOwner, SQL["owner"], {"turn_id": turn_id})

    async def give_away(self, tx: Transaction, process_id: UUID) -> int:
        return await execute(tx, SQL["give_away"], {"process_id": process_id})


def as_list(accounts: Accounts) -> list[str] | None:
    return None if accounts is None else sorted(accounts)


def place_before(before: tuple[datetime, UUID] | tuple[datetime, int] | None) -> dict[str, Any]:
    return {"before_at": before[0] if before else None, "before_id": before[1] if before else None}


def read_waiting(*, reason: str, **columns: Any) -> WaitingMessage:
    return WaitingMessage(reason=WaitReason(reason), **columns)
