"""The composition root: turns settings into a running Hermes.

async with open_hermes(settings) as hermes:
    await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
    await hermes.run_worker()
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from uuid import UUID

import psycopg
import structlog
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hermes.app.adapters import Adapters, adapters_from
from hermes.app.background import BackgroundJobs, background_jobs_from
from hermes.app.channels import SEND_PLATFORMS, AccountChannels, TelegramPollers, channel_sender_from, follow_accounts, receipts_from
from hermes.app.compaction_policy import compaction_policy_from
from hermes.app.gateway import ModelAdapters, ModelServices, SystemClock, open_models
from hermes.app.home import StartRefused, home_of, master_keys
from hermes.app.packs import OpenPacks, migration_folders, packs_from, read_user_tables, wants_samples
from hermes.app.router import AnswerServices, UserMemory, open_answer_services, preload, services_from
from hermes.backends import HttpClient
from hermes.backends.image_fetch import PublicImageFetcher
from hermes.channels.http_client import open_platform_client
from hermes.channels.media import AccountFiles
from hermes.config import Settings
from hermes.delivery.receipts import ReceiptHandler
from hermes.delivery.typing_indicator import TypingIndicator
from hermes.gateway.client_chats import ChatCompletions
from hermes.gateway.fleet import Fleet
from hermes.gateway.gateway import Gateway
from hermes.ops.alerts import LogAlerts
from hermes.ops.metrics import Metrics
from hermes.ports.channels import PlatformClient
from hermes.ports.credits import GlobalSpend
from hermes.router.chores import ChoreScheduler
from hermes.router.feedback import Feedback
from hermes.router.inbound import InboundRouter
from hermes.router.intake import Intake
from hermes.router.join_messages import JoinWindow
from hermes.router.outbox_delivery import OutboxDelivery
from hermes.router.turns import TurnLimits, TurnRunner
from hermes.soul.erasure import ConversationEraser
from hermes.soul.my_data import MyDataStores
from hermes.stores import embedded
from hermes.stores.postgres.database import Database, open_database
from hermes.stores.postgres.job_queue import PostgresJobQueue, WorkerOptions, open_job_queue
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import SchemaRefused, migrate
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.redis.answer_signals import RedisAnswerSignals
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.script_batch import ScriptBatch
from hermes.stores.seal import MasterKeyInvalid, MasterKeys
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

HOUSEKEEPING_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Hermes:
    """All services of Hermes, connected and ready."""

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
    gateway: Gateway
    completions: ChatCompletions
    account_channels: AccountChannels
    post: PlatformClient
    inbound: InboundRouter
    receipts: ReceiptHandler
    packs: OpenPacks

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
        )

    async def run_worker(self) -> None:
        """Work on turns and deliveries until cancelled, then finish those that have begun."""
        await self.prepare()
        stop_if_cancelled()
        work = self.settings.work
        options = WorkerOptions(
            concurrency=work.concurrency,
            poll_s=work.poll_s,
            heartbeat_s=work.heartbeat_s,
            stalled_after_s=work.stalled_after_s,
            sweep_s=work.sweep_s,
            drain_s=work.drain_s,
        )
        scheduler = ChoreScheduler(self.database, self.adapters.rota, self.background_jobs.chores)
        # The pollers have a client of their own: each holds a connection while it waits for updates, and answers need theirs.
        async with open_platform_client(connections_per_host=0) as post:
            polling = asyncio.create_task(TelegramPollers(self.account_channels, post, self.inbound).run(), name="polling")
            try:
                await self.work.run(self, options, Housekeeping(self, scheduler).sweep)
            finally:
                await end_tasks(polling)
                await scheduler.aclose()

    async def prepare(self) -> None:
        """Load what the first message would have to wait for, and in development the sample data of the packs."""
        if wants_samples(self.settings):
            await self.packs.load_samples()
        await preload(self.adapters)

    async def turn(self, turn_id: UUID) -> None:
        """Answer the message of a turn."""
        await self.turns.run(turn_id)

    async def delivery(self, conversation_id: UUID) -> None:
        """Send the outbox messages of a conversation that are due."""
        await self.outbox_delivery.deliver(conversation_id)

    async def proactive(self, conversation_id: UUID) -> None:
        """Write the proactive messages of a conversation into its history."""
        await self.background_jobs.proactive.record(conversation_id)

    async def memory(self, turn_id: UUID) -> None:
        """Learn from the message of a turn."""
        await self.background_jobs.learn_job.remember(turn_id)

    async def queue_lengths(self) -> dict[str, int]:
        """How many messages, sends and jobs wait in each queue."""
        async with self.database.begin() as tx:
            sends = await self.adapters.outbox.lengths(tx)
            return {
                "inbox": await self.adapters.inbox.waiting(tx),
                "outbox": await self.adapters.outbox.waiting(tx),
                "failed_sends": sends.failed_sends,
                "dead_letters": sends.dead_letters,
                **await self.work.waiting(tx),
            }

    async def ping_redis(self) -> None:
        """Check that Redis answers; raise its error if not."""
        await self.redis.ping()


class Housekeeping:
    """What a worker repeats: it queues outbox messages again whose sender died, starts the chores that are due, voids credit reserves and
    drops idempotency keys that have expired, and tidies receipts."""

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
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + HOUSEKEEPING_INTERVAL_S
        async with hermes.database.begin() as tx:
            await adapters.credits.expire(tx, settings.credits.reserve_ttl_s)
            await adapters.idempotency_keys.clean(tx)
        await hermes.receipts.tidy()


def no_adjustment(adapters: Adapters) -> Adapters:
    return adapters


@asynccontextmanager
async def open_hermes(settings: Settings, *, adjust: Callable[[Adapters], Adapters] = no_adjustment) -> AsyncIterator[Hermes]:
    """Connect Hermes to its stores and services, and close them at the end of the block.

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
        replies = RedisAnswerSignals(client)
        metrics = Metrics(lambda: hermes.queue_lengths())  # noqa: PLW0108  # `hermes` is bound further down
        stack.push_async_callback(replies.aclose)
        alerts = LogAlerts(metrics)
        batch = ScriptBatch(client)
        budgets = RedisBudgets(client, database, PostgresModelCalls(), alerts=alerts, clock=SystemClock(), batch=batch)
        stack.push_async_callback(budgets.aclose)
        http = HttpClient()
        stack.push_async_callback(http.aclose)
        web = PublicImageFetcher(max_bytes=settings.images.max_bytes, timeout_s=settings.images.timeout_s)
        stack.push_async_callback(web.aclose)
        adapters = adjust(
            adapters_from(
                settings,
                database,
                keyring,
                client,
                http=http,
                web=web,
                replies=replies,
                alerts=alerts,
                budgets=budgets,
                batch=batch,
                user_tables=await read_user_tables(settings, database),
            )
        )
        models = await stack.enter_async_context(open_models(settings, model_adapters(adapters), database, metrics, http))
        account_channels = AccountChannels(adapters.channel_accounts, database)
        await stack.enter_async_context(follow_accounts(account_channels))
        post = await stack.enter_async_context(open_platform_client(connections_per_host=settings.delivery.connections_per_host))
        files = AccountFiles(
            channels=account_channels,
            files=post,
            web=adapters.web,
            max_bytes=settings.images.max_bytes,
            timeout_s=settings.images.timeout_s,
        )
        resources = OpenResources(
            database=database, redis=client, keyring=keyring, work=work, metrics=metrics, account_channels=account_channels, post=post
        )
        answer_services = await stack.enter_async_context(
            open_answer_services(settings, adapters, database, keyring=keyring, metrics=metrics, web=files)
        )
        hermes = assemble_hermes(settings, adapters, resources, models, answer_services)
        yield hermes


@asynccontextmanager
async def open_database_and_keys(
    settings: Settings, *, pool_min: int, pool_max: int
) -> AsyncIterator[tuple[embedded.StoreUrls, Database, Keyring]]:
    """Yield the addresses of the stores, the database with its schema up to date, and the keyring of its data. Raises StartRefused."""
    home, limits = home_of(settings), settings.database
    try:
        keyring = Keyring(MasterKeys.parse(master_keys(settings, home)))
    except MasterKeyInvalid as error:
        raise StartRefused(str(error)) from None
    async with AsyncExitStack() as stack:
        addresses = await stack.enter_async_context(open_stores(settings, home))
        try:
            folders = migration_folders(packs_from(settings))
            await migrate(addresses.database_url, folders, connect_timeout_s=limits.connect_timeout_s)
        except SchemaRefused as error:
            raise StartRefused(str(error)) from error
        database = await stack.enter_async_context(
            open_database(
                addresses.database_url,
                pool_min=pool_min,
                pool_max=pool_max,
                connect_timeout_s=limits.connect_timeout_s,
                statement_timeout_s=limits.statement_timeout_s,
            )
        )
        await refuse_missing_master_keys(database, keyring)
        yield addresses, database, keyring


def model_adapters(adapters: Adapters) -> ModelAdapters:
    return ModelAdapters(**{field.name: getattr(adapters, field.name) for field in fields(ModelAdapters)})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenResources:
    """The connections and helpers that stay open as long as Hermes does."""

    database: Database
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
        work=resources.work,
        idempotency_keys=adapters.idempotency_keys,
        signup_grant=settings.credits.signup_grant,
        join_window=join_window,
    )
    channel_sender = channel_sender_from(settings.delivery, adapters, resources.account_channels, resources.post, resources.metrics)
    outbox_delivery = OutboxDelivery(
        resources.database, adapters.outbox, adapters.replies, senders=dict.fromkeys(SEND_PLATFORMS, channel_sender)
    )
    feedback = Feedback(transactions=resources.database, tracking=adapters.outbox.tracking, graphs=adapters.graphs)
    receipts = receipts_from(adapters, resources.database, resources.metrics)
    services = services_from(
        settings,
        adapters,
        transactions=resources.database,
        work=resources.work,
        outbox_delivery=outbox_delivery,
        fleet=models.fleet,
        models=adapters.models or models.gateway,
        answer_services=answer_services,
        typing=TypingIndicator(channels=resources.account_channels, post=resources.post),
        metrics=resources.metrics,
        compaction=compaction_policy_from(settings.history, models.catalogue),
    )
    turns = TurnRunner(services, TurnLimits(max_attempts=settings.inbox.max_attempts, max_age_s=settings.inbox.max_age_s), join_window)
    return Hermes(
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
        gateway=models.gateway,
        completions=models.completions,
        account_channels=resources.account_channels,
        post=resources.post,
        inbound=InboundRouter(intake, receipts, feedback, resources.metrics),
        receipts=receipts,
        packs=answer_services.packs,
    )


async def refuse_missing_master_keys(database: Database, keyring: Keyring) -> None:
    """Raise StartRefused if data is sealed under master keys that are not set: each message of those users would fail."""
    async with database.begin() as tx:
        missing = await keyring.missing_masters(tx)
    if missing:
        names = ", ".join(missing)
        raise StartRefused(f"data in this database is sealed under master keys that are not set ({names}); add them to HERMES_MASTER_KEYS")


@asynccontextmanager
async def open_stores(settings: Settings, home: Path) -> AsyncIterator[embedded.StoreUrls]:
    """Yield the addresses of both stores. A store without an address in the settings runs embedded, for as long as the block lasts. Raises
    StartRefused."""
    check_addresses(settings)
    if settings.database_url is not None and settings.redis_url is not None:
        yield embedded.StoreUrls(settings.database_url.reveal(), settings.redis_url.reveal())
        return
    lease = await start_embedded_stores(home)
    try:
        yield embedded.StoreUrls(
            settings.database_url.reveal() if settings.database_url else lease.stores.database_url,
            settings.redis_url.reveal() if settings.redis_url else lease.stores.redis_url,
        )
    finally:
        await asyncio.shield(asyncio.to_thread(lease.release))


async def start_embedded_stores(home: Path) -> embedded.ServerLease:
    """Start the embedded stores. A task that is cancelled meanwhile waits for the start and releases the lease: a lease that is never
    released keeps the stores running."""
    starting = asyncio.ensure_future(asyncio.to_thread(embedded.start, home))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with suppress(embedded.EmbeddedError):
            (await starting).release()
        raise
    except embedded.EmbeddedError as error:
        raise StartRefused(str(error)) from error


def check_addresses(settings: Settings) -> None:
    """Raise StartRefused for an invalid address. The error does not show the address, which may hold a password."""
    if settings.database_url is not None:
        try:
            psycopg.conninfo.conninfo_to_dict(settings.database_url.reveal())
        except psycopg.Error:
            raise StartRefused("HERMES_DATABASE_URL is no PostgreSQL address; expected postgresql://user@host/database") from None
    if settings.redis_url is not None:
        try:
            parse_url(settings.redis_url.reveal())
        except ValueError:
            expected = "redis://host:6379, rediss://host or unix:///path; signs like / in a password are written as %2F"
            raise StartRefused(f"HERMES_REDIS_URL is no Redis address; expected {expected}") from None


def redis_client(url: str, settings: Settings) -> Redis:
    """Return a client that fails quickly when Redis is away. It does not retry: its callers go on without Redis instead of waiting."""
    return Redis.from_url(
        url,
        socket_timeout=settings.redis.timeout_s,
        socket_connect_timeout=settings.redis.timeout_s,
        max_connections=settings.redis.pool_max,
        retry=Retry(NoBackoff(), 0),
    )
