"""Queues, workers, alerts and fleet of the console, built from a whole Hermes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from hermes.app.alerting import open_destinations
from hermes.app.canary import canary_of
from hermes.app.console_access import access_from
from hermes.app.console_queues import current_time, queue_board_from, worker_board_from
from hermes.app.root import Hermes
from hermes.console.alerts import AlertBoard, AlertTrial, AlertWords
from hermes.console.fleet import FleetBoard, SwapRefused
from hermes.console.queues import QueueActions, QueueBoard
from hermes.console.workers import WorkerBoard
from hermes.gateway.fleet import SwapFailed
from hermes.ops.alert_events import ALERT_KINDS, kind_of
from hermes.ops.alert_text import trial_message
from hermes.ports.alerts import AlertDestination, AlertNotSent
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.users import Agent, NewUser
from hermes.router.effects import MICRO_PER_USD
from hermes.stores.postgres.queues import PostgresQueues

CHECK_TIMEOUT_S, TRIAL_TIMEOUT_S = 5.0, 10.0
NOT_HERE = BackendFinding(
    "not_in_settings", FindingLevel.ERROR, "the adapter is not in the settings of this process", "see `hermes doctor`"
)
NEW_USERS_TIER = NewUser().tier


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsConsole:
    """What stands behind the pages of queues, workers, alerts and the fleet."""

    queues: QueueBoard
    queue_actions: QueueActions
    workers: WorkerBoard
    alerts: AlertBoard
    fleet: FleetBoard


def operations_console_from(hermes: Hermes) -> OperationsConsole:
    """Return this part of the console of a running Hermes."""
    settings, database, adapters = hermes.settings, hermes.database, hermes.adapters
    access = access_from(settings, database)
    daily_usd = settings.fleet.daily_usd
    return OperationsConsole(
        queues=queue_board_from(database),
        queue_actions=queue_actions_from(hermes),
        workers=worker_board_from(settings, database),
        alerts=AlertBoard(
            database,
            access,
            adapters.alerting.records,
            describe_alert,
            ALERT_KINDS.__contains__,
            sorted(settings.alerts),
            lambda: send_trials(hermes),
        ),
        fleet=FleetBoard(
            database,
            access,
            adapters.agents,
            GatewaySwitch(hermes),
            current_time,
            None if daily_usd is None else round(daily_usd * MICRO_PER_USD),
        ),
    )


def queue_actions_from(hermes: Hermes) -> QueueActions:
    """Return what revives messages, and requeues or drops dead letters."""
    adapters = hermes.adapters
    return QueueActions(
        hermes.database,
        access_from(hermes.settings, hermes.database),
        PostgresQueues(),
        adapters.inbox,
        adapters.outbox,
        adapters.outbox.dead_letters,
        adapters.interactions,
        adapters.journal,
        hermes.work,
    )


def describe_alert(event: str) -> AlertWords:
    kind = kind_of(event)
    return AlertWords(kind.meaning, kind.advice)


async def send_trials(hermes: Hermes) -> list[AlertTrial]:
    """Send a test to each destination of the settings, one after the other."""
    async with open_destinations(hermes.settings) as found:
        return [await send_trial(routed.destination) for routed in found]


async def send_trial(destination: AlertDestination) -> AlertTrial:
    try:
        await destination.send(trial_message(destination.name, datetime.now(UTC)), timeout_s=TRIAL_TIMEOUT_S)
    except AlertNotSent as error:
        return AlertTrial(destination.name, f"it did not arrive: {error}")
    return AlertTrial(destination.name)


@dataclass(frozen=True, slots=True)
class GatewaySwitch:
    """The port AdapterSwitch, on the fleet of this process. The canary runs here; an adapter that is a program must be on this machine."""

    hermes: Hermes

    @property
    def adapters(self) -> Sequence[str]:
        return sorted(self.hermes.gateway.catalogue.models)

    def chain_of(self, agent: Agent) -> Sequence[str]:
        if agent.adapter is not None:
            return (agent.adapter,)
        chains = self.hermes.planner.chains()
        known = [name for name in (agent.tier, NEW_USERS_TIER, *chains) if name is not None and name in chains]
        return chains[known[0]] if known else ()

    async def check(self, adapter: str) -> Sequence[BackendFinding]:
        if adapter not in self.hermes.gateway.catalogue.models:
            return (NOT_HERE,)
        return await self.hermes.fleet.check(adapter, timeout_s=CHECK_TIMEOUT_S)

    async def swap(self, agent: str, adapter: str | None, *, by: str) -> bool:
        try:
            return (await self.hermes.fleet.swap(agent, adapter, by=by, canary=canary_of(self.hermes))).is_changed
        except SwapFailed as error:
            raise SwapRefused(str(error)) from error

    async def set_cap(self, agent: str, daily_micro_usd: int | None) -> Agent:
        return await self.hermes.fleet.set_cap(agent, daily_micro_usd)
