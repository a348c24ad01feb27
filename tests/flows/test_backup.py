"""A backup of a Hermes that works, and what a restore makes of it, on real stores."""

import asyncio
import base64
import json
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
import redis

from hermes.app.backups import RestoreOptions, make_backup, restore_backup
from hermes.app.erasures import ledger_in, update_ledger
from hermes.app.root import Housekeeping
from hermes.config import Secret, Settings
from hermes.ports.errors import CopyRefused, StartRefused
from hermes.ports.users import UserChannel, UserState
from hermes.soul.my_data import forget_fact, forget_user, forget_user_at
from hermes.stores.postgres.database_image import CopyDiffers, open_snapshot
from hermes.stores.postgres.migrate import CREATE_MIGRATIONS_TABLE, own_migrations, record_migration, run_queue_migrations
from hermes.turn import Platform
from tests.flows.command import hermes
from tests.flows.my_data import learn, user_on
from tests.flows.service import Service, running

T = TypeVar("T")
ALICE, BOB, CAROL = (UserChannel("shop", Platform.REST, name) for name in ("alice", "bob", "carol"))
CAROL_ELSEWHERE = UserChannel("other", Platform.REST, "carol")


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    async with running(database_url, redis_url) as service:
        yield service


async def say(service: Service, key: dict[str, str], user: str = "alice", text: str = "hi") -> Any:
    got = await service.post("/v1/messages", {"text": text, "user": user}, key)
    assert got.status == 200, got.body
    return got.body


def settings_for(service: Service, database_url: str, **more: Any) -> Settings:
    """The settings of the service, on another database."""
    return replace(service.hermes.settings, database_url=Secret(database_url), **more)


async def rows(url: str, query: str) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def until(read: Callable[[], Awaitable[T]], is_reached: Callable[[T], bool]) -> None:
    """Read again and again until it is so."""
    async with asyncio.timeout(60):
        while not is_reached(await read()):  # noqa: ASYNC110  # another process brings it about
            await asyncio.sleep(0.01)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def is_empty(url: str) -> bool:
    return await rows(url, "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'") == []


async def restored_rows(url: str) -> dict[str, tuple[int, str]]:
    async with open_snapshot(url) as snapshot:
        found = {}
        for table in snapshot.facts.tables:
            text = b"".join([chunk async for chunk in snapshot.rows(table)])
            found[table.name] = (text.count(b"\n"), "\n".join(sorted(text.decode().splitlines())))
        return found


# --- a backup is the database at one moment


async def test_a_backup_that_is_made_under_load_is_one_moment_and_is_restored_whole(
    service: Service, redis_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    key = await service.key()
    await say(service, key, text="I have a dog called Bruno")
    [fact] = await learn(service, ALICE, "has a dog called Bruno")
    is_backed_up = asyncio.Event()

    async def keep_talking(user: str) -> int:
        count = 0
        while not is_backed_up.is_set():
            await say(service, key, user, f"message {count}")
            count += 1
        return count

    talking = [asyncio.create_task(keep_talking(f"user-{number}")) for number in range(4)]
    await until(service.turns, lambda turns: turns >= 12)
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    is_backed_up.set()
    counts = await asyncio.gather(*talking)
    restored = await restore_backup(
        service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url, redis_url=None, resumes=True)
    )
    assert made.report.digest == restored.report.digest
    assert 12 <= made.report.tables["inbox"].rows <= sum(counts) + 1
    # One moment: every answered turn of it has its interaction, its charge and its part of the graph; what was running can go on.
    done = await rows(empty_database_url, "select turn_id from inbox where state = 'done' order by 1")
    assert done == await rows(empty_database_url, "select turn_id from interactions order by 1")
    assert done == await rows(empty_database_url, "select turn_id from credit_entries where kind = 'post' order by 1")
    # A Hermes works on it: it knows the user, opens what is sealed, and numbers go on.
    async with running(empty_database_url, redis_url, more={"master_keys": keys(service)}) as other:
        assert (await other.get("/v1/users/alice/data", key)).body["facts"][0]["text"] == fact.text
        await say(other, key, text="hi again")
        assert (await user_on(other, ALICE)).state is UserState.ACTIVE


def keys(service: Service) -> tuple[Secret, ...]:
    """The master key that the service made in its home."""
    home = service.hermes.settings.home
    assert home is not None
    return (Secret((home / "master.key").read_text(encoding="ascii")),)


async def test_a_backup_holds_no_key_that_opens_it_and_no_word(service: Service, tmp_path: Path) -> None:
    key = await service.key()
    await say(service, key, text="I have a dog called Bruno")
    await learn(service, ALICE, "has a dog called Bruno")
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    master = keys(service)[0].reveal()
    with zipfile.ZipFile(made.file) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert made.file.stat().st_mode & 0o777 == 0o600
    assert "data_keys" in made.report.tables
    for secret in (master.encode(), base64.urlsafe_b64decode(master), base64.urlsafe_b64decode(master).hex().encode()):
        assert secret not in content
    for word in ("Bruno", key["Authorization"].removeprefix("Bearer ")):
        assert word.encode() not in content
        assert word.encode().hex().encode() not in content


async def test_a_backup_that_fails_leaves_no_file_and_keeps_the_one_before(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "now.backup"
    await make_backup(service.hermes.settings, file)
    before = file.read_bytes()

    def fail(table: str, _bytes: int) -> None:
        if table == "users":
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await make_backup(service.hermes.settings, file, fail)
    assert names_in(tmp_path) == ["now.backup"]
    assert file.read_bytes() == before


# --- what was erased stays erased


async def test_what_was_erased_after_a_backup_is_erased_again(
    service: Service, database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    key, elsewhere = await service.key(), await service.key("other")
    for name in ("alice", "bob", "carol"):
        await say(service, key, name, f"I am {name}")
    carol = await user_on(service, CAROL)
    async with service.database.begin() as tx:
        await service.hermes.adapters.people.link(tx, carol.id, CAROL_ELSEWHERE)
    await say(service, elsewhere, "carol", "and here")
    gone, stays = await learn(service, BOB, "likes tea", "likes boats")
    alice, bob = await user_on(service, ALICE), await user_on(service, BOB)
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    stores = service.hermes.my_data
    await forget_user(alice.id, stores)
    await forget_fact(bob.id, gone.id, transactions=stores.transactions, memories=stores.memories, souls=stores.souls, eraser=stores.eraser)
    assert not await forget_user_at(carol.id, "shop", stores)
    home = service.hermes.settings.home
    assert home is not None
    await Housekeeping(service.hermes).sweep()  # as every worker does
    await update_ledger(service.database, home)
    assert len(ledger_in(home).file.read_text(encoding="utf-8").splitlines()) == 3
    assert ledger_in(home).file.stat().st_mode & 0o777 == 0o600
    # Of the erasures only the ledger is left: the database that knew them is out of reach.
    settings = replace(service.hermes.settings, database_url=None)
    restored = await restore_backup(settings, made.file, RestoreOptions(target_url=empty_database_url, resumes=True))
    assert [(erasure.user_id, erasure.account, erasure.fact_id) for erasure in restored.erased] == [
        (alice.id, None, None),
        (bob.id, None, gone.id),
        (carol.id, "shop", None),
    ]
    assert await rows(empty_database_url, "select id, state from users order by created_at") == [
        (alice.id, "deleted"),
        (bob.id, "active"),
        (carol.id, "active"),
    ]
    assert await rows(empty_database_url, "select user_id from data_keys order by user_id") == sorted([(bob.id,), (carol.id,)])
    assert await rows(empty_database_url, "select id from user_memory") == [(stays.id,)]
    assert await rows(
        empty_database_url, "select account_id from inbox join users on users.id = user_id where users.state = 'active' order by 1"
    ) == [
        ("other",),
        ("shop",),
    ]
    # They are noted there with the time of the first erasure, and a second restore of the same repeats nothing.
    noted = "select user_id, account_id, fact_id, at from erasures order by at"
    assert await rows(empty_database_url, noted) == await rows(database_url, noted)


async def test_the_database_of_the_settings_is_asked_for_erasures_where_the_ledger_is_lost(
    service: Service, empty_database_url: str, tmp_path: Path
) -> None:
    key = await service.key()
    await say(service, key)
    alice = await user_on(service, ALICE)
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    await forget_user(alice.id, service.hermes.my_data)
    restored = await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url))
    assert [erasure.user_id for erasure in restored.erased] == [alice.id]
    assert await rows(empty_database_url, "select state from users") == [("deleted",)]
    assert restored.warnings == []


async def test_a_backup_made_after_an_erasure_repeats_nothing(service: Service, empty_database_url: str, tmp_path: Path) -> None:
    key = await service.key()
    await say(service, key)
    await forget_user((await user_on(service, ALICE)).id, service.hermes.my_data)
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    assert (await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url))).erased == []


# --- what was on its way


@pytest.mark.parametrize("resumes", [False, True])
async def test_what_was_on_its_way_is_held_back_or_goes_on(
    resumes: bool, database_url: str, redis_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    async with running(database_url, redis_url) as service:
        key = await service.key()
        await say(service, key)
        service.thinker.may_answer.clear()
        accepted = asyncio.create_task(service.post("/v1/messages", {"text": "wait for me", "user": "alice"}, key))
        await until(lambda: rows(database_url, "select state from runs order by started_at"), lambda found: found[1:] == [("running",)])
        async with service.database.pool.connection() as connection:
            await connection.execute("update outbox set state = 'pending' where id = (select min(id) from outbox)")
        made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
        service.thinker.may_answer.set()
        assert (await accepted).status == 200
        master = keys(service)
        settings = service.hermes.settings
    options = RestoreOptions(target_url=empty_database_url, redis_url=redis_url, resumes=resumes)
    settings = replace(settings, home=tmp_path, master_keys=master)
    restored = await restore_backup(settings, made.file, options)
    counted = (restored.held.messages, restored.held.answers)
    state = await rows(empty_database_url, "select state from inbox order by seq")
    jobs = await rows(empty_database_url, "select status, worker_id from procrastinate_jobs where queue_name = 'turns'")
    assert (counted, state) == (((0, 0), [("done",), ("waiting",)]) if resumes else ((1, 1), [("done",), ("dead",)]))
    assert jobs == [("todo", None)]
    async with running(empty_database_url, redis_url, more={"master_keys": master}) as other:
        if resumes:
            await until(lambda: rows(empty_database_url, "select state from inbox"), lambda found: set(found) == {("done",)})
            assert other.thinker.asked == ["wait for me"]
        else:
            await say(other, key, text="anything new?")
            assert other.thinker.asked == ["anything new?"]
            letters = await rows(empty_database_url, "select state, outcome, doubts, reason from outbox where state = 'dead'")
            assert letters == [("dead", "ambiguous", 1, letters[0][3])]
            assert letters[0][3].startswith("restored from a backup of ")


async def test_a_restore_forgets_what_redis_knew_of_another_time(
    database_url: str, redis_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    async with running(database_url, redis_url) as service:
        await say(service, await service.key())
        made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
        settings = replace(service.hermes.settings, master_keys=keys(service))
    with redis.Redis.from_url(redis_url) as client:
        client.set("another program", "stays")
        assert any(client.scan_iter("hermes:*"))
        await restore_backup(replace(settings, home=tmp_path), made.file, RestoreOptions(target_url=empty_database_url))
        assert [*client.scan_iter("*")] == [b"another program"]


# --- refusals: one line, and nothing changes


async def test_a_damaged_backup_is_refused_before_anything_changes(service: Service, empty_database_url: str, tmp_path: Path) -> None:
    await say(service, await service.key())
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    whole = made.file.read_bytes()
    with zipfile.ZipFile(made.file) as archive:
        entry = archive.getinfo("tables/inbox.copy")
    broken = bytearray(whole)
    broken[entry.header_offset + 200] ^= 1
    for content in (bytes(broken), whole[:-100], b"no backup"):
        made.file.write_bytes(content)
        with pytest.raises((CopyDiffers, CopyRefused)) as refused:
            await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url))
        assert "\n" not in str(refused.value)
        assert await is_empty(empty_database_url)


async def test_rows_that_were_changed_with_their_hashes_do_not_pass_the_manifest(
    service: Service, empty_database_url: str, tmp_path: Path
) -> None:
    """The zip file's own check sums are right; the manifest's are of other rows."""
    await say(service, await service.key())
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    forged = tmp_path / "forged.backup"
    with zipfile.ZipFile(made.file) as archive, zipfile.ZipFile(forged, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            copy.writestr(name, content.replace(b"shop", b"shed") if name == "tables/accounts.copy" else content)
    with pytest.raises(CopyDiffers, match="accounts"):
        await restore_backup(service.hermes.settings, forged, RestoreOptions(target_url=empty_database_url))
    assert await is_empty(empty_database_url)


async def test_a_restore_that_is_cut_off_leaves_the_target_empty(service: Service, empty_database_url: str, tmp_path: Path) -> None:
    await say(service, await service.key())
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")

    def fail(table: str, _bytes: int) -> None:
        if table == "checking inbox":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url), fail)
    assert await is_empty(empty_database_url)
    await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=empty_database_url))


BY_THE_CLOCK = ("processes", "process_events", "chores", "sum_marks", "spend_hours", "tool_hours")
"""Tables that a running service writes although nobody asks it for anything."""


async def rows_of_messages(url: str) -> dict[str, tuple[int, str]]:
    return {table: rows for table, rows in (await restored_rows(url)).items() if table not in BY_THE_CLOCK}


async def test_a_target_that_is_not_empty_and_missing_keys_are_refused(
    service: Service, database_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    await say(service, await service.key())
    made = await make_backup(service.hermes.settings, tmp_path / "now.backup")
    before = await rows_of_messages(database_url)
    with pytest.raises(CopyRefused, match="not empty"):
        await restore_backup(service.hermes.settings, made.file, RestoreOptions(target_url=database_url))
    with pytest.raises(CopyRefused, match="--replace is for the embedded"):
        await restore_backup(service.hermes.settings, made.file, RestoreOptions(replaces=True))
    with pytest.raises(StartRefused, match="master keys that are not set"):
        await restore_backup(replace(service.hermes.settings, home=tmp_path), made.file, RestoreOptions(target_url=empty_database_url))
    assert await rows_of_messages(database_url) == before
    assert await is_empty(empty_database_url)


async def test_a_backup_of_an_older_schema_is_brought_up_to_date_and_one_of_a_newer_is_refused(
    service: Service, servers: Any, empty_database_url: str, tmp_path: Path
) -> None:
    settings = settings_for(service, empty_database_url)
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        await connection.execute(CREATE_MIGRATIONS_TABLE.encode())
        await run_queue_migrations(connection)
        for migration in own_migrations():
            if migration.name < "0028":
                await connection.execute(migration.sql.encode())
                await record_migration(connection, migration)
        gone = UUID(int=7)
        await connection.execute(
            "insert into users (id, state, referral_code, deleted_at) values (%s, 'deleted', 'x', now()), (%s, 'active', 'y', null)",
            [gone, UUID(int=8)],
        )
    made = await make_backup(settings, tmp_path / "old.backup")
    async with await psycopg.AsyncConnection.connect(servers.database_url, autocommit=True) as connection:
        await connection.execute("create database restored_old")
        try:
            target = psycopg.conninfo.make_conninfo(servers.database_url, dbname="restored_old")
            await restore_backup(settings, made.file, RestoreOptions(target_url=target))
            assert await rows(target, "select id from users order by id") == [(gone,), (UUID(int=8),)]
            assert await rows(target, "select user_id from erasures") == [(gone,)]
            assert await rows(target, "select kind from database_copies") == [("restored",)]
        finally:
            await connection.execute("drop database restored_old with (force)")
    with zipfile.ZipFile(made.file) as archive, zipfile.ZipFile(tmp_path / "new.backup", "w") as copy:
        for name in archive.namelist():
            manifest = json.loads(archive.read(name)) if name == "manifest.json" else None
            if manifest:
                manifest["migrations"]["0999_future"] = "0"
            copy.writestr(name, json.dumps(manifest) if manifest else archive.read(name))
    with pytest.raises(CopyRefused, match="newer Hermes"):
        await restore_backup(settings, tmp_path / "new.backup", RestoreOptions(target_url=target))


# --- as commands


async def test_the_commands_say_what_they_did_and_fail_in_one_line(service: Service, empty_database_url: str, tmp_path: Path) -> None:
    await say(service, await service.key())
    made = await hermes(service, tmp_path, "backup", "--to", "now.backup", "--json")
    assert (made.code, made.complaints) == (0, "")
    about = json.loads(made.output)
    assert about["file"] == str(tmp_path / "now.backup")
    assert about["rows"] > 5
    done = await hermes(service, tmp_path, "restore", "now.backup", "--to", empty_database_url, "--json")
    assert (done.code, done.complaints) == (0, "")
    assert json.loads(done.output)["rows"] == about["rows"]
    again = await hermes(service, tmp_path, "restore", "now.backup", "--to", empty_database_url)
    assert (again.code, again.output) == (2, "")
    assert again.complaints == "hermes: the target database is not empty; make a new one (createdb), and name that\n"
    missing = await hermes(service, tmp_path, "restore", "none.backup", "--to", empty_database_url)
    assert (missing.code, missing.complaints) == (2, "hermes: there is no file none.backup\n")
    nowhere = await hermes(service, tmp_path, "backup", "--to", "no/such/folder/file")
    assert nowhere.code == 2
