"""The content of a Hermes database at one moment, and how it becomes another database: all of it, checked, in one transaction.

An image is read from a live database (`open_snapshot`) or from a backup (`backup_file.py`). The schema is not copied: the target runs the
migrations that the source had run, takes the rows, and then runs the migrations that are new. So a backup can be restored by any later
version of Hermes, and by no earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import psycopg
from psycopg import sql

from hermes.ports.errors import CopyRefused, PortError
from hermes.stores.postgres.database import Connection, translate_errors
from hermes.stores.postgres.migrate import (
    CREATE_MIGRATIONS_TABLE,
    LOCK_ID,
    Migration,
    MigrationFolder,
    applied_digests,
    check_server,
    migrations_to_run,
    own_migrations,
    run_migration,
    run_queue_migrations,
    translate_permission_errors,
)
from hermes.stores.postgres.table_copy import (
    SAME_TEXT,
    SQL,
    RowsDigest,
    SequenceState,
    TableShape,
    clear_tables,
    digest_rows,
    list_tables,
    read_rows,
    read_sequences,
    set_sequence,
    set_triggers,
    write_rows,
)
from hermes.stores.postgres.vault_keys import NeededKeys, find_needed_keys

Progress = Callable[[str, int], None]
"""Is told the name of a table when its work begins, and how many bytes of it were read so far."""


def report_nothing(_table: str, _bytes: int) -> None:
    """For a caller that shows no progress."""


class CopyDiffers(PortError):
    """What arrived is not what was sent; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What is known of an image before its rows are read."""

    source: str
    """Names the database that the image was taken of."""
    taken_at: datetime
    migrations: Mapping[str, str]
    """The migrations that the source had run, with their digests."""
    masters: Sequence[str]
    """The names of the master keys that its data keys are wrapped with. Not the keys."""
    vault: NeededKeys | None = None
    """Which keys of a vault its data keys are wrapped with. Not the keys; None: with none."""
    tables: Sequence[TableShape]


class DatabaseImage(Protocol):
    """The content of a database at one moment."""

    @property
    def facts(self) -> ImageFacts: ...

    def rows(self, table: TableShape) -> AsyncIterator[bytes]:
        """The rows of a table as COPY's text, in pieces. Raises CopyDiffers if they are not those that were stored."""
        ...

    async def sequences(self) -> Mapping[str, SequenceState]:
        """Where the sequences stand. Ask after all rows were read."""
        ...


# --- a live database as an image


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A live database as an image. Other clients go on reading and writing; only migrations wait."""

    facts: ImageFacts
    _connection: Connection = field(repr=False)

    def rows(self, table: TableShape) -> AsyncIterator[bytes]:
        return read_rows(self._connection, table)

    async def sequences(self) -> Mapping[str, SequenceState]:
        return await read_sequences(self._connection)


@asynccontextmanager
async def open_snapshot(url: str, *, connect_timeout_s: float = 5.0) -> AsyncIterator[Snapshot]:
    """Open an image of the database as it is now, in one read-only transaction. Raises CopyRefused if it is no database of Hermes, and
    StoreUnavailable."""
    async with connect_for_copy(url, "hermes copy", connect_timeout_s) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        async with connection.transaction():
            [(there,)] = await (await connection.execute("select to_regclass('schema_migrations') is not null")).fetchall()
            if not there:
                raise CopyRefused("this database has no tables of Hermes; there is nothing to copy")
            tables = await list_tables(connection)
            # Before the first read, so that no migration changes a table between two of them.
            names = sql.SQL(", ").join(sql.Identifier(table.name) for table in tables)
            await connection.execute(sql.SQL("lock table {} in access share mode").format(names))
            [(taken_at,)] = await (await connection.execute("select clock_timestamp()")).fetchall()
            [(source,)] = await (await connection.execute(SQL["identity"])).fetchall()
            masters = [name for (name,) in await (await connection.execute("select distinct master from data_keys order by 1")).fetchall()]
            facts = ImageFacts(
                source=source,
                taken_at=taken_at,
                migrations=await applied_digests(connection),
                masters=masters,
                tables=tables,
                vault=await find_needed_keys(connection),
            )
            yield Snapshot(facts, connection)


@asynccontextmanager
async def connect_for_copy(url: str, name: str, connect_timeout_s: float) -> AsyncIterator[Connection]:
    """Connect with settings under which equal values have equal text. Raises StoreUnavailable."""
    with translate_errors():
        async with await psycopg.AsyncConnection.connect(
            url, autocommit=True, application_name=name, connect_timeout=max(1, round(connect_timeout_s))
        ) as connection:
            await connection.execute(SAME_TEXT)
            yield connection


# --- an image into an empty database


@dataclass(slots=True)
class CopyReport:
    """What was copied: the rows of each table and their digests, and the tables of the image that are not Hermes' own."""

    tables: dict[str, RowsDigest] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(digest.rows for digest in self.tables.values())

    @property
    def digest(self) -> str:
        return digest_tables(self.tables)


def digest_tables(tables: Mapping[str, RowsDigest]) -> str:
    """One digest over the rows of all tables."""
    lines = [f"{name} {digest.rows} {digest.value}\n" for name, digest in sorted(tables.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@asynccontextmanager
async def open_empty_database(url: str, *, connect_timeout_s: float = 5.0) -> AsyncIterator[Connection]:
    """Open one transaction on an empty database; commit it when the block ends. No Hermes starts on the database meanwhile.

    Raises CopyRefused if the database has tables, SchemaRefused if the server is too old or has no pgvector, and StoreUnavailable."""
    with translate_permission_errors():
        async with connect_for_copy(url, "hermes copy", connect_timeout_s) as connection:
            await check_server(connection)
            async with connection.transaction():
                await connection.execute("select pg_advisory_xact_lock(%s)", [LOCK_ID])
                [(is_empty,)] = await (await connection.execute(SQL["is_empty"])).fetchall()
                if not is_empty:
                    raise CopyRefused("the target database is not empty; make a new one (createdb), and name that")
                yield connection


async def load_image(
    connection: Connection, image: DatabaseImage, packs: Sequence[MigrationFolder] = (), progress: Progress = report_nothing
) -> CopyReport:
    """Make the empty database of `connection` one with the content of the image and this version's schema. The caller's transaction holds
    all of it. Raises SchemaRefused if the image is of a newer Hermes, and CopyDiffers."""
    facts, report = image.facts, CopyReport()
    newer = missing_migrations(facts, packs)
    await run_first_migrations(connection, [migration for migration in own_migrations(packs) if migration not in newer])
    await make_months(connection, facts)
    tables = match_tables(await list_tables(connection), facts.tables, report)
    await set_triggers(connection, tables, are_on=False)
    await clear_tables(connection, tables)
    for table in tables:
        report.tables[table.name] = await write_rows(connection, table, watch_rows(image, table, progress))
    for name, state in (await image.sequences()).items():
        [(there,)] = await (await connection.execute("select to_regclass(quote_ident(%s)) is not null", [name])).fetchall()
        if there:
            await set_sequence(connection, name, state)
    await set_triggers(connection, tables, are_on=True)
    await check_rows(connection, tables, report, progress)
    for migration in newer:
        await run_migration(connection, migration)
    await connection.execute("analyze")  # the first queries would otherwise be planned for empty tables
    return report


def missing_migrations(facts: ImageFacts, packs: Sequence[MigrationFolder]) -> list[Migration]:
    """The migrations of this version that the source had not run. Raises SchemaRefused if the source is of a newer version."""
    return migrations_to_run(own_migrations(packs), dict(facts.migrations))


async def run_first_migrations(connection: Connection, migrations: Sequence[Migration]) -> None:
    await connection.execute(CREATE_MIGRATIONS_TABLE)
    await run_queue_migrations(connection)
    for migration in migrations:
        await run_migration(connection, migration)


async def make_months(connection: Connection, facts: ImageFacts) -> None:
    """Make the partitions that the rows of the image go into: one for each month since the source's first migration."""
    [(has_months,)] = await (await connection.execute(SQL["has_months"])).fetchall()
    if has_months and facts.source:
        await connection.execute(SQL["make_months"], {"source": facts.source, "taken_at": facts.taken_at})


def match_tables(present: Sequence[TableShape], wanted: Sequence[TableShape], report: CopyReport) -> list[TableShape]:
    """The tables to fill, in the order of the target's foreign keys, each with the columns that the image has.

    Notes in the report which tables of the image are not Hermes' own. Raises CopyDiffers if a column has no place."""
    by_name = {table.name: table for table in wanted}
    report.left_out += sorted(by_name.keys() - {table.name for table in present})
    for table in present:
        if table.name in by_name and (lost := sorted({*by_name[table.name].columns} - {*table.columns})):
            raise CopyDiffers(f"the column {lost[0].name} of {table.name} ({lost[0].type}) has no place in the schema; nothing was changed")
    return [by_name[table.name] for table in present if table.name in by_name]


async def watch_rows(image: DatabaseImage, table: TableShape, progress: Progress) -> AsyncIterator[bytes]:
    """The rows of a table; reports how many bytes were read."""
    done = 0
    progress(table.name, 0)
    async for chunk in image.rows(table):
        done += len(chunk)
        yield chunk
        progress(table.name, done)


async def check_rows(connection: Connection, tables: Sequence[TableShape], report: CopyReport, progress: Progress) -> None:
    """Read back what was written. Raises CopyDiffers if a table's rows are others than those that were sent."""
    for table in tables:
        progress(f"checking {table.name}", 0)
        found, sent = await digest_rows(connection, table), report.tables[table.name]
        if (found.rows, found.value) != (sent.rows, sent.value):
            raise CopyDiffers(f"{table.name} has {found.rows} rows in the target and {sent.rows} in the source, or other values")


async def digest_image(image: DatabaseImage, progress: Progress = report_nothing) -> dict[str, RowsDigest]:
    """Read an image only for its digests."""
    found: dict[str, RowsDigest] = {}
    for table in image.facts.tables:
        found[table.name] = digest = RowsDigest()
        async for chunk in watch_rows(image, table, progress):
            digest.update(chunk)
    return found
