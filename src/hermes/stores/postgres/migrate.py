"""Bring a database to this version's schema: the migrations of the job queue, of Hermes and of its packs, forward only, under one lock.

Any number of processes may start at once: the first one migrates, the others wait and find nothing to do. A migration and its row in
schema_migrations are one transaction, so a crash leaves the database at the last complete migration. A pack's migration is recorded as
`pack/name`. The tables of a pack that was switched off stay, and its migrations wait until it is on again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

import psycopg
from procrastinate.schema import SchemaManager

from hermes.event_log import get_logger
from hermes.ports.errors import PortError
from hermes.stores.postgres.database import Connection, translate_errors

log = get_logger(__name__)

LOCK_ID = 0x6865726D6573  # "hermes"
MIN_SERVER_VERSION = 150_000
MAX_MIGRATION_TRIES = 20
"""Of one migration beside running turns. Each takes a second until PostgreSQL notices the deadlock."""

CREATE_MIGRATIONS_TABLE = """
create table if not exists schema_migrations (
    name       text primary key,
    digest     text not null,
    applied_at timestamptz not null default now()
)"""


class SchemaRefused(PortError):
    """This database cannot be used by this version of Hermes."""


class Migration(NamedTuple):
    """One step of the schema. The database stores its digest, so that Hermes notices a file that was changed after it ran."""

    name: str
    sql: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


class MigrationFolder(NamedTuple):
    """The migrations of a pack."""

    pack: str
    folder: Traversable


SPLIT_MIGRATION = "0010_concierge"
SPLIT_DIGEST = "3e4262c8fc87b979b8f56708557e9bd27b259584849aad8e83f54e2b0b200468"
SPLIT_PARTS = ("0010_tools", "concierge/0001_tables")
"""Before the concierge was a pack, one migration made the tables of the tools and of the concierge. A database that ran it has both."""


async def migrate(url: str, packs: Sequence[MigrationFolder] = (), *, connect_timeout_s: float = 5.0) -> list[str]:
    """Run the migrations that have not run yet; return their names. Raises SchemaRefused, or StoreUnavailable if the server cannot be
    reached."""
    limit_s = max(1, round(connect_timeout_s))
    with translate_errors(), translate_permission_errors():
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, application_name="hermes migrate", connect_timeout=limit_s
        ) as connection:
            await check_server(connection)
            # The second call waits as long as the first process needs. PostgreSQL releases the lock with the connection, however that ends.
            got = await (await connection.execute("select pg_try_advisory_lock(%s)", [LOCK_ID])).fetchone()
            if got != (True,):
                log.info("waiting_for_migrations")
                await connection.execute("select pg_advisory_lock(%s)", [LOCK_ID])
            await connection.execute(CREATE_MIGRATIONS_TABLE)
            # The queue's migrations first: ours add an index to its table.
            return [*await run_queue_migrations(connection), *await run_own_migrations(connection, packs)]


@contextmanager
def translate_permission_errors() -> Iterator[None]:
    """Tell the operator which rights the role lacks."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        reason = str(error).splitlines()[0]
        raise SchemaRefused(f"{reason}; let this role create tables (grant create on schema public) and the extension vector") from error


async def pending_migrations(connection: Connection, packs: Sequence[MigrationFolder] = ()) -> list[str]:
    """The names of the migrations of Hermes and its packs that have not run, for reports. Raises SchemaRefused as `migrate` does."""
    found = await (await connection.execute("select to_regclass('schema_migrations')")).fetchone()
    done = await applied_digests(connection) if found and found[0] else {}
    return [migration.name for migration in migrations_to_run(own_migrations(packs), done)]


async def check_server(connection: Connection) -> None:
    if connection.info.server_version < MIN_SERVER_VERSION:
        raise SchemaRefused(f"PostgreSQL {connection.info.server_version // 10_000} is too old; Hermes needs 15 or newer")
    found = await (await connection.execute("select 1 from pg_available_extensions where name = 'vector'")).fetchone()
    if found is None:
        raise SchemaRefused("this PostgreSQL has no pgvector; install it on the server (https://github.com/pgvector/pgvector)")


async def packs_in_database(connection: Connection) -> list[str]:
    """The names of the packs that have tables in this database."""
    names = sorted(await applied_digests(connection))
    return list(dict.fromkeys(pack for pack, slash, _ in (name.partition("/") for name in names) if slash and pack != "queue"))


async def existing_tables(connection: Connection, names: Sequence[str]) -> set[str]:
    """Return those of the names that are tables of this database."""
    query = "select name from unnest(%s::text[]) name where to_regclass(quote_ident(name)) is not null"
    return {name for (name,) in await (await connection.execute(query, [list(names)])).fetchall()}


async def run_own_migrations(connection: Connection, packs: Sequence[MigrationFolder]) -> list[str]:
    todo = migrations_to_run(own_migrations(packs), await applied_digests(connection))
    for migration in todo:
        await run_migration(connection, migration)
    return [migration.name for migration in todo]


async def run_queue_migrations(connection: Connection) -> list[str]:
    """Run the job queue's own schema: the whole schema the first time, single migrations afterwards."""
    steps, done = queue_migrations(), await applied_digests(connection)
    if not any(step.name in done for step in steps):
        async with connection.transaction():
            await connection.execute(SchemaManager.get_schema().encode())
            for step in steps:
                await record_migration(connection, step)
        return ["queue/schema"]
    todo = [step for step in steps if step.name not in done]
    for step in todo:
        await run_migration(connection, step)
    return [step.name for step in todo]


async def run_migration(connection: Connection, migration: Migration) -> None:
    """Run a migration in one transaction.

    Turns go on meanwhile, and lock the same tables in another order. In a deadlock PostgreSQL ends one of both: its worker drives the turn
    again, or the migration is tried again here. Raises DeadlockDetected if it never gets through."""
    for tries_left in reversed(range(MAX_MIGRATION_TRIES)):
        try:
            async with connection.transaction():
                await connection.execute(migration.sql.encode())
                await record_migration(connection, migration)
        except psycopg.errors.DeadlockDetected:
            log.warning("migration_met_a_deadlock", migration=migration.name, tries_left=tries_left)
            if not tries_left:
                raise
        else:
            return


async def record_migration(connection: Connection, migration: Migration) -> None:
    await connection.execute("insert into schema_migrations (name, digest) values (%s, %s)", [migration.name, migration.digest])


async def applied_digests(connection: Connection) -> dict[str, str]:
    done: dict[str, str] = dict(await (await connection.execute("select name, digest from schema_migrations")).fetchall())
    if done.get(SPLIT_MIGRATION) == SPLIT_DIGEST:
        del done[SPLIT_MIGRATION]
        done |= dict.fromkeys(SPLIT_PARTS, SPLIT_DIGEST)
    return done


def migrations_to_run(known: Sequence[Migration], done: dict[str, str]) -> list[Migration]:
    """The migrations that have not run, in order. Raises SchemaRefused if the database ran a migration that this version does not have,
    or has with another text."""
    names = {migration.name for migration in known}
    packs = {pack for pack, slash, _ in (name.partition("/") for name in names) if slash}
    newer = sorted(name for name in done if name not in names and ("/" not in name or name.partition("/")[0] in packs))
    if newer:
        raise SchemaRefused(f"the database was made by a newer Hermes ({newer[-1]}); upgrade this Hermes")
    changed = [migration.name for migration in known if done.get(migration.name) not in (None, migration.digest, SPLIT_DIGEST)]
    if changed:
        raise SchemaRefused(f"the migration {changed[0]} is not the one that ran in this database; use the version of Hermes that made it")
    return [migration for migration in known if migration.name not in done]


def own_migrations(packs: Sequence[MigrationFolder] = ()) -> list[Migration]:
    """The migrations of Hermes itself, then those of each pack."""
    own = read_migrations(resources.files(__package__) / "migrations")
    return [*own, *(migration for pack in packs for migration in read_migrations(pack.folder, f"{pack.pack}/"))]


def queue_migrations() -> list[Migration]:
    return read_migrations(resources.files("procrastinate.sql") / "migrations", "queue/")


def read_migrations(folder: Traversable, prefix: str = "") -> list[Migration]:
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return [Migration(f"{prefix}{file.name.removesuffix('.sql')}", file.read_text(encoding="utf-8")) for file in files]
