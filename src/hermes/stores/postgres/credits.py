"""Credits on PostgreSQL: entries are only ever added, and the balance row is both their sum and the lock that a change takes first.

Order of locks: the balance row of the user first, then the ledger. A transaction that also holds a conversation has locked that before.
So a transaction that waits for a balance holds nothing that the holder of the balance could wait for, and there is no deadlock."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, OutOfCredit
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("credits")


class PostgresCredits:
    """The port Credits. `sql/credits.sql` explains why each change is two statements. Needs `read committed`, the server's default."""

    async def grant(self, tx: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        grant = {"user_id": user_id, "amount": check_positive(amount), "event": event}
        if await fetch_value(tx, "lock_receiver", grant) is None:
            raise NotFound(f"there is no user {user_id}")
        if await fetch_value(tx, "grant", grant) is not None:
            return True
        receiver = await fetch_value(tx, "granted_to", grant)
        if receiver != user_id:
            raise ValueError(f"the event {event} gave credits to another user, {receiver}")
        return False

    async def reserve(self, tx: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        reserve = {"user_id": user_id, "turn_id": turn_id, "amount": check_positive(amount)}
        outcome = await fetch_value(tx, "reserve", reserve)
        if outcome == "out of credit":
            raise OutOfCredit
        if outcome == "of another user":
            raise ValueError(f"the turn {turn_id} belongs to another user than {user_id}")
        return bool(outcome == "reserved")

    async def post(self, tx: Transaction, turn_id: UUID) -> bool:
        outcome = await fetch_value(tx, "post", {"turn_id": turn_id})
        if outcome is None:
            raise NotFound(f"the turn {turn_id} has no open reserve")
        return bool(outcome == "posted")

    async def void(self, tx: Transaction, turn_id: UUID) -> bool:
        return await self._change(tx, "void", turn_id) is not None

    async def refund(self, tx: Transaction, turn_id: UUID) -> bool:
        return await self._change(tx, "refund", turn_id) is not None

    async def expire(self, tx: Transaction, older_than_s: float) -> int:
        users = [user_id for (user_id,) in await fetch_rows(tx, "lock_stale_balances", {"older_than_s": older_than_s})]
        return int(await fetch_value(tx, "expire", {"older_than_s": older_than_s, "users": users})) if users else 0

    async def balance(self, tx: Transaction, user_id: UUID) -> Balance:
        found = await fetch_rows(tx, "balance", {"user_id": user_id})
        return Balance(*found[0]) if found else Balance(0, 0)

    async def audit(self, tx: Transaction) -> list[str]:
        return [fault for (fault,) in await fetch_rows(tx, "audit", {})]

    async def _change(self, tx: Transaction, query: str, turn_id: UUID) -> Any:
        """Lock the balance that a turn is charged to, then run the query. A turn without an entry has no balance and nothing to change."""
        turn = {"turn_id": turn_id}
        return None if await fetch_value(tx, "lock_turn", turn) is None else await fetch_value(tx, query, turn)


def check_positive(amount: int) -> int:
    if amount < 1:
        raise ValueError(f"an amount of credits is at least one, got {amount}")
    return amount


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> list[Any]:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


async def fetch_value(tx: Transaction, query: str, values: dict[str, Any]) -> Any:
    """The first column of the first row; None without rows."""
    found = await fetch_rows(tx, query, values)
    return found[0][0] if found else None
