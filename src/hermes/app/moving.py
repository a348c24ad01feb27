"""Move the embedded database to servers, and the embedded PostgreSQL to its next major version. Both copy all rows and compare them.

Hermes must be stopped: a message that came during the copy would be missing in it. The old data stays as it is."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict
from redis.exceptions import RedisError

from hermes.app.backups import delete_redis_keys, folder_for_copy, folders_for, masters_for, refuse_copy
from hermes.app.home import home_of
from hermes.app.master_keys import MASTER_KEY_FILE
from hermes.app.redis_client import redis_client
from hermes.app.vaults import vault_folder
from hermes.config import Settings
from hermes.ports.errors import CopyRefused, StoreUnavailable
from hermes.stores import embedded
from hermes.stores.key_vault import VaultFolder
from hermes.stores.postgres.database_image import (
    CopyDiffers,
    CopyReport,
    DatabaseImage,
    Progress,
    connect_for_copy,
    digest_image,
    digest_tables,
    load_image,
    open_empty_database,
    open_snapshot,
    report_nothing,
)
from hermes.stores.postgres.restored import is_copy_of, note_copy, release_work
from hermes.stores.postgres.vault_keys import move_to_vault


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that is complete."""

    report: CopyReport
    was_complete: bool
    """An earlier call had copied everything; this one only compared."""
    note: Path
    """The note in the old home. An operator who deletes it uses the old data again."""
    master_key: Path | None
    """The file of the master key, if it is not among the settings: every machine needs it."""
    has_vault: bool = False
    """The copy has a vault, in the folder of the settings."""


async def move_database(settings: Settings, target_url: str, redis_url: str, progress: Progress = report_nothing) -> Moved:
    """Copy the embedded database into an empty one on a server, compare all rows, and mark the old home as moved.

    The copy is one transaction: if it is cut off, the target is empty as before, and the call can be repeated. If only what comes after the
    copy was cut off, a repeated call finds the copy, compares it again and goes on. Raises CopyRefused, CopyDiffers, StartRefused and
    StoreUnavailable."""
    home = home_of(settings)
    if settings.database_url is not None:
        raise CopyRefused("the settings name a database server already; unset HERMES_DATABASE_URL to move the embedded database")
    where = name_server(target_url)
    await refuse_unreachable_redis(redis_url, settings)
    with refuse_copy(), embedded.hold_unused(home) as source:
        async with open_snapshot(source.url) as snapshot:
            target = CopyTarget(target_url, "moved", folder_for_copy(settings, target_url))
            try:
                report, was_complete = await copy_database(snapshot, target, settings, progress), False
            except CopyRefused:
                report, was_complete = await find_copy(snapshot, target_url, progress), True
        await delete_redis_keys(redis_url, settings)
        note = source.mark_moved(where)
    key_file = home / MASTER_KEY_FILE
    return Moved(
        report,
        was_complete,
        note,
        key_file if not settings.master_keys and key_file.exists() else None,
        has_vault=settings.vault is not None,
    )


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """Where a database is copied to, and why."""

    url: str
    kind: str
    vaults: VaultFolder | None
    """Where it gets a vault of its own; None: it gets none."""


async def copy_database(image: DatabaseImage, target: CopyTarget, settings: Settings, progress: Progress) -> CopyReport:
    """Copy an image of a stopped Hermes into an empty database, in which the work goes on."""
    masters = masters_for(settings, image.facts)
    async with open_empty_database(target.url, connect_timeout_s=settings.database.connect_timeout_s) as connection:
        report = await load_image(connection, image, folders_for(settings, image.facts), progress)
        await release_work(connection)
        await move_to_vault(connection, masters, vault_folder(settings), target.vaults)
        await note_copy(connection, target.kind, image.facts, report)
    return report


async def find_copy(image: DatabaseImage, target_url: str, progress: Progress) -> CopyReport:
    """Return the report of a copy of this image that is complete. Raises CopyRefused if the target is no copy of it."""
    report = CopyReport(tables=await digest_image(image, progress))
    async with connect_for_copy(target_url, "hermes move", 5.0) as connection:
        try:
            is_there = await is_copy_of(connection, image.facts.source, digest_tables(report.tables))
        except psycopg.errors.UndefinedTable:
            is_there = False
    if not is_there:
        raise CopyRefused("the target database is not empty, and is no copy of this one as it is now; make a new one (createdb)")
    return report


async def refuse_unreachable_redis(url: str, settings: Settings) -> None:
    """Raise CopyRefused for an address that is none, and StoreUnavailable if no Redis answers there."""
    try:
        client = redis_client(url, settings)
    except ValueError as error:
        raise CopyRefused("--redis is no Redis address; expected redis://host:6379, rediss://host or unix:///path") from error
    try:
        await client.ping()
    except (RedisError, OSError) as error:
        raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}; nothing was changed") from error
    finally:
        await client.aclose()


def name_server(url: str) -> str:
    """Host and database of an address, without user and password. Raises CopyRefused for an address that is none."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise CopyRefused("--to is no PostgreSQL address; expected postgresql://user@host/database") from None
    port = f":{parts['port']}" if "port" in parts else ""
    return f"{parts.get('host', 'localhost')}{port}/{parts.get('dbname', parts.get('user', ''))}"


def write_addresses(file: Path, target_url: str, redis_url: str) -> None:
    """Add both addresses to a settings file, at its beginning, where keys without a section stand. Raises CopyRefused if one is there."""
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    taken = {"database_url", "redis_url"} & tomllib.loads(text).keys()
    if taken:
        raise CopyRefused(f"{file} has {min(taken)} already; change it by hand")
    lines = [f"database_url = {json.dumps(target_url)}", f"redis_url = {json.dumps(redis_url)}", ""]
    draft = file.with_name(f"{file.name}.new")
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as handle:
        handle.write("\n".join(lines) + text)
        handle.flush()
        os.fsync(handle.fileno())
    draft.replace(file)


# --- the next major version


@dataclass(frozen=True, slots=True)
class Upgraded:
    """An upgrade that is complete."""

    before: int
    after: int
    report: CopyReport
    kept: Path


async def upgrade_database(settings: Settings, progress: Progress = report_nothing) -> Upgraded | None:
    """Copy the embedded database into one of the PostgreSQL that this Hermes brings; None if there is nothing to do.

    The old files are kept. A call that was cut off leaves the old database in its place. Raises CopyRefused, CopyDiffers, StartRefused and
    StoreUnavailable."""
    home = home_of(settings)
    major = embedded.data_major(home)
    if major == embedded.POSTGRES_MAJOR:
        return None
    if major is None:
        raise CopyRefused(f"there is no embedded database in {home}; a server's own tools upgrade a server")
    with refuse_copy(), embedded.rebuild_database(home, clears_valkey=False, needs_source=True) as rebuild:
        if rebuild.source_url is None:
            raise CopyDiffers(f"the database in {home} does not start")
        async with open_snapshot(rebuild.source_url) as snapshot:
            target = CopyTarget(rebuild.target_url, "upgraded", vault_folder(settings))
            report = await copy_database(snapshot, target, settings, progress)
            vault = snapshot.facts.vault
    if vault is not None:
        embedded.note_vault(rebuild.kept, vault.vault)
    return Upgraded(major, rebuild.target_major, report, rebuild.kept)


def list_kept(settings: Settings) -> list[Path]:
    """The folders of embedded databases that an upgrade or a restore replaced."""
    return embedded.kept_databases(home_of(settings))


def discard_old(settings: Settings) -> list[Path]:
    """Delete them, with their vaults; return which."""
    folder = vault_folder(settings)
    for vault in embedded.kept_vaults(home_of(settings)):
        folder.discard(vault)
    return embedded.discard_kept(home_of(settings))
