"""The alerts as an operator sees them: what is open, what was sent where, what is muted; and how they end, mute or test one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from hermes.console.access import ConsoleAccess, Subject
from hermes.console.queues import as_number, parse_place, place_text
from hermes.ports.alerts import AlertMute, AlertRecords, AlertTold, StoredAlert
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.queues import PAGE_ROWS
from hermes.ports.runtime import Transactions

MAX_OPEN = 500
MIN_MUTE_S, MAX_MUTE_S = 60.0, 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class AlertWords:
    """What an event means, and what the operator can do."""

    meaning: str
    advice: str


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert, what it means, and what the destinations were told of it."""

    alert: StoredAlert
    words: AlertWords
    told: Sequence[AlertTold]
    mute: AlertMute | None


@dataclass(frozen=True, slots=True)
class AlertTrial:
    """What became of a test at one destination: "" if it arrived, or why it did not."""

    destination: str
    failed: str = ""


@dataclass(frozen=True, slots=True)
class AlertPage:
    """Alerts, the newest first, and the place after the last one."""

    alerts: Sequence[AlertView]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class AlertBoard:
    """Reads the alerts, and acts on them."""

    transactions: Transactions
    access: ConsoleAccess
    records: AlertRecords
    describe: Callable[[str], AlertWords]
    """What an event means."""
    is_known: Callable[[str], bool]
    """Whether Hermes can raise an event of this name."""
    destinations: Sequence[str]
    send_trials: Callable[[], Awaitable[Sequence[AlertTrial]]]
    """Sends a test to each destination."""

    async def list(
        self, operator: Operator, *, is_open: bool, since: datetime | None = None, place: str | None = None, limit: int = PAGE_ROWS
    ) -> AlertPage:
        """Return a page of alerts: only open ones, or all. An operator of some accounts sees the alerts that name one of them."""
        before = None if place is None else parse_place(place)
        async with self.transactions.once() as tx:
            found = await self.records.list(
                tx, is_open=is_open, since=since, before=before and (before[0], as_number(before[1])), limit=limit + 1
            )
            page = found[:limit]
            told = await self.records.told(tx, [alert.id for alert in page])
            mutes = await self.records.mutes(tx)
        views = [self._view(alert, told, mutes) for alert in page if is_seen(operator, alert)]
        return AlertPage(views, place_text(page[-1].last_at, page[-1].id) if len(found) > limit else None)

    def _view(self, alert: StoredAlert, told: Sequence[AlertTold], mutes: Sequence[AlertMute]) -> AlertView:
        mute = next((each for each in mutes if each.event == alert.event and each.subject in {"", alert.subject}), None)
        return AlertView(alert, self.describe(alert.event), [each for each in told if each.alert_id == alert.id], mute)

    async def mutes(self, operator: Operator) -> Sequence[AlertMute]:
        """Return the mutes that are not over; none for an operator who does not see all accounts: their subjects name accounts."""
        if operator.accounts is not None:
            return ()
        async with self.transactions.once() as tx:
            return await self.records.mutes(tx)

    async def end(self, actor: Actor, alert_id: int) -> StoredAlert:
        """End an alert: its next time is a new alert, with new messages. Raises NotFound and AccessRefused."""
        await self.access.permit(actor, Role.OPERATOR, "alert.end", Subject(kind="alert", id=str(alert_id)))
        async with self.transactions.begin() as tx:
            found = await self.records.end(tx, alert_id, actor.operator.name)
        if found is None:
            raise NotFound(f"there is no alert {alert_id}; `hermes alerts list --all` shows them")
        return found

    async def mute(self, actor: Actor, event: str, subject: str, *, for_s: float) -> AlertMute:
        """Send no messages about an event and subject for a while. It is still recorded. Raises NotFound and AccessRefused."""
        if not self.is_known(event):
            raise NotFound(f"there is no alert {event[:60]!r}; `hermes alerts events` lists them")
        if not MIN_MUTE_S <= for_s <= MAX_MUTE_S:
            raise NotFound("an alert is muted for a minute at least, and a year at most")
        await self.access.permit(actor, Role.OPERATOR, "alert.mute", alert_subject(event, subject), facts={"for_s": for_s})
        async with self.transactions.begin() as tx:
            return await self.records.mute(tx, event, subject, for_s=for_s, by=actor.operator.name)

    async def unmute(self, actor: Actor, event: str, subject: str) -> None:
        """Send messages about an event and subject again. Raises NotFound if it was not muted, and AccessRefused."""
        await self.access.permit(actor, Role.OPERATOR, "alert.unmute", alert_subject(event, subject))
        async with self.transactions.begin() as tx:
            if not await self.records.unmute(tx, event, subject):
                raise NotFound("there is no such mute; nothing changed")

    async def test(self, actor: Actor) -> Sequence[AlertTrial]:
        """Send a test to each destination, and return what became of it. Raises AccessRefused."""
        await self.access.permit(actor, Role.OPERATOR, "alert.test", Subject(kind="alert", id="test"))
        return await self.send_trials()


def alert_subject(event: str, subject: str) -> Subject:
    return Subject(kind="alert", id=f"{event} {subject}".strip())


def is_seen(operator: Operator, alert: StoredAlert) -> bool:
    account = alert.facts.get("account")
    return operator.sees(account if isinstance(account, str) else None)
