"""Build what carries alerts to the operator: the destinations of the settings, the writer of each process, and the sender."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from hermes.channels.alert_destinations import DiscordDestination, SlackDestination, TelegramDestination, WebhookDestination
from hermes.channels.telegram.api import BotApi
from hermes.config import AlertKindSetting, AlertLevelSetting, AlertSettings, Secret, Settings, kind_of_destination, nearest
from hermes.http_client import HttpClient
from hermes.ops.alert_events import ALERT_KINDS
from hermes.ops.alert_sender import AlertSender, RoutedDestination
from hermes.ops.alerts import AlertWriter, OperatorAlerts
from hermes.ops.metrics import LogAlerts, Metrics
from hermes.ops.watcher import Watcher, WatchLimits
from hermes.ports.alerts import AlertDestination, AlertLevel, AlertRecords, AlertRoute
from hermes.ports.errors import StartRefused
from hermes.ports.runtime import Transactions
from hermes.router.chores import ChoreAction, ChoreRun
from hermes.stores.postgres.alerts import PostgresAlerts
from hermes.stores.postgres.watch import PostgresWatch
from hermes.tasks import end_tasks

DAY_S = 86_400.0
FLUSH_S = 2.0
"""How long a process that ends may take to write its last alerts, and as long again to send them itself if the database is away."""


@dataclass(frozen=True, slots=True)
class Alerting:
    """The alerts of one process, the rows of all processes, and the sender, which the service runs and a command does not."""

    alerts: OperatorAlerts
    records: AlertRecords
    sender: AlertSender
    writer: AlertWriter

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Write alerts for as long as the block lasts; at its end, those that still wait."""
        writing = asyncio.create_task(self.writer.run(), name="alerts")
        try:
            yield
        finally:
            await end_tasks(writing)
            with suppress(TimeoutError):  # of a destination that hangs while the database is away: the alerts are in the log
                async with asyncio.timeout(2 * FLUSH_S):
                    await self.writer.write(timeout_s=FLUSH_S)


def alerting_from(settings: Settings, transactions: Transactions, metrics: Metrics, client: HttpClient) -> Alerting:
    """Return the alerting of the settings; it does nothing before it is opened. Raises StartRefused."""
    alerts, records = OperatorAlerts(LogAlerts(metrics)), PostgresAlerts()
    sender = AlertSender(transactions, records, destinations_from(settings, client), window_s=settings.watch.window_s)
    writer = AlertWriter(alerts, transactions, records, send_directly=sender.send_directly, after_write=sender.wake)
    return Alerting(alerts, records, sender, writer)


def watch_action(settings: Settings, alerting: Alerting) -> ChoreAction:
    """Return what the chore `watch` does: it looks at the queues, the failures and the spend of all processes."""
    watch = settings.watch
    limits = WatchLimits(
        window_s=watch.window_s,
        keep_s=watch.keep_days * DAY_S,
        queue_age_s=watch.queue_age_s,
        failed_percent=watch.failed_percent,
        failed_within_s=watch.failed_within_s,
        failed_min=watch.failed_min,
        dead_letters=watch.dead_letters,
        spend_factor=watch.spend_factor,
    )

    def look(run: ChoreRun) -> Awaitable[None]:
        return Watcher(run.transactions, PostgresWatch(), alerting.records, alerting.alerts, limits).look(run.now)

    return look


def destinations_from(settings: Settings, client: HttpClient) -> list[RoutedDestination]:
    """Return the destinations of the settings. The caller closes the client. Raises StartRefused."""
    return [RoutedDestination(route_from(name, entry), destination_from(name, entry, client)) for name, entry in settings.alerts.items()]


def route_from(name: str, entry: AlertSettings) -> AlertRoute:
    for event in entry.events:
        if event not in ALERT_KINDS:
            raise StartRefused(f"alerts.{name}.events: there is no alert {event}; did you mean {nearest(event, ALERT_KINDS)}?")
    levels = {AlertLevel.CRITICAL} if entry.min_level is AlertLevelSetting.CRITICAL else {*AlertLevel}
    return AlertRoute(
        destination=name,
        levels=frozenset(levels),
        events=frozenset(entry.events) if entry.events else None,
        per_minute=entry.per_minute,
        tells_end=entry.resolved,
    )


def destination_from(name: str, entry: AlertSettings, client: HttpClient) -> AlertDestination:
    url = revealed_text(entry.url)
    try:
        match kind_of_destination(name, entry):
            case AlertKindSetting.SLACK:
                return SlackDestination(name, client, url)
            case AlertKindSetting.DISCORD:
                return DiscordDestination(name, client, url)
            case AlertKindSetting.TELEGRAM:
                token = revealed_text(entry.token)
                api = BotApi(token=token, base_url=url.rstrip("/")) if url else BotApi(token=token)
                return TelegramDestination(name, client, api, entry.chat or "")
            case AlertKindSetting.WEBHOOK:
                return WebhookDestination(name, client, url, revealed_text(entry.secret))
    except ValueError as error:  # of a token or a secret; neither error shows it
        raise StartRefused(f"alerts.{name}: {error}") from None
    raise StartRefused(f"alerts.{name}.kind is missing; expected one of {', '.join(AlertKindSetting)}")


def revealed_text(secret: Secret | None) -> str:
    return secret.reveal() if secret is not None else ""


@asynccontextmanager
async def open_destinations(settings: Settings) -> AsyncIterator[list[RoutedDestination]]:
    """Open the destinations of the settings with a client of their own, for a command. Raises StartRefused."""
    client = HttpClient()
    try:
        yield destinations_from(settings, client)
    finally:
        await client.aclose()
