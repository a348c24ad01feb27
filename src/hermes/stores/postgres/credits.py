"""Credits, on PostgreSQL: an append-only ledger, and the balance of each user.

Entries are only ever added, and the balance row is both their sum and the lock that a change takes first. Order of locks: the balance row
of the user first, then the ledger. A transaction that also holds a conversation has locked that before. So a transaction that waits for a
balance holds nothing that the holder of the balance could wait for, and there is no deadlock."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hermes.ports.credits import Balance, ReserveOutcome, is_reserved
from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_row, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries

CREDITS = load_queries("credits")


class PostgresCredits:
    """The port Credits. `sql/credits.sql` explains why each change is two statements. Needs `read committed`, the server's default."""

    async def grant(self, tx: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        grant = {"user_id": user_id, "amount": check_positive(amount), "event": event}
        if await fetch_value(tx, CREDITS["lock_receiver"], grant) is None:
            raise NotFound(f"there is no user {user_id}")
        if await fetch_value(tx, CREDITS["grant"], grant) is not None:
            return True
        receiver = await fetch_value(tx, CREDITS["granted_to"], grant)
        if receiver != user_id:
            raise ValueError(f"the event {event} gave credits to another user, {receiver}")
        return False

    async def reserve(self, tx: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        reserve = {"user_id": user_id, "turn_id": turn_id, "amount": check_positive(amount)}
        return is_reserved(ReserveOutcome(await fetch_value(tx, CREDITS["reserve"], reserve)), user_id, turn_id)

    async def post(self, tx: Transaction, turn_id: UUID) -> bool:
        outcome = await fetch_value(tx, CREDITS["post"], {"turn_id": turn_id})
        if outcome is None:
            raise NotFound(f"the turn {turn_id} has no open reserve")
        return bool(outcome == "posted")

    async def void(self, tx: Transaction, turn_id: UUID) -> bool:
        return await self._change(tx, "void", turn_id) is not None

    async def refund(self, tx: Transaction, turn_id: UUID) -> bool:
        return await self._change(tx, "refund", turn_id) is not None

    async def expire(self, tx: Transaction, older_than_s: float) -> int:
        users = await fetch_values(tx, CREDITS["lock_stale_balances"], {"older_than_s": older_than_s})
        return int(await fetch_value(tx, CREDITS["expire"], {"older_than_s": older_than_s, "users": users})) if users else 0

    async def balance(self, tx: Transaction, user_id: UUID) -> Balance:
        return await fetch_row(tx, Balance, CREDITS["balance"], {"user_id": user_id}) or Balance(0, 0)

    async def audit(self, tx: Transaction) -> list[str]:
        return await fetch_values(tx, CREDITS["audit"])

    async def _change(self, tx: Transaction, query: str, turn_id: UUID) -> Any:
        """Lock the balance that a turn is charged to, then run the query. A turn without an entry has no balance and nothing to change."""
        turn = {"turn_id": turn_id}
        return None if await fetch_value(tx, CREDITS["lock_turn"], turn) is None else await fetch_value(tx, CREDITS[query], turn)


def check_positive(amount: int) -> int:
    if amount < 1:
        raise ValueError(f"an amount of credits is at least one, got {amount}")
    return amount
