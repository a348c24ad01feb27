"""Open the stores of the settings: PostgreSQL and Redis, embedded or at an address, with the schema up to date and the keyring of the data.

async with open_session_source(settings) as source:  # for an export: needs neither models nor workers, and may run beside a Hermes
    for session_id in await source.find(SessionQuery(account="bali")):
        session = await source.read(session_id)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import psycopg

from hermes.app.home import check_database_address, home_of, open_database_address, start_embedded_stores
from hermes.app.master_keys import keyring_from, masters_from
from hermes.app.packs import migration_folders, packs_from
from hermes.app.redis_client import check_redis_address
from hermes.app.vaults import open_vault
from hermes.config import Settings
from hermes.graph import MessageGraph
from hermes.ports.errors import DataDamaged, StartRefused
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Graphs, SessionQuery, Sessions
from hermes.stores import embedded
from hermes.stores.postgres.database import Database, open_database, translate_errors
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import SchemaRefused, migrate, pending_migrations
from hermes.stores.postgres.sessions import PostgresSessions
from hermes.stores.seal import SealError
from hermes.trajectories.errors import SourceError
from hermes.trajectories.source import ExportSession, check_session


@asynccontextmanager
async def open_database_and_keys(
    settings: Settings, *, pool_min: int, pool_max: int
) -> AsyncIterator[tuple[embedded.StoreUrls, Database, Keyring]]:
    """Yield the addresses of the stores, the database with its schema up to date, and the keyring of its data. Raises StartRefused."""
    home, limits = home_of(settings), settings.database
    keyring = keyring_from(settings)
    async with AsyncExitStack() as stack:
        addresses = await stack.enter_async_context(open_stores(settings, home))
        await run_migrations(addresses.database_url, settings)
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
        await open_vault(settings, database, masters_from(settings))
        yield addresses, database, keyring


async def run_migrations(url: str, settings: Settings) -> list[str]:
    """Bring a database to this version's schema; return the migrations that ran. Raises StartRefused."""
    try:
        return await migrate(url, migration_folders(packs_from(settings)), connect_timeout_s=settings.database.connect_timeout_s)
    except SchemaRefused as error:
        raise StartRefused(str(error)) from error


async def migrate_database(settings: Settings) -> list[str]:
    """Bring the database of the settings to this version's schema; return the migrations that ran."""
    async with open_database_address(settings) as address:
        return await run_migrations(address, settings)


async def find_pending_migrations(settings: Settings) -> list[str]:
    """Return the migrations of this version that the database of the settings has not run."""
    limit_s = max(1, round(settings.database.connect_timeout_s))
    async with open_database_address(settings) as address:
        with translate_errors():
            async with await psycopg.AsyncConnection.connect(address, connect_timeout=limit_s, autocommit=True) as connection:
                try:
                    return await pending_migrations(connection, migration_folders(packs_from(settings)))
                except SchemaRefused as error:
                    raise StartRefused(str(error)) from error


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


def check_addresses(settings: Settings) -> None:
    """Raise StartRefused for an invalid address. The error does not show the address, which may hold a password."""
    check_database_address(settings)
    check_redis_address(settings)


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
