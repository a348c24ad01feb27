"""Sends alerts to their destinations: one of all processes, each alert once in a window, with pauses after failures.

Every message is claimed first, and settled after it has arrived. A process that dies between the two is replaced after the lease, so an
alert is never lost, and arrives twice only if its sender died after it had arrived. Knows no destination's protocol."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import structlog

from hermes.ops.alert_text import message_about, message_without_store, summary_about, summary_message
from hermes.ops.alerts import AlertKey
from hermes.ports.alerts import (
    AlertDestination,
    AlertMessage,
    AlertNotSent,
    AlertRecords,
    AlertReport,
    AlertRoute,
    AlertSend,
    ClaimedSends,
)
from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Transactions
from hermes.tasks import stop_if_cancelled

log = structlog.get_logger()

FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 300.0
"""The pause after a destination's first failure, and the longest one. Each further failure doubles it."""
MAX_RETRY_AFTER_S = 3_600.0
"""A destination that asks for a longer pause is tried again after this."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class RoutedDestination:
    """A destination, and which alerts it gets."""

    route: AlertRoute
    destination: AlertDestination
    wake: asyncio.Event = field(default_factory=asyncio.Event)


class AlertSender:
    """Sends what is due to each destination, until cancelled. Each destination is served by itself: one that hangs delays no other."""

    def __init__(
        self,
        transactions: Transactions,
        records: AlertRecords,
        destinations: Sequence[RoutedDestination],
        *,
        window_s: float,
        lease_s: float = 60.0,
        timeout_s: float = 10.0,
        poll_s: float = 2.0,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lease_s` is how long a claim lasts; no message is begun that could take longer than its claim."""
        self._transactions, self._records, self.destinations = transactions, records, tuple(destinations)
        self._window_s, self._lease_s, self._timeout_s, self._poll_s, self._timer = window_s, lease_s, timeout_s, poll_s, timer
        self._direct: dict[tuple[str, str, str], float] = {}
        self._direct_pace: dict[str, deque[float]] = {routed.route.destination: deque() for routed in self.destinations}

    async def run(self) -> None:
        """Send until cancelled."""
        if not self.destinations:
            return
        async with asyncio.TaskGroup() as group:
            for routed in self.destinations:
                group.create_task(self._follow(routed), name=f"alerts to {routed.route.destination}")

    def wake(self) -> None:
        """Look for due messages now, because an alert was written."""
        for routed in self.destinations:
            routed.wake.set()

    async def _follow(self, routed: RoutedDestination) -> None:
        is_away = False
        while True:
            try:
                await self.send_due(routed)
                is_away = False
            except (StoreUnavailable, TimeoutError) as error:
                if not is_away:
                    log.warning("alerts_not_sent", destination=routed.route.destination, error=type(error).__name__)
                is_away = True
            except Exception as error:  # any fault of one round: without its sender the operator would hear of nothing more
                log.exception("alert_round_failed", destination=routed.route.destination, error=type(error).__name__)
            stop_if_cancelled()
            try:
                async with asyncio.timeout(self._poll_s):
                    await routed.wake.wait()
            except TimeoutError:
                stop_if_cancelled()
            routed.wake.clear()

    async def send_due(self, routed: RoutedDestination) -> int:
        """Send what is due to one destination; return how many messages arrived. Raises StoreUnavailable."""
        claimed_at = self._timer()
        async with asyncio.timeout(self._timeout_s), self._transactions.begin() as tx:
            await self._records.plan(tx, routed.route, window_s=self._window_s)
            claimed = await self._records.claim(tx, routed.route, lease_s=self._lease_s)
        messages = deque(messages_of(claimed))
        arrived = 0
        while messages:
            sends, message = messages.popleft()
            if self._timer() + self._timeout_s > claimed_at + self._lease_s:
                # This process slept: another one may have claimed them by now. Those that it did not claim are due again.
                log.warning("alert_claim_expired", destination=routed.route.destination, messages=len(messages) + 1)
                return arrived
            unsent = [send for others, _ in messages for send in others]
            if not await finish(self._deliver(routed, sends, message, unsent, claimed.failures)):
                return arrived
            arrived += 1
        return arrived

    async def _deliver(
        self, routed: RoutedDestination, sends: Sequence[AlertSend], message: AlertMessage, unsent: Sequence[AlertSend], failures: int
    ) -> bool:
        """Send one message and settle it. False if it failed: then the claim's later messages wait with it."""
        try:
            await routed.destination.send(message, timeout_s=self._timeout_s)
        except AlertNotSent as error:
            await self._settle_failure(routed, [*sends, *unsent], error, failures)
            return False
        async with self._transactions.begin() as tx:
            if await self._records.settle(tx, sends) < len(sends):
                log.warning("alert_sent_twice", destination=routed.route.destination)
        return True

    async def _settle_failure(self, routed: RoutedDestination, sends: Sequence[AlertSend], error: AlertNotSent, failures: int) -> None:
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(failures, 10), MAX_PAUSE_S) * random.uniform(0.75, 1.25)  # noqa: S311  # no secret
        if error.retry_after_s is not None:
            pause_s = max(pause_s, min(error.retry_after_s, MAX_RETRY_AFTER_S))
        log.warning("alert_not_delivered", destination=routed.route.destination, reason=str(error), retries_in_s=round(pause_s))
        async with self._transactions.begin() as tx:
            await self._records.settle(tx, sends, failed=str(error), retry_in_s=pause_s)

    # --- without the store

    async def send_directly(self, reports: Sequence[AlertReport]) -> Mapping[AlertKey, frozenset[str]]:
        """Tell the destinations without the store: this process tells each at most once in a window about an event and subject. Return
        which destinations were told. A destination that fails is tried again in the next window, unless the store is back before."""
        told: dict[AlertKey, set[str]] = {}
        rounds = await asyncio.gather(*(self._send_directly(routed, reports) for routed in self.destinations))
        for routed, keys in zip(self.destinations, rounds, strict=True):
            for key in keys:
                told.setdefault(key, set()).add(routed.route.destination)
        return {key: frozenset(names) for key, names in told.items()}

    async def _send_directly(self, routed: RoutedDestination, reports: Sequence[AlertReport]) -> list[AlertKey]:
        name, now = routed.route.destination, self._timer()
        self._direct = {key: at for key, at in self._direct.items() if now - at < self._window_s}
        due = [
            report
            for report in reports
            if routed.route.takes(report.event, report.level) and (name, report.event, report.subject) not in self._direct
        ]
        # First noted, then sent: at most once.
        self._direct.update({(name, report.event, report.subject): now for report in due})
        pace = self._direct_pace[name]
        while pace and now - pace[0] >= 60:
            pace.popleft()
        allowed = routed.route.per_minute - len(pace)
        alone = due if len(due) <= allowed else due[: max(0, allowed - 1)]
        rest = due[len(alone) :] if allowed > 0 else []
        told: list[AlertKey] = []
        batches = [([report], message_without_store(report, utc_now())) for report in alone]
        if rest:
            events = [(report.event, report.level) for report in rest]
            batches.append((rest, summary_message(events, f"alerts_{uuid4().hex}", utc_now())))
        for of, message in batches:
            pace.append(now)
            try:
                await routed.destination.send(message, timeout_s=self._timeout_s)
            except AlertNotSent as error:
                log.warning("alert_not_delivered", destination=name, reason=str(error))
                return told
            told += [(report.event, report.subject) for report in of]
        return told


async def finish(work: Coroutine[Any, Any, bool]) -> bool:
    """Finish a message that is on its way, although the caller is cancelled: else it would arrive, and be sent again by another process.
    A caller that is cancelled a second time waits no longer."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        raise


def messages_of(claimed: ClaimedSends) -> Iterator[tuple[Sequence[AlertSend], AlertMessage]]:
    """Yield each message with the sends that it settles."""
    now = utc_now()
    for send in claimed.sends:
        yield [send], message_about(send)
    if claimed.rest:
        yield claimed.rest, summary_about(claimed.rest, now)
