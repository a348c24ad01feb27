"""The port SpendSums on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from hermes.ports.runtime import Transaction
from hermes.ports.spending import SpendDimension, SpendTotals, SumSource, SumWindow, ToolTotals
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("spend_sums")
WINDOW = {SumSource.CALLS: SQL["call_window"], SumSource.TOOLS: SQL["tool_window"]}
NEXT_HOUR = {SumSource.CALLS: SQL["next_call_hour"], SumSource.TOOLS: SQL["next_tool_hour"]}
SUM = {SumSource.CALLS: SQL["sum_calls"], SumSource.TOOLS: SQL["sum_tools"]}


class PostgresSpendSums:
    """The port SpendSums. Open transactions of other roles are seen only if the role of Hermes may read their statistics."""

    async def window(self, tx: Transaction, source: SumSource) -> SumWindow | None:
        return await fetch_row(tx, SumWindow, WINDOW[source])

    async def next_hour(self, tx: Transaction, source: SumSource, since: datetime) -> datetime | None:
        hour: datetime | None = await fetch_value(tx, NEXT_HOUR[source], {"since": since})
        return hour

    async def sum_hour(self, tx: Transaction, source: SumSource, hour: datetime, *, summed_to: datetime) -> None:
        await execute(tx, SQL["take_turn"], {"name": source})
        await execute(tx, SUM[source], {"hour": hour})
        await execute(tx, SQL["mark"], {"name": source, "summed_to": summed_to})

    async def spend_by(self, tx: Transaction, dimension: SpendDimension, *, since: datetime, until: datetime) -> Sequence[SpendTotals]:
        return await fetch_rows(tx, SpendTotals, SQL["spend_by"], {"dimension": dimension, "since": since, "until": until})

    async def tools_by(self, tx: Transaction, *, since: datetime, until: datetime) -> Sequence[ToolTotals]:
        return await fetch_rows(tx, ToolTotals, SQL["tools_by"], {"since": since, "until": until})
