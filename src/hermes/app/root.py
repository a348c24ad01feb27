"""The composition root: turns settings into a running Hermes.

async with open_hermes(settings) as hermes:
    await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
    await hermes.run_worker()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from uuid import UUID, uuid4

import structlog
from redis.asyncio import Redis

from hermes.app.adapters import Adapters, open_adapters
from hermes.app.background import BackgroundJobs, background_jobs_from
from hermes.app.channels import AccountChannels, TelegramPollers, channel_sender_from, follow_accounts, receipts_from
from hermes.app.clock import SystemClock
from hermes.app.console_replay import replays_from
from hermes.app.erasures import update_ledger
from hermes.app.figures import figure_readers
from hermes.app.gateway import ModelAdapters, ModelServices, open_models
from hermes.app.home import home_of
from hermes.app.packs import OpenPacks, wants_samples
from hermes.app.processes import ProcessReporter
from hermes.app.redis_client import redis_client
from hermes.app.router import (
    AnswerServices,
    OpenTools,
    UserMemory,
    answer_services_from,
    can_read,
    compaction_policy_from,
    preload,
    refuse_mcp_servers,
    services_from,
)
from hermes.app.stores import open_database_and_keys
from hermes.app.tool_pins import pin_keeper_from
from hermes.app.vaults import vault_mark
from hermes.backends import HttpClient
from hermes.channels.media import AccountFiles
from hermes.channels.platform_client import open_platform_client
from hermes.config import Settings
from hermes.console.replays import ReplayConsole
from hermes.delivery.outbox_delivery import OutboxDelivery, SettlementWriter
from hermes.delivery.receipts import ReceiptHandler
from hermes.delivery.typing_indicator import TypingIndicator
from hermes.gateway.completions import ChatCompletions
from hermes.gateway.fleet import Fleet
from hermes.gateway.gateway import Gateway
from hermes.gateway.model_health import ModelHealth
from hermes.gateway.model_plans import ModelPlanner
from hermes.ops.metrics import Metrics
from hermes.ops.store_gauges import StoreGauges
from hermes.ops.work_activity import WorkActivity
from hermes.ports.channels import PlatformClient
from hermes.ports.credits import GlobalSpend
from hermes.ports.inbox import Claim, UnreadableMessage
from hermes.ports.processes import ProcessRole
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.router.chores import ChoreScheduler
from hermes.router.feedback import Feedback
from hermes.router.intake import InboundRouter, Intake, JoinWindow
from hermes.router.turns import TurnLimits, TurnRunner
from hermes.soul.my_data import ConversationEraser, MyDataStores
from hermes.stores.postgres.database import Database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.job_queue import PostgresJobQueue, TurnClaims, WorkerOptions, open_job_queue
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.operators import PostgresAuditLog
from hermes.stores.postgres.shared_commits import SharingTransactions, open_sharing
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

HOUSEKEEPING_INTERVAL_S = 60.0
PROCESS_TTL_S, PROCESS_EVENT_TTL_S = 86_400.0, 30 * 86_400.0
"""How long the row of a process that is gone is kept, and how long the events of processes are."""


@dataclass(frozen=True, slots=True)
class Hermes:
    """All services of Hermes, connected and ready."""

    process_id: UUID
    """This process, as turns, chores and events name it. New at each start, so that a row never speaks of a process that is gone."""
    settings: Settings
    adapters: Adapters
    database: Database
    redis: Redis
    keyring: Keyring
    work: PostgresJobQueue
    metrics: Metrics
    intake: Intake
    turns: TurnRunner
    outbox_delivery: OutboxDelivery
    user_memory: UserMemory
    background_jobs: BackgroundJobs
    fleet: Fleet
    planner: ModelPlanner
    gateway: Gateway
    completions: ChatCompletions
    model_health: ModelHealth
    account_channels: AccountChannels
    post: PlatformClient
    inbound: InboundRouter
    receipts: ReceiptHandler
    packs: OpenPacks
    activity: WorkActivity
    """What this process does, if it is a worker."""
    replays: ReplayConsole
    """What another model would have said: dry runs, and the worker that runs those that wait."""

    @property
    def process(self) -> ProcessReporter:
        """Keeps the row of this process, and reports the others."""
        work = self.settings.work
        return ProcessReporter(
            process_id=self.process_id,
            transactions=self.database,
            processes=self.adapters.processes,
            work=self.work,
            alerts=self.adapters.alerts,
            activity=self.activity,
            slots=self.gateway.slots,
            heartbeat_s=work.heartbeat_s,
            stalled_after_s=work.stalled_after_s,
            find_vault_folder=partial(vault_mark, self.settings),
        )

    @property
    def spend(self) -> GlobalSpend:
        """The money that all users together spend, and the kill switch."""
        return self.adapters.spend

    @property
    def my_data(self) -> MyDataStores:
        """The stores from which users see and erase their data."""
        adapters = self.adapters
        return MyDataStores(
            transactions=self.database,
            people=adapters.people,
            credits=adapters.credits,
            memories=adapters.memories,
            dreams=adapters.dreams,
            souls=self.user_memory.souls,
            eraser=ConversationEraser(adapters.sessions, adapters.graphs, adapters.histories),
            audit=PostgresAuditLog(),
        )

    async def run_worker(self) -> None:
        """Work on turns and deliveries until cancelled, then finish those that have begun."""
        async with self.process.beating(ProcessRole.WORKER), self.adapters.turn_news.publishing():
            await self.prepare()
            stop_if_cancelled()
            await self._work()

    async def _work(self) -> None:
        work = self.settings.work
        options = WorkerOptions(
            concurrency=work.concurrency,
            poll_s=work.poll_s,
            heartbeat_s=work.heartbeat_s,
            stalled_after_s=work.stalled_after_s,
            sweep_s=work.sweep_s,
            drain_s=work.drain_s,
        )
        scheduler = self.chore_scheduler()
        # The pollers have a client of their own: each holds a connection while it waits for updates, and answers need theirs.
        async with open_platform_client(connections_per_host=0) as post:
            polling = asyncio.create_task(TelegramPollers(self.account_channels, post, self.inbound).run(), name="polling")
            try:
                await self.work.run(self, options, Housekeeping(self, scheduler).sweep, claims=self._turn_claims())
            finally:
                await end_tasks(polling)
                await scheduler.aclose()

    def _turn_claims(self) -> TurnClaims | None:
        inbox = self.adapters.inbox
        if not isinstance(inbox, PostgresInbox) or not inbox.starts_turns:
            return None
        services = self.turns.services
        return TurnClaims(inbox, services.process_id, services.per_minute, self.turn, services.transactions)

    def chore_scheduler(self) -> ChoreScheduler:
        """Return what does the chores in this process."""
        return ChoreScheduler(self.database, self.adapters.rota, self.background_jobs.chores, holder=self.process_id)

    async def prepare(self) -> None:
        """Load what the first message would have to wait for, and in development the sample data of the packs."""
        if wants_samples(self.settings):
            await self.packs.load_samples()
        await preload(self.adapters)

    async def turn(self, turn_id: UUID, claim: Claim | UnreadableMessage | None = None) -> bool:
        """Answer the message of a turn, which is claimed already or now. Returns whether its job has ended with it."""
        with self.activity.turn(), self.adapters.turn_news.telling(turn_id):
            return await self.turns.run(turn_id, claim)

    async def delivery(self, conversation_id: UUID) -> None:
        """Send the outbox messages of a conversation that are due."""
        with self.activity.job():
            await self.outbox_delivery.deliver(conversation_id)

    async def proactive(self, conversation_id: UUID) -> None:
        """Write the proactive messages of a conversation into its history."""
        with self.activity.job():
            await self.background_jobs.proactive.record(conversation_id)

    async def memory(self, turn_id: UUID) -> None:
        """Learn from the message of a turn."""
        with self.activity.job():
            await self.background_jobs.learn_job.remember(turn_id)

    async def ping_redis(self) -> None:
        """Check that Redis answers; raise its error if not."""
        await self.redis.ping()


class Housekeeping:
    """What a worker repeats: it queues outbox messages again whose sender died, starts the chores that are due and the replays that wait,
    voids credit reserves and drops idempotency keys that have expired, forgets processes that are long gone, tidies receipts, and writes
    down what was erased."""

    def __init__(self, hermes: Hermes, scheduler: ChoreScheduler | None = None) -> None:
        self._hermes, self._scheduler = hermes, scheduler
        self._next = 0.0

    async def sweep(self) -> None:
        hermes, adapters, settings = self._hermes, self._hermes.adapters, self._hermes.settings
        async with hermes.database.begin() as tx:
            for conversation_id in await adapters.outbox.stranded_conversations(tx, settings.work.stalled_after_s):
                await hermes.work.defer_delivery(tx, conversation_id)
        if self._scheduler is not None:
            await self._scheduler.tick(SystemClock().now())
            await hermes.replays.worker.sweep()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + HOUSEKEEPING_INTERVAL_S
        async with hermes.database.begin() as tx:
            await adapters.credits.expire(tx, settings.credits.reserve_ttl_s)
            await adapters.idempotency_keys.clean(tx)
            await adapters.processes.prune(tx, rows_older_than_s=PROCESS_TTL_S, events_older_than_s=PROCESS_EVENT_TTL_S)
        await hermes.receipts.tidy()
        await update_ledger(hermes.database, home_of(settings))


def no_adjustment(adapters: Adapters) -> Adapters:
    return adapters


OpenTracer = Callable[[UUID], AbstractAsyncContextManager[Tracer]]
"""Opens the traces of a process, by its id."""


@asynccontextmanager
async def open_no_tracer(_: UUID) -> AsyncIterator[Tracer]:
    """Trace nothing."""
    yield NO_TRACER


@asynccontextmanager
async def open_hermes(
    settings: Settings,
    *,
    adjust: Callable[[Adapters], Adapters] = no_adjustment,
    open_tools: OpenTools = refuse_mcp_servers,
    open_tracer: OpenTracer = open_no_tracer,
) -> AsyncIterator[Hermes]:
    """Connect Hermes to its stores and services, and close them at the end of the block.

    `open_tools` opens the MCP servers of the settings: `open_mcp_tools` of app/mcp_tools.py, or `open_no_tools` for a Hermes that answers
    no message. Without it, settings that name MCP servers are refused.

    `open_tracer` opens traces: `open_traces` of ops/trace_export.py. Without it nothing is traced, whatever the settings say.

    Starts the embedded stores if the settings have no addresses, and brings the schema up to date. Raises StartRefused,
    or StoreUnavailable when PostgreSQL cannot be reached. Hermes starts without Redis too, and is slower then."""
    async with AsyncExitStack() as stack:
        pool = settings.database
        addresses, database, keyring = await stack.enter_async_context(
            open_database_and_keys(settings, pool_min=pool.pool_min, pool_max=pool.pool_max)
        )
        work = await stack.enter_async_context(open_job_queue(database))
        client = redis_client(addresses.redis_url, settings)
        stack.push_async_callback(client.aclose)
        metrics = Metrics()
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        adapters = adjust(await stack.enter_async_context(open_adapters(settings, database, keyring, client, metrics=metrics, http=http)))
        process_id = uuid4()
        tracer = await stack.enter_async_context(open_tracer(process_id))
        models = await stack.enter_async_context(open_models(settings, model_adapters(adapters), database, metrics, http, tracer=tracer))
        account_channels = AccountChannels(adapters.channel_accounts, database)
        await stack.enter_async_context(follow_accounts(account_channels))
        shown, spent_today = models.catalogue.addresses, models.gateway.spent_today
        metrics.store = StoreGauges(figure_readers(settings, database, client, account_channels, models=shown, spent_today=spent_today))
        post = await stack.enter_async_context(open_platform_client(connections_per_host=settings.delivery.connections_per_host))
        files = AccountFiles(
            channels=account_channels,
            files=post,
            web=adapters.web,
            max_bytes=settings.images.max_bytes,
            timeout_s=settings.images.timeout_s,
        )
        resources = OpenResources(
            process_id=process_id,
            tracer=tracer,
            database=database,
            sharing=await stack.enter_async_context(open_sharing(database)),
            redis=client,
            keyring=keyring,
            work=work,
            metrics=metrics,
            account_channels=account_channels,
            post=post,
        )
        mcp_tools = await stack.enter_async_context(open_tools(settings, pin_keeper_from(database, adapters.alerts)))
        answer_services = answer_services_from(
            settings, adapters, transactions=database, keyring=keyring, metrics=metrics, web=files, mcp_tools=mcp_tools, tracer=tracer
        )
        hermes = assemble_hermes(settings, adapters, resources, models, answer_services)
        stack.push_async_callback(hermes.replays.worker.aclose)
        yield hermes


def model_adapters(adapters: Adapters) -> ModelAdapters:
    return ModelAdapters(**{field.name: getattr(adapters, field.name) for field in fields(ModelAdapters)})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenResources:
    """The connections and helpers that stay open as long as Hermes does."""

    process_id: UUID
    tracer: Tracer
    database: Database
    sharing: SharingTransactions
    """Where the steps of a turn write."""
    redis: Redis
    keyring: Keyring
    work: PostgresJobQueue
    metrics: Metrics
    account_channels: AccountChannels
    post: PlatformClient


def assemble_hermes(
    settings: Settings, adapters: Adapters, resources: OpenResources, models: ModelServices, answer_services: AnswerServices
) -> Hermes:
    join_window = JoinWindow(album_s=settings.inbox.album_s, burst_s=settings.inbox.burst_s)
    intake = Intake(
        transactions=resources.database,
        people=adapters.people,
        credits=adapters.credits,
        inbox=adapters.inbox,
        idempotency_keys=adapters.idempotency_keys,
        signup_grant=settings.credits.signup_grant,
        join_window=join_window,
        tracer=resources.tracer,
    )
    channel_sender = channel_sender_from(settings.delivery, adapters, resources.account_channels, resources.post, resources.metrics)
    settlement = SettlementWriter(adapters.credits, adapters.journal, adapters.alerts)
    outbox_delivery = OutboxDelivery(resources.database, adapters.outbox, channel_sender.send, settlement, resources.tracer)
    feedback = Feedback(transactions=resources.database, tracking=adapters.outbox.tracking, graphs=adapters.graphs)
    receipts = receipts_from(adapters, resources.database, settlement, resources.metrics)
    services = services_from(
        settings,
        adapters,
        transactions=resources.database,
        work=resources.work,
        channels=resources.account_channels,
        deliver=outbox_delivery.deliver,
        fleet=models.fleet,
        models=adapters.models or models.gateway,
        answer_services=answer_services,
        typing=TypingIndicator(channels=resources.account_channels, post=resources.post),
        metrics=resources.metrics,
        process_id=resources.process_id,
        tracer=resources.tracer,
        reads=lambda tier: settings.memory.asks_models and can_read(models.catalogue, tier),
        compaction=compaction_policy_from(settings.history, models.catalogue),
    )
    turns = TurnRunner(
        replace(services, transactions=resources.sharing),
        TurnLimits(max_attempts=settings.inbox.max_attempts, max_age_s=settings.inbox.max_age_s),
        join_window,
    )
    return Hermes(
        resources.process_id,
        settings,
        adapters,
        resources.database,
        resources.redis,
        resources.keyring,
        resources.work,
        resources.metrics,
        intake,
        turns,
        outbox_delivery,
        answer_services.user_memory,
        background_jobs_from(
            settings,
            adapters,
            services,
            models,
            packs=answer_services.packs,
            user_memory=answer_services.user_memory,
            work=resources.work,
        ),
        fleet=models.fleet,
        planner=models.planner,
        gateway=models.gateway,
        completions=models.completions,
        model_health=models.health,
        account_channels=resources.account_channels,
        post=resources.post,
        inbound=InboundRouter(intake, receipts.apply, feedback, resources.metrics),
        receipts=receipts,
        packs=answer_services.packs,
        activity=WorkActivity(
            concurrency=settings.work.concurrency,
            silent_after_s=settings.work.silent_after_s,
            # The deadlines of a turn: three of its steps may wait for a model, the other seven may not.
            max_turn_s=2 * services.model_s + services.tools_s + 7 * services.step_s,
        ),
        replays=replays_from(
            settings,
            adapters,
            database=resources.database,
            keyring=resources.keyring,
            gateway=models.gateway,
            toolbox=answer_services.tools,
        ),
    )
