"""Look at the figures that no event reports: the age of the queue, dead letters, failures, chores, an agent's spend; and at the kill
switch, because an alert that is not repeated would count as ended after a while.

One of all processes does it each minute, as a chore. A figure above its limit is an alert, which is repeated as long as it stays there. The
alert ends when the figure is well below the limit, so that a figure that goes up and down around it makes one alert and not many. Whether
an alert is open is read from the table, because the next look may be another process's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hermes.ops.alert_events import report_of
from hermes.ports.alerts import AlertRecords, StoredAlert, WatchFigures, WatchReader, WellPlace
from hermes.ports.runtime import Alerts, Transactions

CLEAR_RATIO = 0.8
"""An alert ends when its figure is below this part of the limit."""
MAX_OPEN = 10_000
"""Open alerts that a look takes into account."""
PROCESS_EVENTS = {
    "process_stalled": timedelta(),
    "process_died": timedelta(seconds=30),
    "process_crash_loop": timedelta(minutes=2),
}
"""Alerts about processes that end when all of that role on the host are well, each with how long it must not have been repeated: in a crash
loop Hermes starts a process every half minute."""
START_SLACK = timedelta(minutes=2)
"""How long before the alert the process may have started that stands for the one that died: the alert may be written late."""
MIN_UNUSUAL_MICRO_USD = 100_000
"""An hour that costs less than ten cents is no alert, whatever the usual hour costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchLimits:
    """When a figure is an alert. The reasons are at the settings `[watch]`."""

    window_s: float
    keep_s: float
    queue_age_s: float
    failed_percent: float
    failed_within_s: float
    failed_min: int
    dead_letters: int
    spend_factor: float


@dataclass(frozen=True, slots=True)
class WatchedFigure:
    """One figure with its limit, and what the alert about it says."""

    event: str
    value: float
    limit: float
    facts: dict[str, object]


class Watcher:
    """Does one look."""

    def __init__(
        self,
        transactions: Transactions,
        reader: WatchReader,
        records: AlertRecords,
        alerts: Alerts,
        limits: WatchLimits,
    ) -> None:
        self._transactions, self._reader, self._records, self._alerts, self._limits = transactions, reader, records, alerts, limits

    async def look(self, now: datetime) -> None:
        """Raise and end the alerts of all figures; end alerts that were quiet for a window; delete old ones. Raises StoreUnavailable."""
        limits = self._limits
        async with self._transactions.begin() as tx:
            await self._records.end_quiet(tx, window_s=limits.window_s)
            await self._records.clean(tx, keep_s=limits.keep_s)
            figures = await self._reader.read(tx, failed_within_s=limits.failed_within_s)
            found = await self._records.list(tx, is_open=True, limit=MAX_OPEN)
        still_open = {(row.event, row.subject) for row in found}
        for figure in watch_figures(figures, limits):
            subject = report_of(figure.event, figure.facts).subject
            is_open = (figure.event, subject) in still_open
            if figure.value > figure.limit or (is_open and figure.value > figure.limit * CLEAR_RATIO):
                self._alerts.alert(figure.event, **figure.facts)
            elif is_open:
                self._alerts.end(figure.event, **figure.facts)
        self._end_chores(figures, [subject for event, subject in still_open if event == "chore_failing"])
        self._end_processes(figures.well_places, [row for row in found if row.event in PROCESS_EVENTS], now)

    def _end_chores(self, figures: WatchFigures, open_chores: Sequence[str]) -> None:
        for chore in open_chores:
            if chore not in figures.failing_chores:
                self._alerts.end("chore_failing", chore=chore)

    def _end_processes(self, well_places: Sequence[WellPlace], still_open: Sequence[StoredAlert], now: datetime) -> None:
        """End the alerts about processes that are well again or replaced. One that died is replaced when another one started after it; an
        alert that is still repeated, as in a crash loop, goes on."""
        for alert in still_open:
            for place in well_places:
                facts: dict[str, object] = {"role": place.role, "host": place.host}
                is_quiet = now - alert.last_at >= PROCESS_EVENTS[alert.event]
                is_replaced = alert.event == "process_stalled" or place.newest_start_at > alert.last_at - START_SLACK
                if is_quiet and is_replaced and report_of(alert.event, facts).subject == alert.subject:
                    self._alerts.end(alert.event, **facts)


def watch_figures(figures: WatchFigures, limits: WatchLimits) -> Iterator[WatchedFigure]:
    """Yield each figure of the stores with its limit."""
    percent = 100 * figures.failed / figures.turns if figures.turns else 0.0
    queue: dict[str, object] = {"oldest_s": round(figures.oldest_s), "waiting": figures.waiting}
    failures: dict[str, object] = {
        "percent": round(percent, 1),
        "failed": figures.failed,
        "turns": figures.turns,
        "within_s": limits.failed_within_s,
    }
    letters: dict[str, object] = {"new": figures.new_dead_letters, "total": figures.dead_letters}
    yield WatchedFigure("queue_old", figures.oldest_s, limits.queue_age_s, queue)
    yield WatchedFigure("failures_high", percent if figures.failed >= limits.failed_min else 0.0, limits.failed_percent, failures)
    yield WatchedFigure("dead_letters_growing", figures.new_dead_letters, limits.dead_letters, letters)
    yield WatchedFigure("kill_switch_engaged", float(bool(figures.kill_switch)), 0.5, dict(figures.kill_switch))
    for chore, error in figures.failing_chores.items():
        yield WatchedFigure("chore_failing", 1.0, 0.0, {"chore": chore, "error": error})
    for spend in figures.spends:
        limit = max(limits.spend_factor * spend.median_micro_usd, MIN_UNUSUAL_MICRO_USD)
        facts: dict[str, object] = {
            "agent": spend.agent,
            "hour": spend.hour,
            "micro_usd": spend.micro_usd,
            "median_micro_usd": spend.median_micro_usd,
        }
        yield WatchedFigure("agent_spend_unusual", spend.micro_usd, limit, facts)
