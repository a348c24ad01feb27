"""The list of turns on PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.runtime import Transaction
from hermes.ports.timeline import ATTEMPT_FAILED, FALLBACK_USED, STEP_OF_EVENT
from hermes.ports.turn_list import (
    FAILED_OUTCOMES,
    SLOW_S,
    ListedKind,
    ListedTurn,
    OpenTurn,
    TurnFilter,
    TurnListCursor,
    TurnScan,
    TurnStatus,
)
from hermes.stores.postgres.database import fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("turn_list")
SCAN = b"/* scan */"
STEP_TYPES = [*STEP_OF_EVENT, FALLBACK_USED, ATTEMPT_FAILED]


class PostgresTurnList:
    """The port TurnList."""

    async def turns(self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, limit: int, max_scanned: int) -> TurnScan:
        values = {**filter_values(wanted), "at": before.at, "id": before.id, "limit": limit, "max_scanned": max_scanned}
        scan = SQL[scan_name(wanted, has_many_fell_over=await self._has_many_fell_over(tx, wanted, values))]
        rows = await fetch_rows(tx, read_listed, SQL["turns"].replace(SCAN, scan), values)
        if len(rows) == limit:
            return TurnScan(rows)
        return TurnScan(rows, await fetch_row(tx, TurnListCursor, SQL["scan_end"].replace(SCAN, scan), values))

    async def _has_many_fell_over(self, tx: Transaction, wanted: TurnFilter, values: Mapping[str, Any]) -> bool:
        is_asked = wanted.status is TurnStatus.FELL_OVER
        return is_asked and bool(await fetch_value(tx, SQL["has_many_fell_over"], values))

    async def buried(self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, limit: int) -> TurnScan:
        values = {**filter_values(wanted), "at": before.at, "id": before.id, "limit": limit}
        return TurnScan(await fetch_rows(tx, read_listed, SQL["buried"], values))

    async def calls(
        self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, purpose: str | None, limit: int, max_scanned: int
    ) -> TurnScan:
        values = {**filter_values(wanted), "at": before.at, "id": before.id, "limit": limit, "max_scanned": max_scanned, "purpose": purpose}
        scan = SQL["scan_calls" if wanted.user is None else "scan_calls_user"]
        rows = await fetch_rows(tx, read_listed, SQL["calls"].replace(SCAN, scan), values)
        if len(rows) == limit:
            return TurnScan(rows)
        return TurnScan(rows, await fetch_row(tx, TurnListCursor, SQL["scan_calls_end"].replace(SCAN, scan), values))

    async def find(self, tx: Transaction, wanted: TurnFilter, turn_ids: Sequence[UUID]) -> Sequence[ListedTurn]:
        values = {**filter_values(wanted), "ids": list(turn_ids), "limit": len(turn_ids), "max_scanned": len(turn_ids)}
        return await fetch_rows(tx, read_listed, SQL["turns"].replace(SCAN, SQL["scan_found"]), values)

    async def open(self, tx: Transaction, wanted: TurnFilter, *, limit: int) -> Sequence[OpenTurn]:
        return await fetch_rows(tx, read_open, SQL["open"], {**filter_values(wanted), "limit": limit})

    async def steps(self, tx: Transaction, turn_ids: Sequence[UUID]) -> Mapping[UUID, Mapping[str, int]]:
        values = {"ids": list(turn_ids), "types": STEP_TYPES, "step_of": Jsonb(dict(STEP_OF_EVENT))}
        found: defaultdict[UUID, dict[str, int]] = defaultdict(dict)
        for row in await fetch_rows(tx, StepTime, SQL["steps"], values) if turn_ids else ():
            if row.step is not None:
                found[row.turn_id][row.step] = row.us  # in the order of writing: a later attempt replaces an earlier one
        return found


class StepTime(NamedTuple):
    """How long a step took."""

    turn_id: UUID
    step: str | None
    us: int


def scan_name(wanted: TurnFilter, *, has_many_fell_over: bool) -> str:
    """The scan that looks at the fewest turns for a filter. Turns that fell over are found by their calls, unless these are so many that
    a page of turns has enough of them."""
    if wanted.status is TurnStatus.UNDELIVERED:
        return "scan_undelivered"
    if wanted.status is TurnStatus.FELL_OVER and not has_many_fell_over:
        return "scan_fell_over"
    if wanted.user is not None:
        return "scan_user"
    return "scan_unanswered" if wanted.status in {TurnStatus.FAILED, TurnStatus.UNANSWERED} else "scan_all"


def filter_values(wanted: TurnFilter) -> dict[str, Any]:
    status = wanted.status
    return {
        "accounts": None if wanted.accounts is None else sorted(wanted.accounts),
        "account": wanted.account,
        "user": wanted.user,
        "platform": wanted.platform,
        "agent": wanted.agent,
        "tier": wanted.tier,
        "tool": wanted.tool,
        "model": wanted.model,
        "purpose": wanted.only_purpose,
        "key": wanted.key,
        "since": wanted.since,
        "outcomes": list(FAILED_OUTCOMES) if status is TurnStatus.FAILED else None,
        "failed": status in {TurnStatus.FAILED, TurnStatus.UNANSWERED},
        "tool_error": status is TurnStatus.TOOL_ERROR,
        "retried": status is TurnStatus.RETRIED,
        "fell_over": status is TurnStatus.FELL_OVER,
        "slow_s": SLOW_S if status is TurnStatus.SLOW else None,
    }


def read_listed(*, kind: str, **columns: Any) -> ListedTurn:
    return ListedTurn(kind=ListedKind(kind), **columns)


def read_open(*, effect: Sequence[Any] | None, is_running: bool, running_s: float | None, **columns: Any) -> OpenTurn:
    step = step_reached(*effect) if effect is not None and is_running else None
    return OpenTurn(is_running=is_running, running_s=running_s if is_running else None, step=step, **columns)


def step_reached(effect: str, index: int, is_done: bool) -> str:  # noqa: FBT001  # a row of JSON
    """The step that an attempt has reached, by its newest effect. The second model call is made in step run_tools."""
    if effect == "compact":
        return "build_messages" if is_done else "load_history"
    if effect == "run_tools" or index > 0:
        return "record" if is_done and effect == "call_model" else "run_tools"
    return "run_tools" if is_done else "call_model"
