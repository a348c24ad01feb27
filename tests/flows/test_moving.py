"""The embedded stores move to servers, to the next major version of PostgreSQL, and back to a backup: with servers of both versions."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from hermes.app.backups import RestoreOptions, make_backup, restore_backup
from hermes.app.master_keys import new_master_key
from hermes.app.moving import discard_old, list_kept, move_database, name_server, upgrade_database, write_addresses
from hermes.app.root import open_hermes
from hermes.app.router import open_no_tools
from hermes.config import Secret, Settings
from hermes.ports.errors import CopyRefused, StartRefused, StoreUnavailable
from hermes.stores import embedded
from hermes.stores.embedded.home import Home, make_home, make_sockets, remove_sockets
from hermes.stores.embedded.programs import choose_server_user, find_binaries, find_older_binaries
from hermes.stores.embedded.rebuild import note_swap
from hermes.stores.embedded.servers import scratch_home, start_postgres, stop_postgres
from hermes.stores.key_vault import VaultFolder
from hermes.stores.postgres.migrate import LOCK_ID
from tests.conftest import data_folder
from tests.flows.service import running
from tests.flows.test_backup import is_empty, restored_rows, rows, say, until

OLDER_MAJOR = 16
MASTER_KEY = new_master_key()


@dataclass
class House:
    """A data folder of its own, with the embedded stores in it."""

    settings: Settings
    key: dict[str, str]

    @property
    def home(self) -> Path:
        assert self.settings.home is not None
        return self.settings.home


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="h-", dir=data_folder()) as folder:
        yield Path(folder) / "home"
        embedded.stop(Path(folder) / "home", even_if_in_use=True)


def settings_at(home: Path) -> Settings:
    return Settings(home=home, master_keys=(Secret(MASTER_KEY),))


@asynccontextmanager
async def working_on(url: str, redis_url: str) -> AsyncIterator[dict[str, str]]:
    """Have a Hermes work on a database; yield a key after one conversation."""
    async with running(url, redis_url, more={"master_keys": (Secret(MASTER_KEY),)}) as service:
        key = await service.key()
        await say(service, key, text="I have a dog called Bruno")
        yield key


@pytest.fixture
async def house(home: Path, redis_url: str) -> House:
    """A stopped Hermes with embedded stores and something in them."""
    with embedded.run_servers(home) as stores:
        async with working_on(stores.database_url, redis_url) as key:
            pass
    return House(settings_at(home), key)


async def answers_on(url: str, redis_url: str, key: dict[str, str], vault: Path | None = None) -> None:
    """A Hermes works on this database, and knows who wrote before."""
    async with running(url, redis_url, more={"master_keys": (Secret(MASTER_KEY),), "vault": vault}) as service:
        await say(service, key, text="hi again")
        found = await rows(url, "select count(distinct user_id), count(*) from inbox where state = 'done'")
        assert found == [(1, 2)]


async def source_rows(home: Path) -> dict[str, tuple[int, str]]:
    with embedded.hold_unused(home) as source:
        return await restored_rows(source.url)


# --- move


async def test_everything_moves_and_the_old_home_says_where_it_went(house: House, empty_database_url: str, redis_url: str) -> None:
    before = await source_rows(house.home)
    moved = await move_database(house.settings, empty_database_url, redis_url)
    assert (moved.was_complete, moved.report.left_out, moved.report.tables["inbox"].rows) == (False, [], 1)
    there = await restored_rows(empty_database_url)
    # What is different: where the copy came from, and the processes that worked on the old one.
    own = {"database_copies", "procrastinate_workers", "chores", "processes"}
    assert {name: there[name] for name in there.keys() - own} == {name: before[name] for name in before.keys() - own}
    assert await rows(empty_database_url, "select kind from database_copies") == [("moved",)]
    assert await source_rows(house.home) == before
    with pytest.raises(embedded.HomeUnusable, match=r"was moved to .* set HERMES_DATABASE_URL") as refused:
        embedded.start(house.home)
    assert "\n" not in str(refused.value)
    with pytest.raises(StartRefused, match="was moved to"):
        async with open_hermes(house.settings, open_tools=open_no_tools):
            pass
    await answers_on(empty_database_url, redis_url, house.key)
    # The operator may go back.
    moved.note.unlink()
    embedded.start(house.home).release()


async def test_a_restore_to_a_server_asks_the_embedded_database_for_what_the_ledger_does_not_have_yet(
    house: House, empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    made = await make_backup(house.settings, tmp_path / "now.backup")
    with embedded.run_servers(house.home) as stores:
        erased = await rows(stores.database_url, "insert into erasures (user_id) select id from users returning user_id")
    restored = await restore_backup(house.settings, made.file, RestoreOptions(target_url=empty_database_url, redis_url=redis_url))
    assert ([(erasure.user_id,) for erasure in restored.erased], restored.warnings) == (erased, [])
    assert await rows(empty_database_url, "select state from users") == [("deleted",)]


async def test_a_move_that_was_killed_is_repeated_and_one_that_was_complete_is_only_compared(
    house: House, empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    environ |= {"HERMES_HOME": str(house.home), "HERMES_MASTER_KEYS": MASTER_KEY}
    command = [sys.executable, "-m", "hermes", "move", "--to", empty_database_url, "--redis", redis_url, "--json"]
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        # The move waits for this lock, in its transaction and with the old database running: killed there, it can clear up nothing.
        await connection.execute("select pg_advisory_lock(%s)", [LOCK_ID])
        moving = await asyncio.create_subprocess_exec(*command, env=environ, cwd=tmp_path, start_new_session=True)
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        await until(lambda: rows(empty_database_url, waiting), lambda found: found == [(1,)])
        moving.kill()
        await moving.wait()
    assert embedded.status(house.home).postgres is not None
    assert await is_empty(empty_database_url)
    assert not (await move_database(house.settings, empty_database_url, redis_url)).was_complete
    (house.home / "stores" / "moved.json").unlink()  # as if it had been killed before it wrote this
    assert (await move_database(house.settings, empty_database_url, redis_url)).was_complete
    # But a source that went on is another one.
    (house.home / "stores" / "moved.json").unlink()
    with embedded.run_servers(house.home) as stores:
        await rows(stores.database_url, "insert into accounts (id) values ('new') returning id")
    with pytest.raises(CopyRefused, match="no copy of this one"):
        await move_database(house.settings, empty_database_url, redis_url)


async def test_a_move_is_refused_in_one_line_and_changes_nothing(
    house: House, database_url: str, empty_database_url: str, redis_url: str
) -> None:
    with embedded.run_servers(house.home), pytest.raises(CopyRefused, match="are in use by pid"):
        await move_database(house.settings, empty_database_url, redis_url)
    with pytest.raises(CopyRefused, match="not empty"):
        await move_database(house.settings, database_url, redis_url)
    with pytest.raises(CopyRefused, match="no PostgreSQL address"):
        await move_database(house.settings, "mysql://db", redis_url)
    with pytest.raises(CopyRefused, match="no Redis address"):
        await move_database(house.settings, empty_database_url, "http://cache")
    with pytest.raises(StoreUnavailable, match="Redis cannot be used"):
        await move_database(house.settings, empty_database_url, "unix:///nowhere/redis.sock")
    with pytest.raises(StartRefused, match="master keys that are not set"):
        await move_database(Settings(home=house.home, master_keys=(Secret(new_master_key()),)), empty_database_url, redis_url)
    assert await is_empty(empty_database_url)
    embedded.start(house.home).release()


async def test_an_interrupted_move_leaves_both_sides_as_they_were(house: House, empty_database_url: str, redis_url: str) -> None:
    def fail(table: str, _bytes: int) -> None:
        if table == "checking users":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await move_database(house.settings, empty_database_url, redis_url, fail)
    assert await is_empty(empty_database_url)
    assert embedded.status(house.home).postgres is None
    embedded.start(house.home).release()


def test_the_addresses_are_written_before_all_sections_and_replace_none(tmp_path: Path) -> None:
    file = tmp_path / "hermes.toml"
    file.write_text('environment = "production"\n\n[web]\nport = 80\n', encoding="utf-8")
    write_addresses(file, "postgresql://u:p%22@db/hermes", "redis://cache")
    assert file.read_text(encoding="utf-8") == (
        'database_url = "postgresql://u:p%22@db/hermes"\nredis_url = "redis://cache"\nenvironment = "production"\n\n[web]\nport = 80\n'
    )
    with pytest.raises(CopyRefused, match="has database_url already"):
        write_addresses(file, "postgresql://other", "redis://other")


def test_a_server_is_named_without_its_password() -> None:
    assert name_server("postgresql://hermes:secret@db.example.com:5433/chats") == "db.example.com:5433/chats"


# --- the next major version


@contextmanager
def older_server(home: Path) -> Iterator[str]:
    """An embedded database of the older major version, as an older Hermes would have left it, while it runs."""
    made = make_home(home)
    binaries = find_older_binaries(OLDER_MAJOR)
    user = choose_server_user(made, binaries.postgres)
    if not made.postgres.exists():
        arguments = ("-D", made.postgres, "--username=hermes", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject")
        subprocess.run(user.command(binaries.initdb, *arguments), check=True, capture_output=True)
    make_sockets(made)
    start_postgres(made, binaries, user)
    try:
        yield made.addresses.database_url
    finally:
        stop_postgres(made)
        remove_sockets(made)


@pytest.fixture
async def older_house(home: Path, redis_url: str) -> House:
    with older_server(home) as url:
        async with working_on(url, redis_url) as key:
            pass
    return House(settings_at(home), key)


async def test_an_older_major_version_is_named_with_the_command_and_upgraded(older_house: House, redis_url: str) -> None:
    with pytest.raises(
        embedded.HomeUnusable, match="was made by PostgreSQL 16, and this Hermes brings 18: run `hermes upgrade`"
    ) as refused:
        embedded.start(older_house.home)
    assert "\n" not in str(refused.value)
    with older_server(older_house.home) as url:
        before = await restored_rows(url)
    done = await upgrade_database(older_house.settings)
    assert done is not None
    assert (done.before, done.after, list_kept(older_house.settings)) == (OLDER_MAJOR, 18, [done.kept])
    with embedded.run_servers(older_house.home) as stores:
        after = await restored_rows(stores.database_url)
        assert {name: after[name] for name in ("inbox", "users", "graph_messages", "credit_entries")} == {
            name: before[name] for name in ("inbox", "users", "graph_messages", "credit_entries")
        }
        assert await rows(stores.database_url, "select count(*) from data_keys where vault_number = 1") == [(before["data_keys"][0],)]
        assert await rows(stores.database_url, "show data_checksums") == [("on",)]
        await answers_on(stores.database_url, redis_url, older_house.key, older_house.home)
    assert await upgrade_database(older_house.settings) is None
    assert (done.kept / "PG_VERSION").read_text(encoding="ascii").strip() == str(OLDER_MAJOR)
    assert discard_old(older_house.settings) == [done.kept]
    assert list_kept(older_house.settings) == []
    embedded.start(older_house.home).release()


@pytest.mark.parametrize("table", ["users", "checking users"])
async def test_an_upgrade_that_is_cut_off_leaves_the_old_version_and_can_be_repeated(older_house: House, table: str) -> None:
    def fail(name: str, _bytes: int) -> None:
        if name == table:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await upgrade_database(older_house.settings, fail)
    assert embedded.data_major(older_house.home) == OLDER_MAJOR
    assert list_kept(older_house.settings) == []
    assert sorted(path.name for path in (older_house.home / "stores").glob("*") if path.is_dir()) in (
        ["leases", "postgres"],
        ["leases", "postgres", "sockets"],
    )
    assert await upgrade_database(older_house.settings) is not None


@pytest.mark.parametrize("renames", [0, 1, 2])
async def test_a_new_database_takes_the_old_ones_place_although_the_process_was_killed(house: House, renames: int) -> None:
    """Killed after the note: before the old one stepped aside, before the new one took its name, before the note was deleted."""
    home = make_home(house.home)
    scratch, kept = scratch_home(home), home.stores / "postgres.kept-now"
    shutil.copytree(home.postgres, scratch.postgres)
    (scratch.postgres / "is-new").touch()
    note_swap(home, scratch, kept, clears_valkey=True)
    if renames > 0:
        home.postgres.rename(kept)
    if renames > 1:
        scratch.postgres.rename(home.postgres)
    with embedded.run_servers(house.home) as stores:
        assert (home.postgres / "is-new").exists()
        assert await rows(stores.database_url, "select count(*) from inbox") == [(1,)]
    assert kept.exists()
    assert not (kept / "is-new").exists()
    assert (home.swap_note.exists(), scratch.path.exists()) == (False, False)


async def test_the_server_of_an_upgrade_that_was_killed_is_stopped_by_the_next_start(house: House) -> None:
    home = make_home(house.home)
    scratch = abandoned_server(home)
    with embedded.run_servers(house.home):
        assert not scratch.path.exists()


def abandoned_server(home: Home) -> Home:
    """What a killed upgrade leaves: a new database that grows, with its server."""
    scratch = scratch_home(home)
    scratch.stores.mkdir(parents=True, mode=0o700)
    make_sockets(scratch)
    binaries = find_binaries()
    start_postgres(scratch, binaries, choose_server_user(home, binaries.postgres))
    return scratch


# --- a backup in place of the embedded database


async def test_a_backup_takes_the_place_of_the_embedded_database_and_the_old_one_is_kept(
    house: House, tmp_path: Path, redis_url: str
) -> None:
    made = await make_backup(house.settings, tmp_path / "now.backup")
    with embedded.run_servers(house.home) as stores:
        await rows(stores.database_url, "insert into accounts (id) values ('later') returning id")
    with pytest.raises(CopyRefused, match="not empty"):
        await restore_backup(house.settings, made.file, RestoreOptions())
    with embedded.run_servers(house.home), pytest.raises(CopyRefused, match="are in use by pid"):
        await restore_backup(house.settings, made.file, RestoreOptions(replaces=True))
    restored = await restore_backup(house.settings, made.file, RestoreOptions(replaces=True))
    assert restored.kept is not None
    assert (restored.kept / "PG_VERSION").exists()
    with embedded.run_servers(house.home) as stores:
        assert await rows(stores.database_url, "select id from accounts where id = 'later'") == []
        await answers_on(stores.database_url, redis_url, house.key, house.home)
        [(vault,)] = await rows(stores.database_url, "select distinct vault from vault_buckets")
    old = VaultFolder(house.home).create()
    embedded.note_vault(restored.kept, old)  # as if the database that was replaced had had one
    assert discard_old(house.settings) == [restored.kept]
    assert [file.name for file in house.home.glob("vault-*")] == [f"vault-{vault}.keys"], "its vault goes with it"


async def test_a_damaged_embedded_database_is_no_hindrance_and_the_restore_says_what_is_unknown(house: House, tmp_path: Path) -> None:
    made = await make_backup(house.settings, tmp_path / "now.backup")
    shutil.rmtree(house.home / "stores" / "postgres" / "global")
    restored = await restore_backup(house.settings, made.file, RestoreOptions(replaces=True))
    assert restored.warnings == ["the old database does not start: erasures that are not in the ledger are unknown"]
    with embedded.run_servers(house.home) as stores:
        assert await rows(stores.database_url, "select count(*) from inbox") == [(1,)]


async def test_a_backup_goes_into_a_new_home(house: House, tmp_path: Path) -> None:
    made = await make_backup(house.settings, tmp_path / "now.backup")
    with tempfile.TemporaryDirectory(prefix="h-", dir=data_folder()) as folder:
        restored = await restore_backup(settings_at(Path(folder) / "new"), made.file, RestoreOptions())
        assert (restored.kept, restored.report.tables["inbox"].rows) == (None, 1)
        await asyncio.to_thread(embedded.stop, Path(folder) / "new")
