"""Alerts of one process: a log line, a count, and a report for the table that all processes share. Never on the message path.

`OperatorAlerts` is the port: it puts a report into a bounded queue and returns. `AlertWriter` takes the reports from there and writes
them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from hermes.event_log import get_logger
from hermes.ops.alert_events import clean_fact, report_of
from hermes.ports.alerts import AlertLevel, AlertRecords, AlertReport
from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Alerts, Transactions
from hermes.tasks import stop_if_cancelled

log = get_logger(__name__)

MAX_PENDING = 1_000
"""Different alerts that wait to be written. Repeats of one take no more room; further ones are counted, and stay in the log."""
MAX_LOGGED_CHARS = 4_000

AlertKey = tuple[str, str]
"""Event and subject."""
DirectSend = Callable[[Sequence[AlertReport]], Awaitable[Mapping[AlertKey, frozenset[str]]]]
"""Tells the destinations without the store; returns which of them each report was sent to."""


class AlertLog:
    """The port Alerts: a log line. May be called from any thread."""

    def alert(self, event: str, **facts: object) -> None:
        log.warning(event, **{**facts, "alert": True})

    def end(self, event: str, **facts: object) -> None:
        log.info("alert_ended", **{**facts, "of": event})


class OperatorAlerts:
    """The port Alerts. May be called from any thread, also after the event loop was closed; never raises and never waits."""

    def __init__(self, inner: Alerts) -> None:
        """`inner` logs, and may count."""
        self._inner = inner
        self._lock = threading.Lock()
        self._pending: dict[AlertKey, AlertReport] = {}
        self._lost = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None

    def alert(self, event: str, **facts: object) -> None:
        self._inner.alert(event, **loggable(facts))
        self._put(report_of(event, facts))

    def end(self, event: str, **facts: object) -> None:
        self._inner.end(event, **loggable(facts))
        self._put(report_of(event, facts, times=0, is_over=True))

    @property
    def pending(self) -> int:
        """How many reports wait to be written."""
        return len(self._pending)

    def start(self) -> None:
        """Wake the waiting writer of this event loop at every alert from now on."""
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self._wake()

    async def wait(self) -> None:
        """Wait until there is a report. Only after `start`."""
        if self._changed is not None:
            await self._changed.wait()

    def take(self) -> list[AlertReport]:
        """Take all reports out."""
        with self._lock:
            taken, lost = list(self._pending.values()), self._lost
            self._pending, self._lost = {}, 0
        if self._changed is not None:
            self._changed.clear()
        return [*taken, report_of("alerts_overflowed", {}, times=lost)] if lost else taken

    def put_back(self, reports: Sequence[AlertReport]) -> None:
        """Put reports back that could not be written; what was reported meanwhile is later than they."""
        with self._lock:
            later, self._pending = self._pending, {}
            for report in (*reports, *later.values()):
                self._merge(report)
        self._wake()

    def _put(self, report: AlertReport) -> None:
        with self._lock:
            self._merge(report)
        self._wake()

    def _merge(self, report: AlertReport) -> None:
        key = (report.event, report.subject)
        before = self._pending.get(key)
        if before is not None:
            # An end has no facts of its own that matter; what was sent without the store stays known.
            newest = report if report.times else before
            self._pending[key] = replace(
                newest, times=before.times + report.times, is_over=report.is_over, sent_to=before.sent_to | report.sent_to
            )
        elif len(self._pending) < MAX_PENDING or (report.level is AlertLevel.CRITICAL and self._drop_warning()):
            self._pending[key] = report
        else:
            self._lost += max(report.times, 1)

    def _drop_warning(self) -> bool:
        """Make room for a critical alert: a flood of warnings must not hide it. False if all that wait are critical."""
        newest = next((key for key, report in reversed(self._pending.items()) if report.level is AlertLevel.WARNING), None)
        if newest is not None:
            self._lost += max(self._pending.pop(newest).times, 1)
        return newest is not None

    def _wake(self) -> None:
        loop, changed = self._loop, self._changed
        if loop is None or changed is None:
            return
        try:
            loop.call_soon_threadsafe(changed.set)
        except RuntimeError:  # the loop is closed: the report stays in the log
            self._loop = None


def loggable(facts: Mapping[str, object]) -> dict[str, object]:
    """Return facts that any log can write, as numbers and texts: an object whose text cannot be made must not stop an alert, and the log
    for people takes a list neither as `stack` nor as `exc_info`."""
    return {
        name: " < ".join(str(clean_fact(item)) for item in value) if isinstance(value, list) else clean_fact(value, MAX_LOGGED_CHARS)
        for name, value in facts.items()
        if name != "exc_info"
    }


class AlertWriter:
    """Writes what a process reports into the table that all processes share.

    While the store is away, the reports wait, and the process tells the destinations itself: each event and subject at most once in a
    window. So several processes may each send one message about the same alert then; and after a crash the reports are in the log only."""

    def __init__(
        self,
        alerts: OperatorAlerts,
        transactions: Transactions,
        records: AlertRecords,
        *,
        send_directly: DirectSend | None = None,
        after_write: Callable[[], None] | None = None,
        pause_s: float = 0.2,
        retry_s: float = 2.0,
        timeout_s: float = 5.0,
    ) -> None:
        """`pause_s` gathers alerts that come together; `retry_s` is the pause while the store is away."""
        self._alerts, self._transactions, self._records = alerts, transactions, records
        self._send_directly, self._after_write = send_directly, after_write
        self._pause_s, self._retry_s, self._timeout_s = pause_s, retry_s, timeout_s

    async def run(self) -> None:
        """Write reports until cancelled."""
        self._alerts.start()
        while True:
            await self._alerts.wait()
            try:
                is_written = await self.write()
            except Exception as error:  # any fault of one round: without its writer the operator would hear of nothing more
                log.exception("alert_writer_failed", error=type(error).__name__)
                is_written = False
            stop_if_cancelled()
            await asyncio.sleep(self._pause_s if is_written else self._retry_s)

    async def write(self, *, timeout_s: float | None = None) -> bool:
        """Write what waits; False if the store is away."""
        reports = self._alerts.take()
        if not reports:
            return True
        try:
            async with asyncio.timeout(timeout_s or self._timeout_s), self._transactions.begin() as tx:
                await self._records.record(tx, reports)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("alerts_not_written", alerts=len(reports), error=type(error).__name__)
            await self._keep(reports)
            return False
        except asyncio.CancelledError:
            self._alerts.put_back(reports)
            raise
        if self._after_write is not None:
            self._after_write()
        return True

    async def _keep(self, reports: Sequence[AlertReport]) -> None:
        self._alerts.put_back(reports)
        happened = [report for report in reports if report.times]
        if self._send_directly is None or not happened:
            return
        told = await self._send_directly(happened)
        by_key = {(report.event, report.subject): report for report in happened}
        self._alerts.put_back([replace(by_key[key], times=0, sent_to=names) for key, names in told.items() if names])
