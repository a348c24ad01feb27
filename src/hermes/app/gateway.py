"""Build what calls models: backends, the fleet, the gateway, and the chat completions for OpenAI clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from hermes.app.catalogue import backends_of, catalogue_from, check_prices, prices_from, server_backends
from hermes.app.models import backends_from
from hermes.backends import HttpClient
from hermes.config import Settings
from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.client_chats import ChatStores
from hermes.gateway.completions import ChatCompletions
from hermes.gateway.fleet import Fleet
from hermes.gateway.gateway import Gateway
from hermes.gateway.model_health import ModelHealth
from hermes.gateway.prices import PER_MILLION
from hermes.gateway.slots import Slots
from hermes.ops.metrics import Metrics
from hermes.ports.credits import AgentSpend, Budgets, GlobalSpend
from hermes.ports.models import AnswerCache, ModelCalls
from hermes.ports.runtime import Alerts, Transactions
from hermes.ports.sessions import ClientChats, Graphs
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.ports.users import Agents, Users
from hermes.tasks import end_tasks


class SystemClock:
    """The port Clock: the time of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdapters:
    """The adapters that calls of models need."""

    people: Users
    graphs: Graphs
    chats: ClientChats
    agents: Agents
    calls: ModelCalls
    budgets: Budgets
    spend: GlobalSpend
    agent_spend: AgentSpend
    cache: AnswerCache
    alerts: Alerts


@dataclass(frozen=True, slots=True)
class ModelServices:
    """The services that call models, ready for use."""

    catalogue: ModelCatalogue
    fleet: Fleet
    gateway: Gateway
    completions: ChatCompletions
    health: ModelHealth


@asynccontextmanager
async def open_models(
    settings: Settings,
    adapters: ModelAdapters,
    transactions: Transactions,
    metrics: Metrics,
    client: HttpClient,
    *,
    tracer: Tracer = NO_TRACER,
) -> AsyncIterator[ModelServices]:
    """Open the models for as long as the block lasts. At its end the gateway first records the costs of all calls. Raises StartRefused."""
    catalogue, prices, clock = catalogue_from(settings), prices_from(settings), SystemClock()
    check_prices(catalogue, prices, clock.now().date())
    async with AsyncExitStack() as stack:
        fleet = Fleet(
            backends_from(settings, client), catalogue=catalogue, agents=adapters.agents, transactions=transactions, alerts=adapters.alerts
        )
        stack.push_async_callback(fleet.aclose)
        llm = settings.llm
        limits = {name: backend.slots for name, backend in backends_of(settings).items() if backend.slots is not None}
        slots = Slots(llm.slots, wait_s=llm.slot_wait_s, limits=limits)
        metrics.watch_slots(lambda: slots.used, lambda: slots.waiting)
        health = ModelHealth(catalogue, fleet, adapters.alerts, metrics, checkable=server_backends(settings))
        gateway = Gateway(
            catalogue=catalogue,
            prices=prices,
            backends=fleet,
            adapter_of=fleet.adapter_of,
            slots=slots,
            budgets=adapters.budgets,
            spend=adapters.spend,
            cache=adapters.cache,
            calls=adapters.calls,
            transactions=transactions,
            alerts=adapters.alerts,
            meter=health,
            clock=clock,
            deadline_s=llm.deadline_s,
            cap_micro_usd=micro_usd_of(llm.global_daily_budget_usd),
            agent_caps=AgentCaps(adapters.agent_spend, fleet.caps, micro_usd_of(settings.fleet.daily_usd)),
            tracer=tracer,
        )
        stack.push_async_callback(gateway.wait_settled)
        completions = ChatCompletions(
            gateway=gateway,
            people=adapters.people,
            stores=ChatStores(chats=adapters.chats, graphs=adapters.graphs, calls=adapters.calls, transactions=transactions),
            tier=settings.completions.tier,
            deadline_s=settings.completions.deadline_s,
        )
        await fleet.refresh()
        await stack.enter_async_context(follow_fleet(fleet))
        yield ModelServices(catalogue, fleet, gateway, completions, health)


def micro_usd_of(usd: float | None) -> int | None:
    return None if usd is None else round(usd * PER_MILLION)


@asynccontextmanager
async def follow_fleet(fleet: Fleet) -> AsyncIterator[None]:
    """Keep the fleet up to date for as long as the block lasts: other processes may change which adapter an agent uses."""
    task = asyncio.create_task(fleet.follow(), name="fleet")
    try:
        yield
    finally:
        await end_tasks(task)
