"""Back up the database of the settings, and restore a backup.

A restored database shows the moment of its backup. What was erased since is erased again, and what was on its way then is held back: it may
have been answered or sent since. Everything happens in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psycopg
import structlog
from redis.exceptions import RedisError

from hermes import __version__
from hermes.app.erasures import ledger_in, read_ledgers, repeat_erasures
from hermes.app.home import home_of
from hermes.app.master_keys import masters_from
from hermes.app.packs import migration_folders, packs_from
from hermes.app.redis_client import redis_client
from hermes.app.stores import open_stores
from hermes.app.vaults import vault_folder
from hermes.config import Settings
from hermes.packs import PackNotFound, find_pack
from hermes.ports.errors import CopyRefused, StartRefused, StoreUnavailable
from hermes.stores import embedded
from hermes.stores.erasure_ledger import Erasure
from hermes.stores.key_vault import CopiedVault, VaultFolder
from hermes.stores.postgres.backup_file import WrappedVault, open_backup, write_backup
from hermes.stores.postgres.database import NestedTransactions
from hermes.stores.postgres.database_image import (
    CopyReport,
    ImageFacts,
    Progress,
    connect_for_copy,
    load_image,
    missing_migrations,
    open_empty_database,
    open_snapshot,
    report_nothing,
)
from hermes.stores.postgres.erasures import list_erasures
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import MigrationFolder, SchemaRefused
from hermes.stores.postgres.restored import HeldBack, hold_back, note_copy, release_work
from hermes.stores.postgres.vault_keys import find_needed_keys, move_to_vault, read_needed_keys
from hermes.stores.seal import MasterKeys, VaultKeyMissing

log = structlog.get_logger()

REDIS_PATTERNS = ("hermes:*", "agnt:*", "soul:*")
"""The keys of Hermes in Redis. Hermes makes all of them again from the database."""
SCAN_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that was made."""

    file: Path
    facts: ImageFacts
    report: CopyReport


async def make_backup(settings: Settings, file: Path, progress: Progress = report_nothing) -> Backup:
    """Write the database of the settings, as it is at one moment, to a file. Hermes may run and work meanwhile.

    Raises CopyRefused, StartRefused, StoreUnavailable and OSError; then there is no new file."""
    async with (
        open_stores(settings, home_of(settings)) as addresses,
        open_snapshot(addresses.database_url, connect_timeout_s=settings.database.connect_timeout_s) as snapshot,
    ):
        vault = wrap_vault(settings, snapshot.facts)
        report = await write_backup(snapshot, file, version=__version__, vault=vault, progress=progress)
        return Backup(file, snapshot.facts, report)


def wrap_vault(settings: Settings, facts: ImageFacts) -> WrappedVault | None:
    """The keys of the vault that an image needs, as a backup holds them. Raises CopyRefused, and StartRefused without a master key."""
    if facts.vault is None:
        return None
    folder = vault_folder(settings)
    try:
        keys = read_needed_keys(facts.vault, folder)
    except VaultKeyMissing as error:
        raise CopyRefused(f"the backup would not open: {error}; is {folder.path} the folder of the vault? (HERMES_VAULT)") from error
    return WrappedVault.wrap(facts.vault.vault, keys, masters_from(settings))


# --- restore


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """Where a backup goes, and what else is known."""

    target_url: str | None = None
    """None: the database of the settings, or the embedded one."""
    redis_url: str | None = None
    """None: the Redis of the settings, or the embedded one."""
    replaces: bool = False
    """Put it in the place of the embedded database, which is kept beside it."""
    resumes: bool = False
    """Nothing happened since the backup: answer and send what was on its way."""
    ledgers: Sequence[Path] = ()
    """Further ledgers of erasures, beside the one in the home."""


@dataclass(slots=True)
class Restored:
    """What a restore did."""

    facts: ImageFacts
    report: CopyReport = field(default_factory=CopyReport)
    erased: list[Erasure] = field(default_factory=list)
    held: HeldBack = field(default_factory=HeldBack)
    kept: Path | None = None
    """The folder of the database that was replaced."""
    warnings: list[str] = field(default_factory=list)
    source_vault: UUID | None = None
    """The vault of the database that was replaced, and is kept."""


async def restore_backup(settings: Settings, file: Path, options: RestoreOptions, progress: Progress = report_nothing) -> Restored:
    """Restore a backup into an empty database. Checks the whole file first; then all of it is restored, or nothing.

    Raises CopyRefused, CopyDiffers, StartRefused, StoreUnavailable and OSError."""
    if options.replaces and (options.target_url or settings.database_url):
        raise CopyRefused("--replace is for the embedded database; for a server, make a new database and name it with --to")
    refuse_missing_ledgers(options.ledgers)
    ledger = ledger_in(home_of(settings))
    with refuse_copy(), open_backup(file) as backup:
        await backup.check(progress)
        folders, masters = folders_for(settings, backup.facts), masters_for(settings, backup.facts)
        vault = CopiedVault({} if backup.vault is None else backup.vault.open(masters))
        keyring = Keyring(masters, vaults=vault)
        missing_migrations(backup.facts, folders)  # refuses a newer backup before anything is started
        restored = Restored(backup.facts)
        erasures = read_ledgers([ledger.file, *options.ledgers])
        async with open_target(settings, options, erasures, restored) as (url, redis_url):
            async with open_empty_database(url, connect_timeout_s=settings.database.connect_timeout_s) as connection:
                restored.report = await load_image(connection, backup, folders, progress)
                await release_work(connection)
                if not options.resumes:
                    restored.held = await hold_back(connection, backup.facts)
                progress("repeating erasures", 0)
                restored.erased = await repeat_erasures(NestedTransactions(connection), settings, keyring, erasures)
                await move_to_vault(connection, masters, vault, folder_for_copy(settings, options.target_url))
                await note_copy(connection, "restored", backup.facts, restored.report)
            if redis_url is not None:
                await forget_redis(redis_url, settings, restored)
        note_kept_vault(restored)
    ledger.add(restored.erased)
    return restored


@asynccontextmanager
async def open_target(
    settings: Settings, options: RestoreOptions, erasures: list[Erasure], restored: Restored
) -> AsyncIterator[tuple[str, str | None]]:
    """Yield the address of the database to fill, and of the Redis whose caches belong to it. Adds the erasures that the database in use now
    knows."""
    home = home_of(settings)
    if options.replaces:
        with embedded.rebuild_database(home, clears_valkey=True, needs_source=False) as rebuild:
            if rebuild.source_url is not None:
                await add_live_erasures(rebuild.source_url, erasures, restored)
                restored.source_vault = await find_vault(rebuild.source_url)
            elif rebuild.source_major is not None:
                restored.warnings.append("the old database does not start: erasures that are not in the ledger are unknown")
            if rebuild.source_major is not None:
                restored.kept = rebuild.kept
            yield rebuild.target_url, settings.redis_url.reveal() if settings.redis_url else None
        return
    if options.target_url is not None:
        if settings.database_url is not None and settings.database_url.reveal() != options.target_url:
            await add_live_erasures(settings.database_url.reveal(), erasures, restored)
        elif settings.database_url is None and embedded.data_major(home) is not None:
            await add_embedded_erasures(settings, erasures, restored)
        yield options.target_url, options.redis_url or (settings.redis_url.reveal() if settings.redis_url else None)
        return
    async with open_stores(settings, home) as addresses:
        yield addresses.database_url, options.redis_url or addresses.redis_url


async def add_live_erasures(url: str, erasures: list[Erasure], restored: Restored) -> None:
    """Add the erasures of the database that is in use now, if it can be reached."""
    try:
        async with connect_for_copy(url, "hermes restore", 5.0) as connection, connection.transaction():
            erasures += await list_erasures(connection)
    except (StoreUnavailable, psycopg.Error) as error:
        restored.warnings.append(f"the database of the settings cannot be asked for erasures ({error}); those in the ledger are repeated")


async def add_embedded_erasures(settings: Settings, erasures: list[Erasure], restored: Restored) -> None:
    """Add the erasures of the embedded database, if it can be started."""
    try:
        async with open_stores(settings, home_of(settings)) as addresses:
            await add_live_erasures(addresses.database_url, erasures, restored)
    except StartRefused as error:
        restored.warnings.append(f"the embedded database cannot be asked for erasures ({error}); those in the ledger are repeated")


@contextmanager
def refuse_copy() -> Iterator[None]:
    """Raise CopyRefused in place of errors of the embedded stores and of schemas."""
    try:
        yield
    except (embedded.EmbeddedError, SchemaRefused) as error:
        raise CopyRefused(str(error)) from error


def refuse_missing_ledgers(files: Sequence[Path]) -> None:
    for file in files:
        if not file.exists():
            raise CopyRefused(f"there is no ledger of erasures {file}")


def masters_for(settings: Settings, facts: ImageFacts) -> MasterKeys:
    """The master keys for the data of an image. Raises StartRefused if one that it needs is not set."""
    masters = masters_from(settings)
    missing = sorted({*facts.masters} - masters.names)
    if missing:
        raise StartRefused(f"the data is sealed under master keys that are not set ({', '.join(missing)}); add them to HERMES_MASTER_KEYS")
    return masters


def folder_for_copy(settings: Settings, target_url: str | None) -> VaultFolder | None:
    """Where a copy of a database gets its vault; None: on a server it gets none, unless the settings name a folder for it."""
    if settings.vault is None and (target_url is not None or settings.database_url is not None):
        return None
    return vault_folder(settings)


async def find_vault(url: str) -> UUID | None:
    """The vault of a database."""
    async with connect_for_copy(url, "hermes restore", 5.0) as connection:
        needed = await find_needed_keys(connection)
    return None if needed is None else needed.vault


def note_kept_vault(restored: Restored) -> None:
    if restored.kept is not None and restored.source_vault is not None:
        embedded.note_vault(restored.kept, restored.source_vault)


def folders_for(settings: Settings, facts: ImageFacts) -> list[MigrationFolder]:
    """The migrations of the packs that are on, and of those that have tables in the image. Raises SchemaRefused if one is not installed."""
    packs = {pack.name: pack for pack in packs_from(settings)}
    for name in sorted({pack for pack, slash, _ in (each.partition("/") for each in facts.migrations) if slash} - {"queue", *packs}):
        try:
            packs[name] = find_pack(name)
        except PackNotFound as error:
            raise SchemaRefused(f"the data has tables of the pack {name}, which is needed to make them: {error}") from error
    return migration_folders([*packs.values()])


async def forget_redis(url: str, settings: Settings, restored: Restored) -> None:
    """Delete what Redis knows of the database before: histories, souls and counters of another time."""
    try:
        await delete_redis_keys(url, settings)
    except RedisError as error:
        keys = " ".join(REDIS_PATTERNS)
        restored.warnings.append(f"Redis cannot be reached ({type(error).__name__}): delete its keys {keys} before you start Hermes")


async def delete_redis_keys(url: str, settings: Settings) -> int:
    """Delete all keys of Hermes in this Redis; return how many. Raises RedisError."""
    client, deleted = redis_client(url, settings), 0
    try:
        for pattern in REDIS_PATTERNS:
            found = [key async for key in client.scan_iter(pattern, count=SCAN_COUNT)]
            for start in range(0, len(found), SCAN_COUNT):
                deleted += await client.delete(*found[start : start + SCAN_COUNT])
    finally:
        await client.aclose()
    return deleted
