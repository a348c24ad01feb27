"""Model calls, on PostgreSQL: what each one used and cost, and their sums by day, user and agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import date
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.backends import Usage
from hermes.ports.models import AgentTotals, CallAttempt, CallPlace, CallTotals, DayTotals, ModelCall, TurnUsage
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows
from hermes.stores.postgres.queries import load_queries

CALLS = load_queries("model_calls")
USAGE_FIELDS = tuple(field.name for field in fields(Usage))
ATTEMPT_FIELDS = tuple(field.name for field in fields(CallAttempt))
CALL_FIELDS = tuple(
    field.name
    for field in fields(ModelCall)
    if field.name not in {"id", "turn_id", "user_id", "session_id", "api_key_id", "usage", "day", "attempts", "rate"}
)


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

    async def of_key(self, tx: Transaction, key_id: UUID, *, since: date, until: date, recent_s: float) -> Sequence[DayTotals]:
        window = {"key_id": key_id, "since": since, "until": until, "recent_s": recent_s}
        return await fetch_rows(tx, read_day_totals, CALLS["of_key"], window)

    async def of_agents(self, tx: Transaction, day: date, *, recent_s: float) -> AgentTotals:
        [totals] = await fetch_rows(tx, AgentTotals, CALLS["of_agents"], {"day": day, "recent_s": recent_s})
        return totals

    async def cost_of_turn(self, tx: Transaction, turn_id: UUID) -> CallTotals:
        [totals] = await fetch_rows(tx, CallTotals, CALLS["cost_of_turn"], {"turn_id": turn_id})
        return totals

    async def usage_of_turn(self, tx: Transaction, turn_id: UUID) -> TurnUsage | None:
        return await fetch_row(tx, TurnUsage, CALLS["usage_of_turn"], {"turn_id": turn_id})

    async def place(self, tx: Transaction, call_id: UUID, api_key_id: UUID) -> CallPlace | None:
        return await fetch_row(tx, CallPlace, CALLS["place"], {"call_id": call_id, "api_key_id": api_key_id})

    async def note_alert(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        return await execute(tx, CALLS["note_alert"], {"subject": subject, "period": period, "percent": percent}) > 0


def read_day_totals(*, day: date, ids: Sequence[UUID], **totals: int) -> DayTotals:
    return DayTotals(day, CallTotals(**totals), ids)


def call_columns(call: ModelCall) -> dict[str, Any]:
    """The call as one JSON value, from which the query makes its row."""
    return {"call": Jsonb(call_row(call))}


def call_row(call: ModelCall) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(call, name) for name in CALL_FIELDS}
    for name in ("id", "turn_id", "user_id", "session_id", "api_key_id"):
        value = getattr(call, name)
        row[name] = None if value is None else str(value)
    usage = {name: getattr(call.usage, name) for name in USAGE_FIELDS}
    attempts = [{name: getattr(attempt, name) for name in ATTEMPT_FIELDS} for attempt in call.attempts]
    return {**row, **usage, "day": call.day.isoformat(), "attempts": attempts, "rate": dict(call.rate)}
