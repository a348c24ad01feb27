"""Model calls on PostgreSQL, and the durable record of the kill switch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.backends import Usage
from hermes.ports.credits import KillSwitchRecord
from hermes.ports.models import CallAttempt, CallTotals, DayTotals, ModelCall
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("model_calls")

USAGE_FIELDS = tuple(field.name for field in fields(Usage))
ATTEMPT_FIELDS = tuple(field.name for field in fields(CallAttempt))
CALL_FIELDS = tuple(
    field.name
    for field in fields(ModelCall)
    if field.name not in {"id", "turn_id", "user_id", "session_id", "usage", "day", "attempts", "rate"}
)


class PostgresModelCalls:
    """The port ModelCalls."""

    async def add(self, tx: Transaction, call: ModelCall) -> bool:
        return bool(await fetch_rows(tx, "add", as_row(call)))

    async def totals(self, tx: Transaction, *, since: date, until: date, user_id: UUID | None = None) -> CallTotals:
        query = "totals" if user_id is None else "totals_of_user"
        [row] = await fetch_rows(tx, query, {"since": since, "until": until, "user_id": user_id})
        return CallTotals(*row)

    async def by_day(self, tx: Transaction, user_id: UUID, *, since: date, until: date, ids_since: date) -> Sequence[DayTotals]:
        window = {"user_id": user_id, "since": since, "until": until, "ids_since": ids_since}
        return [DayTotals(day, CallTotals(*sums), ids) for day, *sums, ids in await fetch_rows(tx, "by_day", window)]

    async def on_day(self, tx: Transaction, day: date, *, recent_s: float) -> DayTotals:
        [(calls, tokens, micro_usd, ids)] = await fetch_rows(tx, "on_day", {"day": day, "recent_s": recent_s})
        return DayTotals(day, CallTotals(calls, tokens, micro_usd), ids)

    async def note_alert(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        return bool(await fetch_rows(tx, "note_alert", {"subject": subject, "period": period, "percent": percent}))


class PostgresKillSwitchRecords:
    """The port KillSwitchRecords. A unique index allows at most one record that is not released."""

    async def engaged(self, tx: Transaction) -> KillSwitchRecord | None:
        found = await fetch_rows(tx, "engaged", {})
        return KillSwitchRecord(*found[0]) if found else None

    async def engage(self, tx: Transaction, by: str, reason: str) -> KillSwitchRecord:
        while True:
            await connection_of(tx).execute(SQL["engage"], {"by": by, "reason": reason})
            record = await self.engaged(tx)
            if record is not None:  # None: another process released the earlier record between these two statements
                return record

    async def release(self, tx: Transaction, by: str) -> bool:
        return bool(await fetch_rows(tx, "release", {"by": by}))


def as_row(call: ModelCall) -> dict[str, Any]:
    """The call as one JSON value, from which the query makes its row."""
    row: dict[str, Any] = {name: getattr(call, name) for name in CALL_FIELDS}
    for name in ("id", "turn_id", "user_id", "session_id"):
        value = getattr(call, name)
        row[name] = None if value is None else str(value)
    usage = {name: getattr(call.usage, name) for name in USAGE_FIELDS}
    attempts = [{name: getattr(attempt, name) for name in ATTEMPT_FIELDS} for attempt in call.attempts]
    return {"call": Jsonb({**row, **usage, "day": call.day.isoformat(), "attempts": attempts, "rate": dict(call.rate)})}


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> list[Any]:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()
