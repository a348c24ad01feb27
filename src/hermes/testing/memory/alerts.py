"""The rows of alerts, in memory, for several senders in one process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hermes.ports.alerts import (
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

MAX_AGE = timedelta(days=1)


@dataclass(slots=True)
class SendRow:
    """What one destination is to be told about one alert."""

    not_before: datetime
    tries: int = 0
    sent_at: datetime | None = None
    messages: int = 0
    failed: str | None = None


@dataclass(slots=True)
class DestinationRow:
    """The pace of one destination."""

    minute_at: datetime
    not_before: datetime
    messages: int = 0
    failures: int = 0


@dataclass(slots=True)
class MemoryAlertRecords:
    """The port AlertRecords."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    rows: dict[int, StoredAlert] = field(default_factory=dict)
    sends: dict[tuple[int, str, AlertStage], SendRow] = field(default_factory=dict)
    destinations: dict[str, DestinationRow] = field(default_factory=dict)
    muted: dict[tuple[str, str], AlertMute] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def record(self, _: Transaction, reports: Sequence[AlertReport]) -> None:
        now = self.clock()
        for report in reports:
            open_one = self._open(report.event, report.subject)
            if report.times > 0:
                times, first_at = (open_one.times, open_one.first_at) if open_one else (0, now)
                open_one = StoredAlert(
                    id=open_one.id if open_one else next(self.numbers),
                    event=report.event,
                    subject=report.subject,
                    level=report.level,
                    facts=dict(report.facts),
                    times=times + report.times,
                    first_at=first_at,
                    last_at=now,
                )
                self.rows[open_one.id] = open_one
                for destination in report.sent_to:
                    self.sends.setdefault((open_one.id, destination, AlertStage.RAISED), SendRow(now, sent_at=now, messages=1))
            if report.is_over and open_one is not None:
                self.rows[open_one.id] = replace(open_one, ended_at=now, ended_by="hermes")

    async def plan(self, _: Transaction, route: AlertRoute, *, window_s: float) -> None:
        now, window, destination = self.clock(), timedelta(seconds=window_s), route.destination
        for alert in self.rows.values():
            told = self.sends.get((alert.id, destination, AlertStage.RAISED))
            is_muted = self._is_muted(alert)
            if told is None:
                is_news = route.tells_end or not self._was_told(alert, destination, alert.last_at - window)
                if alert.last_at > now - window and route.takes(alert.event, alert.level) and not is_muted and is_news:
                    self.sends[alert.id, destination, AlertStage.RAISED] = SendRow(now)
            elif told.sent_at is not None and alert.ended_at is None:
                if alert.last_at > told.sent_at + window and not is_muted:
                    told.sent_at, told.not_before = None, now
            elif told.sent_at is not None and alert.ended_at is not None and alert.ended_at > now - window and route.tells_end:
                self.sends.setdefault((alert.id, destination, AlertStage.ENDED), SendRow(now))

    async def claim(self, _: Transaction, route: AlertRoute, *, lease_s: float) -> ClaimedSends:
        now = self.clock()
        pace = self.destinations.setdefault(route.destination, DestinationRow(now, now))
        if pace.minute_at <= now - timedelta(minutes=1):
            pace.minute_at, pace.messages = now, 0
        allowed = min(route.per_minute - pace.messages, 1 if pace.failures else route.per_minute)
        due = [
            (self.rows[alert_id], stage, row)
            for (alert_id, destination, stage), row in self.sends.items()
            if destination == route.destination and row.sent_at is None and row.not_before <= now
            if self.rows[alert_id].last_at > now - MAX_AGE
        ]
        if allowed <= 0 or pace.not_before > now or not due:
            return ClaimedSends()
        due.sort(
            key=lambda found: (found[0].level is not AlertLevel.CRITICAL, found[0].first_at, found[0].id, found[1] is AlertStage.ENDED)
        )
        claimed = []
        for alert, stage, row in due:
            row.tries, row.not_before = row.tries + 1, now + timedelta(seconds=lease_s)
            claimed.append(AlertSend(alert=alert, destination=route.destination, stage=stage, tries=row.tries, messages=row.messages))
        alone = len(claimed) if len(claimed) <= allowed else allowed - 1
        pace.messages += alone + (alone < len(claimed))
        return ClaimedSends(sends=claimed[:alone], rest=claimed[alone:], failures=pace.failures)

    async def settle(self, _: Transaction, sends: Sequence[AlertSend], *, failed: str | None = None, retry_in_s: float = 0.0) -> int:
        now, settled = self.clock(), 0
        later = now + timedelta(seconds=retry_in_s)
        for destination in {send.destination for send in sends}:
            pace = self.destinations[destination]
            pace.failures = 0 if failed is None else pace.failures + 1
            pace.not_before = max(pace.not_before, later)
        for send in sends:
            row = self.sends[send.alert.id, send.destination, send.stage]
            if row.tries != send.tries or row.sent_at is not None:
                continue
            settled += 1
            row.not_before, row.failed = later, failed
            if failed is None:
                row.sent_at, row.messages = now, row.messages + 1
        return settled

    async def end_quiet(self, _: Transaction, *, window_s: float) -> int:
        now = self.clock()
        quiet = [row for row in self.rows.values() if row.ended_at is None and row.last_at < now - timedelta(seconds=window_s)]
        self.rows.update({row.id: replace(row, ended_at=now, ended_by="quiet") for row in quiet})
        return len(quiet)

    async def clean(self, _: Transaction, *, keep_s: float) -> int:
        now = self.clock()
        until = now - timedelta(seconds=keep_s)
        old = {row.id for row in self.rows.values() if row.ended_at is not None and row.ended_at < until}
        self.rows = {number: row for number, row in self.rows.items() if number not in old}
        self.sends = {key: row for key, row in self.sends.items() if key[0] not in old}
        self.muted = {key: mute for key, mute in self.muted.items() if mute.until > now}
        return len(old)

    async def end(self, _: Transaction, alert_id: int, by: str) -> StoredAlert | None:
        found = self.rows.get(alert_id)
        if found is not None and found.ended_at is None:
            found = self.rows[alert_id] = replace(found, ended_at=self.clock(), ended_by=by)
        return found

    async def list(
        self,
        _: Transaction,
        *,
        is_open: bool = False,
        since: datetime | None = None,
        before: tuple[datetime, int] | None = None,
        limit: int = 1000,
    ) -> list[StoredAlert]:
        found = [row for row in self.rows.values() if (not is_open or row.ended_at is None) and (since is None or row.last_at >= since)]
        older = [row for row in found if before is None or (row.last_at, row.id) < before]
        return sorted(older, key=lambda row: (row.last_at, row.id), reverse=True)[:limit]

    async def told(self, _: Transaction, alert_ids: Sequence[int]) -> Sequence[AlertTold]:
        return [
            AlertTold(
                alert_id=alert_id,
                destination=destination,
                stage=stage,
                tries=row.tries,
                messages=row.messages,
                sent_at=row.sent_at,
                failed=row.failed,
            )
            for (alert_id, destination, stage), row in sorted(
                self.sends.items(), key=lambda item: (item[0][:2], item[0][2] is AlertStage.ENDED)
            )
            if alert_id in alert_ids
        ]

    async def mute(self, _: Transaction, event: str, subject: str, *, for_s: float, by: str) -> AlertMute:
        mute = AlertMute(event=event, subject=subject, until=self.clock() + timedelta(seconds=for_s), by=by)
        self.muted[event, subject] = mute
        return mute

    async def unmute(self, _: Transaction, event: str, subject: str) -> bool:
        mute = self.muted.pop((event, subject), None)
        return mute is not None and mute.until > self.clock()

    async def mutes(self, _: Transaction) -> Sequence[AlertMute]:
        now = self.clock()
        return sorted((mute for mute in self.muted.values() if mute.until > now), key=lambda mute: (mute.event, mute.subject))

    def _open(self, event: str, subject: str) -> StoredAlert | None:
        return next((row for row in self.rows.values() if (row.event, row.subject, row.ended_at) == (event, subject, None)), None)

    def _was_told(self, alert: StoredAlert, destination: str, since: datetime) -> bool:
        """Whether a message since then was about an earlier alert of the same event and subject, which ended by itself."""
        earlier = (
            self.sends.get((row.id, destination, AlertStage.RAISED))
            for row in self.rows.values()
            if (row.event, row.subject) == (alert.event, alert.subject) and row.ended_by in {"hermes", "quiet"} and row.id != alert.id
        )
        return any(send is not None and send.sent_at is not None and send.sent_at >= since for send in earlier)

    def _is_muted(self, alert: StoredAlert) -> bool:
        now = self.clock()
        found = (self.muted.get((alert.event, subject)) for subject in ("", alert.subject))
        return any(mute is not None and mute.until > now for mute in found)
