"""Build what calls models: backends, the fleet, the gateway, and the chat completions for OpenAI clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from hermes.app.catalogue import (
    EMBEDDINGS_BACKEND,
    backend_kind,
    backends_of,
    catalogue_from,
    check_prices,
    prices_from,
    server_backends,
    with_embedding_model,
    with_embedding_price,
    with_replay_tier,
)
from hermes.app.clock import SystemClock
from hermes.app.models import backends_from
from hermes.backends import HttpClient
from hermes.backends.embeddings import EmbeddingsBackend
from hermes.config import PROGRAMS, SERVERS, BackendKind, Settings
from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.chain import BackendPatience
from hermes.gateway.client_chats import ChatStores
from hermes.gateway.completions import ChatCompletions
from hermes.gateway.fleet import Fleet
from hermes.gateway.gateway import Gateway
from hermes.gateway.key_guard import KeyGuard
from hermes.gateway.model_health import ModelHealth
from hermes.gateway.model_plans import ModelPlanner
from hermes.gateway.prices import micro_usd_of
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch
from hermes.ops.metrics import Metrics
from hermes.ports.credits import AgentSpend, Budgets, GlobalSpend
from hermes.ports.memories import Embeddings
from hermes.ports.models import AnswerCache, ModelBreakers, ModelCalls, ModelPlans
from hermes.ports.runtime import Alerts, Transactions
from hermes.ports.sessions import ClientChats, Graphs
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.ports.users import Agents, ApiKeys, Users
from hermes.tasks import end_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAdapters:
    """The adapters that calls of models need."""

    people: Users
    api_keys: ApiKeys
    graphs: Graphs
    chats: ClientChats
    agents: Agents
    calls: ModelCalls
    budgets: Budgets
    spend: GlobalSpend
    agent_spend: AgentSpend
    cache: AnswerCache
    model_breakers: ModelBreakers
    model_plans: ModelPlans
    embeddings: Embeddings
    alerts: Alerts


@dataclass(frozen=True, slots=True)
class ModelServices:
    """The services that call models, ready for use."""

    catalogue: ModelCatalogue
    fleet: Fleet
    planner: ModelPlanner
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
    embedding_model = adapters.embeddings.model.removesuffix(f"/{adapters.embeddings.dimension}")
    catalogue = with_embedding_model(with_replay_tier(catalogue_from(settings)), embedding_model)
    prices, clock = with_embedding_price(prices_from(settings), settings, embedding_model), SystemClock()
    check_prices(catalogue, prices, clock.now().date())
    async with AsyncExitStack() as stack:
        backends = {**backends_from(settings, client), EMBEDDINGS_BACKEND: EmbeddingsBackend(adapters.embeddings, name=EMBEDDINGS_BACKEND)}
        fleet = Fleet(backends, catalogue=catalogue, agents=adapters.agents, transactions=transactions, alerts=adapters.alerts)
        stack.push_async_callback(fleet.aclose)
        llm = settings.llm
        limits = {name: backend.slots for name, backend in backends_of(settings).items() if backend.slots is not None}
        if settings.memory.embeddings_url is None:
            limits[EMBEDDINGS_BACKEND] = 1  # the model on this machine has two threads, and messages need the other one
        slots = Slots(llm.slots, wait_s=llm.slot_wait_s, limits=limits)
        metrics.watch_slots(lambda: slots.used, lambda: slots.waiting)
        planner = ModelPlanner(catalogue, fleet, prices, store=adapters.model_plans, transactions=transactions, clock=clock)
        health = ModelHealth(catalogue, fleet, adapters.alerts, metrics, checkable=server_backends(settings), used=planner.used)
        gateway = Gateway(
            catalogue=catalogue,
            prices=prices,
            backends=fleet,
            adapter_of=fleet.adapter_of,
            choose_chains=planner.choose,
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
            keys=KeyGuard(transactions, adapters.api_keys),
            watch=ModelWatch(adapters.model_breakers, adapters.alerts),
            patience=backend_patience(settings),
        )
        stack.push_async_callback(gateway.wait_settled)
        completions = ChatCompletions(
            gateway=gateway,
            people=adapters.people,
            stores=ChatStores(chats=adapters.chats, graphs=adapters.graphs, calls=adapters.calls, transactions=transactions),
            tier=settings.completions.tier,
            deadline_s=settings.completions.deadline_s,
            adapter_on=lambda account: fleet.adapter_of(fleet.agent_on(account)),
            embedding_model=embedding_model,
            embedding_dimension=adapters.embeddings.dimension,
        )
        await asyncio.gather(fleet.refresh(), planner.refresh())
        await stack.enter_async_context(follow(fleet, planner, gateway))
        yield ModelServices(catalogue, fleet, planner, gateway, completions, health)


def backend_patience(settings: Settings) -> dict[str, BackendPatience]:
    """How long the chain waits for the first token of each backend. vLLM is asked for a stream that no client wants only without tools: a
    tool parser loses token ids in a stream. SGLang never is: its streams do not name the weights."""
    found = backends_of(settings)
    kinds = {name: backend_kind(found, name) for name in found}
    return {
        name: BackendPatience(
            backend.first_token_s or (SLOW_START_S if kinds[name] in SLOW_STARTERS else settings.llm.first_token_s),
            is_same_streamed=kinds[name] in SAME_STREAMED,
            is_same_without_tools=kinds[name] is BackendKind.VLLM,
            is_checked=kinds[name] in SERVERS,
        )
        for name, backend in found.items()
    }


SLOW_START_S = 30.0
SLOW_STARTERS = PROGRAMS | {BackendKind.OLLAMA, BackendKind.LOCAL, BackendKind.LLAMA_CPP}
"""Kinds that may load a model before they answer."""
SAME_STREAMED = frozenset({BackendKind.ANTHROPIC, BackendKind.OPENAI, BackendKind.OLLAMA})


@asynccontextmanager
async def follow(fleet: Fleet, planner: ModelPlanner, gateway: Gateway) -> AsyncIterator[None]:
    """Keep up with the other processes for as long as the block lasts: which adapter an agent uses, which plan holds, and whether the kill
    switch is on."""
    tasks = (
        asyncio.create_task(fleet.follow(), name="fleet"),
        asyncio.create_task(planner.follow(), name="model plan"),
        asyncio.create_task(gateway.running.follow(gateway.spend), name="kill switch"),
    )
    try:
        yield
    finally:
        await end_tasks(*tasks)
