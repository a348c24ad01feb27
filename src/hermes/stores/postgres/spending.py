"""What was spent, on PostgreSQL: the credits of users, the rows of model calls, and the durable record of the kill switch.

Credit entries are only ever added, and the balance row is both their sum and the lock that a change takes first. Order of locks: the
balance row of the user first, then the ledger. A transaction that also holds a conversation has locked that before. So a transaction that
waits for a balance holds nothing that the holder of the balance could wait for, and there is no deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.backends import Usage
from hermes.ports.credits import Balance, KillSwitchRecord
from hermes.ports.errors import NotFound, OutOfCredit
from hermes.ports.models import AgentTotals, CallAttempt, CallTotals, DayTotals, ModelCall
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries

CREDITS, CALLS = load_queries("credits"), load_queries("model_calls")
USAGE_FIELDS = tuple(field.name for field in fields(Usage))
ATTEMPT_FIELDS = tuple(field.name for field in fields(CallAttempt))
CALL_FIELDS = tuple(
    field.name
    for field in fields(ModelCall)
    if field.name not in {"id", "turn_id", "user_id", "session_id", "api_key_id", "usage", "day", "attempts", "rate"}
)


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
        outcome = await fetch_value(tx, CREDITS["reserve"], reserve)
        if outcome == "out of credit":
            raise OutOfCredit
        if outcome == "of another user":
            raise ValueError(f"the turn {turn_id} belongs to another user than {user_id}")
        return bool(outcome == "reserved")

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


# --- model calls


class PostgresModelCalls:
    """The port ModelCalls."""

    async def add(self, tx: Transaction, call: ModelCall) -> bool:
        return await execute(tx, CALLS["add"], call_columns(call)) > 0

    async def totals(self, tx: Transaction, *, since: date, until: date, user_id: UUID | None = None) -> CallTotals:
        query = CALLS["totals" if user_id is None else "totals_of_user"]
        [totals] = await fetch_rows(tx, CallTotals, query, {"since": since, "until": until, "user_id": user_id})
        return totals

    async def by_day(self, tx: Transaction, user_id: UUID, *, since: date, until: date, ids_since: date) -> Sequence[DayTotals]:
        window = {"user_id": user_id, "since": since, "until": until, "ids_since": ids_since}
        return await fetch_rows(tx, read_day_totals, CALLS["by_day"], window)

    async def on_day(self, tx: Transaction, day: date, *, recent_s: float) -> DayTotals:
        [totals] = await fetch_rows(tx, read_day_totals, CALLS["on_day"], {"day": day, "recent_s": recent_s})
        return totals

    async def of_agents(self, tx: Transaction, day: date, *, recent_s: float) -> AgentTotals:
        [totals] = await fetch_rows(tx, AgentTotals, CALLS["of_agents"], {"day": day, "recent_s": recent_s})
        return totals

    async def cost_of_turn(self, tx: Transaction, turn_id: UUID) -> CallTotals:
        [totals] = await fetch_rows(tx, CallTotals, CALLS["cost_of_turn"], {"turn_id": turn_id})
        return totals

    async def note_alert(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        return await execute(tx, CALLS["note_alert"], {"subject": subject, "period": period, "percent": percent}) > 0


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


def read_day_totals(*, day: date, ids: Sequence[UUID], **totals: int) -> DayTotals:
    return DayTotals(day, CallTotals(**totals), ids)


def call_columns(call: ModelCall) -> dict[str, Any]:
    """The call as one JSON value, from which the query makes its row."""
    row: dict[str, Any] = {name: getattr(call, name) for name in CALL_FIELDS}
    for name in ("id", "turn_id", "user_id", "session_id", "api_key_id"):
        value = getattr(call, name)
        row[name] = None if value is None else str(value)
    usage = {name: getattr(call.usage, name) for name in USAGE_FIELDS}
    attempts = [{name: getattr(attempt, name) for name in ATTEMPT_FIELDS} for attempt in call.attempts]
    return {"call": Jsonb({**row, **usage, "day": call.day.isoformat(), "attempts": attempts, "rate": dict(call.rate)})}
