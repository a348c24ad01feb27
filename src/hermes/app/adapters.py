"""The adapter behind each port: PostgreSQL, Redis, an embeddings model, the fetcher of images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from redis.asyncio import Redis

from hermes.app.alerting import Alerting, alerting_from
from hermes.app.clock import SystemClock
from hermes.app.packs import read_user_tables
from hermes.backends import HttpClient
from hermes.backends.image_fetch import PublicImageFetcher
from hermes.config import DeliverySettings, Settings, VectorStorage
from hermes.delivery.breaker import BreakerLimits
from hermes.ops.metrics import Metrics
from hermes.ports.credits import AgentSpend, Budgets, Credits, GlobalSpend
from hermes.ports.events import OperationsEvents
from hermes.ports.inbox import AnswerSignals, Inbox
from hermes.ports.key_use import KeyUse
from hermes.ports.live import BreakerReader, TurnNews
from hermes.ports.memories import Dreams, Embeddings, Memories, PastMessages, SoulCache
from hermes.ports.models import AnswerCache, ModelBreakers, ModelCalls, ModelPlans, Models
from hermes.ports.outbox import Breakers
from hermes.ports.processes import Processes
from hermes.ports.runtime import Alerts, Chores, Months
from hermes.ports.sessions import ClientChats, Graphs, Histories, Interactions, Journal, Sessions
from hermes.ports.spending import SpendSums
from hermes.ports.timeline import TurnTimelines
from hermes.ports.tools import EffectRecords, MediaFetcher, Offers
from hermes.ports.turn_end import TurnEnds
from hermes.ports.users import Agents, ApiKeys, IdempotencyKeys, Users
from hermes.stores.embeddings import ApiEmbeddings, local_embeddings
from hermes.stores.postgres.agents import PostgresAgents
from hermes.stores.postgres.api_keys import PostgresApiKeys, PostgresIdempotencyKeys
from hermes.stores.postgres.channel_accounts import PostgresChannelAccounts
from hermes.stores.postgres.chores import PostgresChores
from hermes.stores.postgres.credits import PostgresCredits
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.events import PostgresOperationsEvents
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import (
    PostgresEffectRecords,
    PostgresInteractions,
    PostgresJournal,
    PostgresTimelines,
)
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.memories import PostgresDreams, PostgresMemories, PostgresPastMessages
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.model_plans import PostgresModelPlans
from hermes.stores.postgres.months import PostgresMonths
from hermes.stores.postgres.offers import PostgresOffers
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.stores.postgres.sessions import PostgresClientChats, PostgresSessions
from hermes.stores.postgres.spend_sums import PostgresSpendSums
from hermes.stores.postgres.turn_end import PostgresTurnEnds
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.agent_spend import RedisAgentSpend
from hermes.stores.redis.announced_answers import RedisAnnouncedAnswers
from hermes.stores.redis.answer_signals import RedisAnswerSignals
from hermes.stores.redis.breakers import RedisBreakerReader, RedisBreakers
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.caches import RedisAnswerCache, RedisHistories, RedisSoulCache
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.redis.global_spend import RedisGlobalSpend
from hermes.stores.redis.key_counters import KeyCounters
from hermes.stores.redis.model_breakers import RedisModelBreakers
from hermes.stores.redis.turn_news import RedisTurnNews


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapter behind each port. A test, or an operator with stores of their own, may replace any of them."""

    people: Users
    credits: Credits
    inbox: Inbox
    sessions: Sessions
    graphs: Graphs
    histories: Histories
    journal: Journal
    outbox: PostgresOutbox
    """With its dead letters and what platforms report about its messages, beside the port Outbox."""
    interactions: Interactions
    turn_ends: TurnEnds | None
    timelines: TurnTimelines
    api_keys: ApiKeys
    idempotency_keys: IdempotencyKeys
    replies: AnswerSignals
    alerts: Alerts
    alerting: Alerting
    chats: ClientChats
    agents: Agents
    calls: ModelCalls
    budgets: Budgets
    key_use: KeyUse
    spend: GlobalSpend
    agent_spend: AgentSpend
    spend_sums: SpendSums
    cache: AnswerCache
    outcomes: EffectRecords
    offers: Offers
    memories: Memories
    dreams: Dreams
    past_messages: PastMessages
    bases: SoulCache
    embeddings: Embeddings
    rota: Chores
    months: Months
    processes: Processes
    breakers: Breakers
    model_breakers: ModelBreakers
    model_plans: ModelPlans
    breaker_reader: BreakerReader
    turn_news: TurnNews
    channel_accounts: PostgresChannelAccounts
    stream_events: OperationsEvents
    web: MediaFetcher
    models: Models | None = None
    """The models that answer in turns; None: the gateway, with the models of the settings."""


@asynccontextmanager
async def open_adapters(
    settings: Settings, database: Database, keyring: Keyring, client: Redis, *, metrics: Metrics, http: HttpClient
) -> AsyncIterator[Adapters]:
    """Yield the adapters of the settings, on open stores; close those that hold connections of their own at the end of the block."""
    graphs, calls = PostgresGraphs(keyring), PostgresModelCalls()
    history, delivery = settings.history, settings.delivery
    alerting = alerting_from(settings, database, metrics, http)
    alerts, batch = alerting.alerts, ScriptBatch(client)
    replies = RedisAnswerSignals(client, batch=batch)
    key_use = KeyCounters(client, database, calls, clock=SystemClock(), batch=batch)
    budgets = RedisBudgets(client, database, calls, alerts=alerts, clock=SystemClock(), batch=batch, keys=key_use)
    web = PublicImageFetcher(max_bytes=settings.images.max_bytes, timeout_s=settings.images.timeout_s)
    adapters = Adapters(
        people=PostgresUsers(keyring, await read_user_tables(settings, database)),
        credits=PostgresCredits(),
        inbox=PostgresInbox(keyring, cap=settings.inbox.max_waiting, idle_s=history.idle_s, database=database),
        sessions=PostgresSessions(keyring, idle_s=history.idle_s),
        graphs=graphs,
        histories=RedisHistories(
            client, database, graphs, keyring, ttl_s=history.hot_ttl_s, keep_messages=history.hot_messages, batch=batch
        ),
        journal=PostgresJournal(keyring),
        turn_ends=PostgresTurnEnds(keyring),
        outbox=PostgresOutbox(keyring, cut_off_s=delivery.cut_off_s, cap=delivery.max_queued, keep_dead_s=delivery.dead_letter_ttl_s),
        interactions=PostgresInteractions(),
        timelines=PostgresTimelines(),
        api_keys=PostgresApiKeys(),
        idempotency_keys=PostgresIdempotencyKeys(ttl_s=settings.api.idempotency_ttl_s),
        replies=replies,
        alerts=alerts,
        alerting=alerting,
        chats=PostgresClientChats(database, keyring, RedisAnnouncedAnswers(client, batch)),
        agents=PostgresAgents(),
        calls=calls,
        budgets=budgets,
        key_use=key_use,
        spend=RedisGlobalSpend(
            client, database, calls, records=PostgresKillSwitchRecords(), alerts=alerts, clock=SystemClock(), batch=batch
        ),
        agent_spend=RedisAgentSpend(client, database, calls, alerts=alerts, clock=SystemClock(), batch=batch),
        spend_sums=PostgresSpendSums(),
        cache=RedisAnswerCache(client, database, keyring, ttl_s=settings.llm.cache_ttl_s),
        outcomes=PostgresEffectRecords(keyring),
        offers=PostgresOffers(keyring),
        memories=PostgresMemories(keyring, seals_vectors=settings.memory.vectors is VectorStorage.SEALED),
        dreams=PostgresDreams(keyring),
        past_messages=PostgresPastMessages(keyring, idle_s=history.idle_s),
        bases=RedisSoulCache(client, database, keyring, batch=batch),
        embeddings=embeddings_from(settings, http),
        rota=PostgresChores(),
        months=PostgresMonths(),
        processes=PostgresProcesses(),
        model_breakers=RedisModelBreakers(client, SystemClock(), batch=batch),
        model_plans=PostgresModelPlans(),
        breakers=RedisBreakers(client, SystemClock(), breaker_limits(delivery)),
        breaker_reader=RedisBreakerReader(client, SystemClock()),
        turn_news=RedisTurnNews(client),
        channel_accounts=PostgresChannelAccounts(keyring),
        stream_events=PostgresOperationsEvents(),
        web=web,
    )
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(alerting.open())
        for part in (batch, replies, budgets, web):
            stack.push_async_callback(part.aclose)
        yield adapters


def breaker_limits(delivery: DeliverySettings) -> BreakerLimits:
    return BreakerLimits(
        failures=delivery.breaker_failures,
        within_s=delivery.breaker_within_s,
        open_s=delivery.breaker_open_s,
        probe_s=3 * delivery.timeout_s,
        unauthorized_s=delivery.breaker_unauthorized_s,
    )


def embeddings_from(settings: Settings, http: HttpClient) -> Embeddings:
    """Return the embeddings API of the settings, or else the model on this machine."""
    memory = settings.memory
    if memory.embeddings_url is None:
        return local_embeddings()
    key = memory.embeddings_key.reveal() if memory.embeddings_key else ""
    return ApiEmbeddings(
        http,
        address=memory.embeddings_url,
        name=memory.embeddings_model,
        dimension=memory.embeddings_dimension,
        key=key,
    )
