"""Alerts on PostgreSQL. `sql/alerts.sql` explains the order of its locks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from hermes.ports.alerts import (
    AlertFact,
    AlertLevel,
    AlertMute,
    AlertReport,
    AlertRoute,
    AlertSend,
    AlertStage,
    AlertTold,
    ClaimedSends,
    StoredAlert,
)
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("alerts")
MAX_CLAIMED = 5_000
"""Alerts that one claim takes, most of them for the summary."""


class DestinationPace(NamedTuple):
    """How many messages a destination got in this minute, and how many have failed since the last one that arrived."""

    used: int
    failures: int


class PostgresAlerts:
    """The port AlertRecords."""

    async def record(self, tx: Transaction, reports: Sequence[AlertReport]) -> None:
        # All processes write in one order, so that two batches with the same alerts do not wait for each other.
        ordered = sorted(reports, key=lambda report: (report.event, report.subject))
        if happened := [report for report in ordered if report.times > 0]:
            await execute(tx, SQL["record"], {"reports": Jsonb([report_columns(report) for report in happened])})
        if told := [report for report in happened if report.sent_to]:
            rows = [{"event": report.event, "subject": report.subject, "sent_to": sorted(report.sent_to)} for report in told]
            await execute(tx, SQL["note_sent"], {"reports": Jsonb(rows)})
        if over := [{"event": report.event, "subject": report.subject} for report in ordered if report.is_over]:
            await execute(tx, SQL["end_subjects"], {"reports": Jsonb(over)})

    async def plan(self, tx: Transaction, route: AlertRoute, *, window_s: float) -> None:
        values = {
            "destination": route.destination,
            "levels": sorted(route.levels),
            "events": None if route.events is None else sorted(route.events),
            "window_s": window_s,
            "tells_end": route.tells_end,
        }
        await execute(tx, SQL["plan_new"], values)
        await execute(tx, SQL["plan_again"], values)
        if route.tells_end:
            await execute(tx, SQL["plan_ends"], values)

    async def claim(self, tx: Transaction, route: AlertRoute, *, lease_s: float) -> ClaimedSends:
        values: dict[str, Any] = {"destination": route.destination, "lease_s": lease_s, "limit": MAX_CLAIMED}
        await execute(tx, SQL["add_destination"], values)
        pace = await fetch_row(tx, DestinationPace, SQL["hold_destination"], values)
        if pace is None:
            return ClaimedSends()
        # After a failure one message tries whether the destination works again.
        allowed = min(route.per_minute - pace.used, 1 if pace.failures else route.per_minute)
        if allowed <= 0:
            return ClaimedSends()
        due = await fetch_rows(tx, send_reader(route.destination), SQL["due"], values)
        if not due:
            return ClaimedSends()
        alone = len(due) if len(due) <= allowed else allowed - 1
        await execute(tx, SQL["claim"], {**values, **send_columns(due)})
        await execute(tx, SQL["count_messages"], {**values, "used": pace.used, "begun": alone + (alone < len(due))})
        return ClaimedSends(sends=due[:alone], rest=due[alone:], failures=pace.failures)

    async def settle(self, tx: Transaction, sends: Sequence[AlertSend], *, failed: str | None = None, retry_in_s: float = 0.0) -> int:
        if not sends:
            return 0
        values = {"destination": sends[0].destination, "failed": failed, "retry_in_s": retry_in_s}
        await execute(tx, SQL["settle_destination"], values)
        columns = {**send_columns(sends), "tries": [send.tries for send in sends]}
        return int(await fetch_value(tx, SQL["settle"], {**values, **columns}))

    async def end_quiet(self, tx: Transaction, *, window_s: float) -> int:
        return await execute(tx, SQL["end_quiet"], {"window_s": window_s})

    async def clean(self, tx: Transaction, *, keep_s: float) -> int:
        await execute(tx, SQL["clean_mutes"])
        return await execute(tx, SQL["clean"], {"keep_s": keep_s})

    async def end(self, tx: Transaction, alert_id: int, by: str) -> StoredAlert | None:
        return await fetch_row(tx, read_alert, SQL["end"], {"id": alert_id, "by": by})

    async def list(
        self,
        tx: Transaction,
        *,
        is_open: bool = False,
        since: datetime | None = None,
        before: tuple[datetime, int] | None = None,
        limit: int = 1000,
    ) -> list[StoredAlert]:
        last_at, last_id = before or (None, None)
        values = {"is_open": is_open, "since": since, "before_at": last_at, "before_id": last_id, "limit": limit}
        return await fetch_rows(tx, read_alert, SQL["list"], values)

    async def told(self, tx: Transaction, alert_ids: Sequence[int]) -> Sequence[AlertTold]:
        return await fetch_rows(tx, read_told, SQL["told"], {"ids": [*alert_ids]})

    async def mute(self, tx: Transaction, event: str, subject: str, *, for_s: float, by: str) -> AlertMute:
        values = {"event": event, "subject": subject, "for_s": for_s, "by": by}
        [mute] = await fetch_rows(tx, AlertMute, SQL["mute"], values)
        return mute

    async def unmute(self, tx: Transaction, event: str, subject: str) -> bool:
        return await execute(tx, SQL["unmute"], {"event": event, "subject": subject}) > 0

    async def mutes(self, tx: Transaction) -> Sequence[AlertMute]:
        return await fetch_rows(tx, AlertMute, SQL["mutes"])


def report_columns(report: AlertReport) -> dict[str, Any]:
    return {
        "event": report.event,
        "subject": report.subject,
        "level": report.level,
        "facts": dict(report.facts),
        "times": report.times,
    }


def send_columns(sends: Sequence[AlertSend]) -> dict[str, Any]:
    return {"ids": [send.alert.id for send in sends], "stages": [send.stage for send in sends]}


def read_alert(*, level: str, facts: Mapping[str, AlertFact], **columns: Any) -> StoredAlert:
    return StoredAlert(level=AlertLevel(level), facts=facts, **columns)


def read_told(*, stage: str, **columns: Any) -> AlertTold:
    return AlertTold(stage=AlertStage(stage), **columns)


def send_reader(destination: str) -> Callable[..., AlertSend]:
    """Return a function that reads a due send, as it will be after the claim."""

    def read(*, stage: str, tries: int, messages: int, **columns: Any) -> AlertSend:
        return AlertSend(alert=read_alert(**columns), destination=destination, stage=AlertStage(stage), tries=tries + 1, messages=messages)

    return read
