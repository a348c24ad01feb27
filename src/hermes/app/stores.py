"""Open the stores of the settings: Hermes' home on this machine, the master keys, PostgreSQL and Redis, embedded or at an address.

async with open_session_source(settings) as source:  # for an export: needs neither models nor workers, and may run beside a Hermes
    for session_id in await source.find(SessionQuery(account="bali")):
        session = await source.read(session_id)
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hermes.app.packs import migration_folders, packs_from
from hermes.config import Environment, Settings, platform_home
from hermes.graph import MessageGraph
from hermes.ports.errors import DataDamaged, StartRefused
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Graphs, SessionQuery, Sessions
from hermes.stores import embedded
from hermes.stores.embedded.home import home_at
from hermes.stores.postgres.database import Database, open_database
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import SchemaRefused, migrate
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.seal import MasterKeyInvalid, MasterKeys, SealError, new_master_key
from hermes.trajectories.errors import SourceError
from hermes.trajectories.source import ExportSession, check_session

MASTER_KEY_FILE = "master.key"


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


def running_database(settings: Settings) -> str | None:
    """Return the address of the database without starting it; None if it is embedded and does not run."""
    if settings.database_url is not None:
        return settings.database_url.reveal()
    home = home_of(settings)
    return None if embedded.status(home).postgres is None else home_at(home).addresses.database_url


# --- the home and its master key


def home_of(settings: Settings) -> Path:
    """Return the folder in which Hermes keeps its files on this machine."""
    return settings.home or platform_home(os.environ)


def master_keys(settings: Settings, home: Path) -> list[str]:
    """Return the master keys as texts. In development Hermes makes one in its home, readable for its owner only. Raises StartRefused in
    production without a key, and if the home cannot be written."""
    if settings.master_keys:
        return [key.reveal() for key in settings.master_keys]
    if settings.environment is not Environment.DEVELOPMENT:
        raise StartRefused("there is no master key: make one with `hermes keys new-master`, keep it safe, and set HERMES_MASTER_KEYS")
    file = home / MASTER_KEY_FILE
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            make_key_file(file)
        return [file.read_text(encoding="ascii")]
    except OSError as error:
        raise StartRefused(f"cannot keep a master key in {home} ({error.strerror}); choose another folder with HERMES_HOME") from error


def make_key_file(file: Path) -> None:
    """Write a new key, whole or not at all, and only if there is none: if several processes start together, the first key counts."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)  # readable for its owner only
    try:
        with os.fdopen(handle, "w", encoding="ascii") as draft:
            draft.write(new_master_key())
            draft.flush()
            os.fsync(draft.fileno())
        try:
            file.hardlink_to(name)
        except FileExistsError:
            return
    finally:
        Path(name).unlink()


# --- the sessions of a store, for an export


@asynccontextmanager
async def open_session_source(settings: Settings) -> AsyncIterator[SessionSource]:
    """Open the store of the settings for as long as the block lasts. Starts the embedded stores if they do not run.

    Brings the schema up to date. Raises StartRefused, or StoreUnavailable when PostgreSQL cannot be reached."""
    async with open_database_and_keys(settings, pool_min=1, pool_max=1) as (_, database, keyring):
        yield SessionSource(database, PostgresSessions(keyring), PostgresGraphs(keyring))


@dataclass(frozen=True, slots=True)
class SessionSource:
    """The sessions of a store. Every call is a transaction of its own, so that a long export holds no locks."""

    transactions: Transactions
    sessions: Sessions
    graphs: Graphs

    async def find(self, query: SessionQuery) -> Sequence[UUID]:
        """Return the ids of the sessions, the oldest first; raise NotFound for an unknown name or account."""
        async with self.transactions.begin() as tx:
            return await self.sessions.find(tx, query)

    async def read(self, session_id: UUID) -> ExportSession | SourceError:
        """Return one session as it is now. If its data is damaged, return (do not raise) a SourceError in its place.

        If one of its speakers does not allow training now, every response of the returned copy is annotated with `consent` false. Raises
        NotFound if there is no such session, and UserErased if the session's owner was deleted."""
        name = str(session_id)
        try:
            async with self.transactions.begin() as tx:
                # First, because it notices a deleted owner: the owner's key may still be cached in this process.
                may_train = await self.sessions.may_train(tx, session_id)
                graph = await self.graphs.load(tx, session_id)
            # Reads every message, so a sealed message that cannot be opened raises SealError here. A stored session counts 1 for progress.
            session = check_session(name, graph, f"session {name}", size=1)
        except (SealError, DataDamaged) as error:
            return SourceError(f"session {name}", str(error))
        if not may_train:
            forbid_training(graph)  # `session` holds this graph
        return session


def forbid_training(graph: MessageGraph) -> None:
    """Annotate every response of the graph with `consent` false."""
    for response in graph.responses():
        graph.annotate(response, consent=False)
