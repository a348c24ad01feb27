"""An erasure, and its proof: what is left in the files of the stores, and that none of it opens."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from hermes.app.backups import RestoreOptions, make_backup, restore_backup
from hermes.app.master_keys import new_master_key
from hermes.app.stores import open_database_and_keys
from hermes.config import Secret, Settings
from hermes.ports.errors import CopyRefused, StartRefused
from hermes.stores import embedded
from hermes.stores.postgres.database import fetch_value
from tests.conftest import data_folder
from tests.flows.service import running
from tests.flows.test_backup import rows, say
from tests.preloaded import preloaded_hermes

MASTER_KEY = new_master_key()


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="h-", dir=data_folder()) as folder:
        yield Path(folder) / "home"
        embedded.stop(Path(folder) / "home", even_if_in_use=True)


async def run_hermes(home: Path, *words: str) -> tuple[int, str, str]:
    """Run a command on the embedded stores of a home."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    process = await asyncio.create_subprocess_exec(
        *(*preloaded_hermes(), *words),
        env=environ | {"HERMES_HOME": str(home), "HERMES_MASTER_KEYS": MASTER_KEY, "COLUMNS": "200"},
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, complaints = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, output.decode(), complaints.decode()


async def test_an_erasure_with_proof_shows_what_is_left_and_that_it_opens_nowhere(home: Path) -> None:
    """With the disk and the master key: first everything opens, after the erasure nothing does."""
    with embedded.run_servers(home) as stores:
        more = {"master_keys": (Secret(MASTER_KEY),), "vault": home}
        async with running(stores.database_url, stores.redis_url, more=more) as service:
            for text in ("I hide in the old mill", "and nobody knows"):
                await say(service, await service.key(), text=text)
        [(user_id,)] = await rows(stores.database_url, "select distinct user_id from inbox")
        code, output, complaints = await run_hermes(home, "users", "forget", str(user_id), "--yes", "--prove", "--json")
        assert (code, complaints) == (0, "")
        proof = json.loads(output)["proof"]
        assert (proof["has_vault"], proof["destroyed_keys"], proof["opened"], proof["unseen"]) == (True, 1, 0, [])
        assert proof["looked_for"] >= 8, "messages, answers, requests, graph, cached history"
        heap, wal, aof = (proof["places"][place] for place in ("heap", "wal", "aof"))
        assert heap["wrapped_keys"] > 0
        assert wal["wrapped_keys"] > 0
        assert wal["sealed_rows"] > 0
        assert aof["sealed_rows"] == 0, "the append-only file was rewritten"
        assert await sealed_bytes(stores.database_url, user_id) == 0
        again, text, complaints = await run_hermes(home, "users", "forget", str(user_id), "--prove")
        assert complaints == ""
        assert (again, "was erased before" in text, "Nothing that was found can be opened" in text) == (0, True, True)


async def sealed_bytes(url: str, user_id: UUID) -> int:
    """How many bytes of what was sealed for a user are in rows."""
    query = """
        select (select coalesce(sum(length(envelope)), 0) from inbox where user_id = %(id)s)
            + (select coalesce(sum(length(body)), 0) from outbox where user_id = %(id)s)
            + (select coalesce(sum(length(coalesce(request, '')) + length(coalesce(result, ''))), 0)
               from run_events where turn_id in (select turn_id from inbox where user_id = %(id)s))
            + (select coalesce(sum(length(seed)), 0) from sessions where user_id = %(id)s)
            + (select count(*) from graph_messages where session_id in (select id from sessions where user_id = %(id)s))
            + (select count(*) from graph_samples where session_id in (select id from sessions where user_id = %(id)s))
            + (select count(*) from data_keys where user_id = %(id)s)"""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        [(count,)] = await (await connection.execute(query, {"id": user_id})).fetchall()
    return int(count)


async def test_a_backup_from_before_opens_by_itself_and_a_restore_erases_again(
    database_url: str, empty_database_url: str, redis_url: str, tmp_path: Path
) -> None:
    """The vault destroyed the key, and the backup has it: that is what a backup means. The restored database has a vault of its own."""
    vault = tmp_path / "vault"
    settings = Settings(
        home=tmp_path, vault=vault, database_url=Secret(database_url), redis_url=Secret(redis_url), master_keys=(Secret(MASTER_KEY),)
    )
    async with running(database_url, redis_url, more={"master_keys": (Secret(MASTER_KEY),), "vault": vault}) as service:
        key = await service.key()
        await say(service, key, text="I hide in the old mill", user="alice")
        await say(service, key, text="I like boats", user="ben")
        made = await make_backup(settings, tmp_path / "before.backup")
        async with service.client.delete(f"{service.url}/v1/users/alice", headers=key) as response:
            assert response.status == 204
        await service.hermes.chore_scheduler().run_now("vault", made.facts.taken_at)
        [(first,)] = await rows(database_url, "select vault from vault_buckets limit 1")
    restored = await restore_backup(settings, made.file, RestoreOptions(target_url=empty_database_url))
    assert len(restored.erased) == 1
    [(second,)] = await rows(empty_database_url, "select distinct vault from vault_buckets")
    assert first != second
    assert [*sorted(path.name for path in vault.glob("*.keys"))] == sorted([f"vault-{first}.keys", f"vault-{second}.keys"])
    async with running(empty_database_url, redis_url, more={"master_keys": (Secret(MASTER_KEY),), "vault": vault}) as service:
        data = await service.get("/v1/users/ben/data", key)
        assert (data.status, data.body["kept"]["messages"]) == (200, 1)
        assert (await service.get("/v1/users/alice/data", key)).status == 404
    assert await rows(empty_database_url, "select count(*) from data_keys where vault_number is null") == [(0,)]


async def test_a_backup_whose_vault_is_elsewhere_is_refused(database_url: str, redis_url: str, tmp_path: Path) -> None:
    more = {"master_keys": (Secret(MASTER_KEY),), "vault": tmp_path / "vault"}
    async with running(database_url, redis_url, more=more):
        pass
    settings = Settings(home=tmp_path, database_url=Secret(database_url), redis_url=Secret(redis_url), master_keys=(Secret(MASTER_KEY),))
    with pytest.raises(CopyRefused, match="HERMES_VAULT"):
        await make_backup(settings, tmp_path / "no.backup")
    assert not (tmp_path / "no.backup").exists()
    with pytest.raises(StartRefused, match=r"256 keys that open this database are not in .*HERMES_VAULT"):
        async with open_database_and_keys(settings, pool_min=1, pool_max=1):
            pass


async def test_a_server_has_no_vault_unless_the_operator_names_a_folder(database_url: str, redis_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=Secret(database_url), redis_url=Secret(redis_url), master_keys=(Secret(MASTER_KEY),))
    async with open_database_and_keys(settings, pool_min=1, pool_max=1) as (_, database, _keyring), database.begin() as tx:
        assert await fetch_value(tx, b"select count(*) from vault_buckets") == 0
