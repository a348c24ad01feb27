"""The port Costs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hermes.ports.costs import CostDimension, CostPart, CostRow, CostUnit, CostWindow, KeySpend
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_rows
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("costs")
BY_VALUE = {CostDimension.USER: SQL["users_by_value"], CostDimension.TOOL: SQL["tools_by_value"]}
OVER_TIME = {CostDimension.USER: SQL["users_over_time"], CostDimension.TOOL: SQL["tools_over_time"]}
STEP = {CostUnit.HOUR: timedelta(hours=1), CostUnit.DAY: timedelta(days=1)}


class PostgresCosts:
    """The port Costs."""

    async def by_value(self, tx: Transaction, dimension: CostDimension, window: CostWindow, *, limit: int) -> Sequence[CostRow]:
        values = {**window_values(window), "dimension": dimension, "limit": limit}
        return await fetch_rows(tx, CostRow, BY_VALUE.get(dimension, SQL["by_value"]), values)

    async def over_time(
        self, tx: Transaction, dimension: CostDimension, window: CostWindow, unit: CostUnit, values: Sequence[str]
    ) -> Sequence[CostPart]:
        wanted: dict[str, Any] = {**window_values(window), "dimension": dimension, "step": STEP[unit], "values": [*values]}
        if dimension is CostDimension.USER:
            wanted |= {"users": [UUID(value) for value in values if value], "with_no_user": "" in values}
        return await fetch_rows(tx, CostPart, OVER_TIME.get(dimension, SQL["over_time"]), wanted)

    async def key_names(self, tx: Transaction, ids: Collection[UUID]) -> Mapping[UUID, str]:
        return dict(await fetch_rows(tx, read_key_name, SQL["key_names"], {"ids": [*ids]}))

    async def of_keys(self, tx: Transaction, ids: Collection[UUID], *, today: datetime, month: datetime) -> Sequence[KeySpend]:
        return await fetch_rows(tx, KeySpend, SQL["of_keys"], {"ids": [*ids], "today": today, "month": month})


def window_values(window: CostWindow) -> dict[str, Any]:
    accounts = None if window.accounts is None else sorted(window.accounts)
    return {"since": window.since, "until": window.until, "before": window.before, "accounts": accounts}


def read_key_name(*, id: UUID, name: str) -> tuple[UUID, str]:  # noqa: A002  # the name of the column
    return id, name
