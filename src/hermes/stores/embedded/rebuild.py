"""A new PostgreSQL beside the one of a data folder, which takes its place when it is complete: for a restore, and for a new major version.

At every moment the folder has one complete database. The old one is kept until the operator deletes it. What a killed process leaves is
cleared, or completed, by the next start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from hermes.stores.embedded.home import (
    EmbeddedError,
    Home,
    HomeInUse,
    HomeUnusable,
    give_to_owner,
    home_at,
    make_home,
    make_sockets,
    remove_sockets,
)
from hermes.stores.embedded.launcher import hold_start_lock, read_status, refuse_other_machines, stop_both
from hermes.stores.embedded.programs import Binaries, ServerUser, choose_server_user, find_binaries, find_older_binaries
from hermes.stores.embedded.servers import (
    KEPT_PREFIX,
    clear_scratch,
    cluster_major,
    finish_swap,
    scratch_home,
    start_postgres,
    stop_postgres,
    write_durably,
)

VAULT_NOTE = "hermes.vault"


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Two databases: the one that is there, if it could be started, and the empty one that will take its place."""

    source_url: str | None
    """None: there is no database, or it does not start."""
    source_major: int | None
    target_url: str
    target_major: int
    kept: Path
    """Where the old database will be."""


@contextmanager
def rebuild_database(path: Path, *, clears_valkey: bool, needs_source: bool) -> Iterator[Rebuild]:
    """Run the old and a new database until the block ends; then the new one takes the old one's place. If the block raises, all is as
    before.

    `clears_valkey` empties Valkey too: its caches would be of another database. Without `needs_source`, an old database that does not start
    is no hindrance. Raises HomeInUse while another process uses the folder, and the other errors of `start`."""
    binaries, home = find_binaries(), make_home(path)
    with hold_start_lock(home):
        refuse_use(home)
        finish_swap(home)
        clear_scratch(home)
        user = choose_server_user(home, binaries.postgres)
        scratch = make_scratch(home)
        try:
            start_postgres(scratch, binaries, user)
            make_sockets(home)
            major = cluster_major(home)
            source_url = start_source(home, user, major, binaries, needs_source=needs_source)
            kept = home.stores / f"{KEPT_PREFIX}{datetime.now(UTC):%Y%m%dT%H%M%S}"
            yield Rebuild(source_url, major, scratch.addresses.database_url, binaries.major, kept)
            stop_postgres(scratch)  # before the note: what the note names must be complete on disk
            stop_postgres(home)
            note_swap(home, scratch, kept, clears_valkey=clears_valkey)
            finish_swap(home)
        finally:
            try:
                stop_postgres(home)
            finally:
                clear_scratch(home)
                remove_sockets(home)


def start_source(home: Home, user: ServerUser, major: int | None, binaries: Binaries, *, needs_source: bool) -> str | None:
    """Start the database that is there, with the programs of its own version."""
    if major is None:
        return None
    try:
        start_postgres(home, binaries if major == binaries.major else find_older_binaries(major), user)
    except EmbeddedError:
        if needs_source:
            raise
        return None
    return home.addresses.database_url


def make_scratch(home: Home) -> Home:
    """Make the folder in which the new database grows."""
    scratch = scratch_home(home)
    for folder in (scratch.path, scratch.stores):
        folder.mkdir(mode=0o700)
        give_to_owner(folder, home)
    make_sockets(scratch)
    return scratch


def note_swap(home: Home, scratch: Home, kept: Path, *, clears_valkey: bool) -> None:
    """Write down that the new database takes the old one's place. From here on the next start completes it, whatever happens."""
    swap = {"new": str(scratch.postgres.relative_to(home.stores)), "kept": kept.name, "clears_valkey": clears_valkey}
    write_durably(home.swap_note, json.dumps(swap))


# --- databases that were kept


def kept_databases(path: Path) -> list[Path]:
    """The folders of databases that were replaced, the oldest first."""
    stores = home_at(path).stores
    return sorted(stores.glob(f"{KEPT_PREFIX}*")) if stores.is_dir() else []


def note_vault(kept: Path, vault: UUID) -> None:
    """Note with a database that was replaced which vault its keys are in."""
    write_durably(kept / VAULT_NOTE, f"{vault}\n")


def kept_vaults(path: Path) -> list[UUID]:
    """The vaults of databases that were replaced."""
    notes = [folder / VAULT_NOTE for folder in kept_databases(path)]
    return [UUID(note.read_text(encoding="ascii").strip()) for note in notes if note.exists()]


def discard_kept(path: Path) -> list[Path]:
    """Delete the databases that were replaced; return their folders."""
    found = kept_databases(path)
    for folder in found:
        shutil.rmtree(folder)
    return found


# --- a home whose data is moved to servers


@dataclass(frozen=True, slots=True)
class UnusedDatabase:
    """The database of a folder that no other process uses, and that none can start meanwhile."""

    home: Home
    url: str

    def mark_moved(self, where: str) -> Path:
        """Note that the data lives elsewhere now: from here on `start` refuses the folder. `where` names the server, without a password.
        Return the note; an operator who deletes it uses the old data again."""
        write_durably(self.home.moved_note, json.dumps({"to": where, "at": datetime.now(UTC).isoformat(timespec="seconds")}))
        return self.home.moved_note


@contextmanager
def hold_unused(path: Path) -> Iterator[UnusedDatabase]:
    """Run the database of a folder that no other process uses, also if it was moved already.

    Raises HomeInUse, HomeUnusable if there is no database, and the other errors of `start`."""
    binaries, home = find_binaries(), make_home(path)
    with hold_start_lock(home):
        refuse_use(home)
        finish_swap(home)
        if cluster_major(home) is None:
            raise HomeUnusable(f"there is no database in {home.path}; set HERMES_HOME to the folder that has it")
        try:
            make_sockets(home)
            start_postgres(home, binaries, choose_server_user(home, binaries.postgres))
            yield UnusedDatabase(home, home.addresses.database_url)
        finally:
            stop_postgres(home)
            remove_sockets(home)


def refuse_use(home: Home) -> None:
    """Raise HomeInUse if a process uses the folder; stop servers that killed processes left. The caller holds the start lock."""
    refuse_other_machines(home)
    if holders := read_status(home).holders:
        raise HomeInUse(f"the stores in {home.path} are in use by pid {', '.join(map(str, holders))}; stop Hermes first")
    stop_both(home)


def data_major(path: Path) -> int | None:
    """The major version of PostgreSQL that made the data of a folder; None without data."""
    return cluster_major(home_at(path))
