"""The kill switch without a whole Hermes, for its command: in the worst hour an operator does not wait for models and tools to load.

`on` and `status` need PostgreSQL alone: every process reads the record at least once a second, with or without Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.app.console_access import access_from
from hermes.app.tables import Tables
from hermes.console.kill_switch import engage_kill_switch
from hermes.ops.alerts import AlertLog, AlertWriter, OperatorAlerts
from hermes.ports.credits import KillSwitchRecord
from hermes.ports.operators import Actor
from hermes.ports.runtime import Alerts
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords

FLUSH_S = 2.0
"""How long a command may take to write its alerts. The chore `watch` raises the alert again while the switch is on."""


async def read_kill_switch(tables: Tables) -> KillSwitchRecord | None:
    """Return the record of the kill switch if it is engaged."""
    async with tables.database.begin() as tx:
        return await PostgresKillSwitchRecords().engaged(tx)


async def engage_from_command(tables: Tables, actor: Actor, reason: str, *, by: str) -> KillSwitchRecord:
    """Stop all model calls in every process: record, audit log and alert. Return the record that stands. Raises StoreUnavailable."""
    records: list[KillSwitchRecord] = []

    async def engage(reason: str, by: str) -> None:
        alerts.alert("kill_switch_engaged", by=by, reason=reason)
        async with tables.database.begin() as tx:
            records.append(await PostgresKillSwitchRecords().engage(tx, by, reason))

    async with open_command_alerts(tables) as alerts:
        await engage_kill_switch(access_from(tables.settings, tables.database), engage, actor, reason, by=by)
    return records[0]


@asynccontextmanager
async def open_command_alerts(tables: Tables) -> AsyncIterator[Alerts]:
    """Yield the alerts of a command; at its end they are written for the processes that send them."""
    alerts = OperatorAlerts(AlertLog())
    try:
        yield alerts
    finally:
        await AlertWriter(alerts, tables.database, PostgresAlerts()).write(timeout_s=FLUSH_S)
