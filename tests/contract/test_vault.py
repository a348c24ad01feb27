"""Erasure that holds against an attacker who has the disk of the database and the master keys."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from hermes.ports.errors import StoreUnavailable, UserErased
from hermes.ports.processes import ProcessBeat, ProcessRole
from hermes.ports.runtime import Transaction
from hermes.ports.users import UserState
from hermes.stores.forensics import FoundKey, files_in, needle_of, open_key, search_files
from hermes.stores.key_vault import BUCKETS, VaultFolder, VaultPlace, bucket_of, overwrite
from hermes.stores.postgres.database import Database, connection_of, execute, fetch_value, fetch_values
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.postgres.vault_keys import VaultKeeper, count_unrotated, rotate_some
from hermes.stores.seal import DataKeys, MasterKeys, VaultKeyMissing, new_master_key
from hermes.turn import Platform


@pytest.fixture
def masters() -> MasterKeys:
    return MasterKeys.parse([new_master_key()])


@pytest.fixture
def folder(tmp_path: Path) -> VaultFolder:
    return VaultFolder(tmp_path / "vault")


@pytest.fixture
def keyring(masters: MasterKeys, folder: VaultFolder) -> Keyring:
    return Keyring(masters, vaults=folder)


@pytest.fixture
def keeper(masters: MasterKeys, folder: VaultFolder) -> VaultKeeper:
    return VaultKeeper(masters, folder)


@pytest.fixture
async def data_folder(database: Database) -> AsyncIterator[Path]:
    """The files of PostgreSQL."""
    async with database.begin() as tx:
        yield Path(await fetch_value(tx, b"show data_directory"))


async def new_user(database: Database, keyring: Keyring, sender: str) -> UUID:
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "bot", Platform.TELEGRAM, sender, state=UserState.ACTIVE)
    return user.id


async def forget(database: Database, keyring: Keyring, user_id: UUID) -> None:
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user_id)


async def steal(database: Database, folder: Path, user_id: UUID, masters: MasterKeys, vaults: VaultFolder | None) -> list[FoundKey]:
    """Search heap and WAL for the user's data keys; return those that open with the master keys and the vault as it is."""
    async with database.pool.connection() as connection:
        await connection.execute("checkpoint")
    keys = [] if vaults is None else vaults.read_all()
    found = await asyncio.to_thread(search_files, files_in(folder), user_id, [], masters, keys)
    assert found.keys, "PostgreSQL still has the wrapped key: without it, this test proves nothing"
    return found.opened


async def test_without_a_vault_an_erased_message_is_read_with_the_master_key(
    database: Database, masters: MasterKeys, data_folder: Path
) -> None:
    keyring = Keyring(masters)
    user_id = await new_user(database, keyring, "77")
    async with database.begin() as tx:
        sealed = (await keyring.of(tx, user_id)).seal("s", b"where I hide")
    await forget(database, keyring, user_id)
    [stolen, *_] = await steal(database, data_folder, user_id, masters, None)
    data_key = open_key(stolen.key, user_id, masters, [])
    assert data_key is not None
    assert DataKeys({stolen.generation: data_key}).open("s", sealed) == b"where I hide"


async def test_with_a_vault_no_copy_of_the_data_key_opens(
    database: Database, keyring: Keyring, keeper: VaultKeeper, data_folder: Path
) -> None:
    masters, folder = keeper.masters, keeper.folder
    assert await keeper.begin(database)
    user_id, other_id = await new_user(database, keyring, "77"), await new_user(database, keyring, "78")
    assert len(await steal(database, data_folder, user_id, masters, folder)) > 0, "before the erasure they open"
    async with database.begin() as tx:
        sealed = (await keyring.of(tx, other_id)).seal("s", b"stays")
    await forget(database, keyring, user_id)
    assert len(await steal(database, data_folder, user_id, masters, folder)) > 0, "the key of the vault is still there"
    assert await keeper.keep(database, grace_s=0) == 1
    assert await steal(database, data_folder, user_id, masters, folder) == []
    async with database.begin() as tx:
        with pytest.raises(UserErased):
            await keyring.of(tx, user_id)
        assert (await Keyring(masters, vaults=folder).of(tx, other_id)).open("s", sealed) == b"stays"
    assert await keeper.keep(database, grace_s=0) == 0, "nothing is left to do"


async def test_others_of_the_bucket_are_opened_by_the_new_key(
    database: Database, keyring: Keyring, keeper: VaultKeeper, masters: MasterKeys, folder: VaultFolder
) -> None:
    await keeper.begin(database)
    ids = [UUID(bytes=uuid4().bytes[:15] + b"\x07") for _ in range(3)]
    async with database.begin() as tx:
        for user_id in ids:
            await add_user(tx, user_id)
            await keyring.make(tx, user_id)
        sealed = [(await keyring.of(tx, user_id)).seal("s", b"kept") for user_id in ids]
        await keyring.discard(tx, ids[0])
    await keeper.keep(database, grace_s=0)
    fresh = Keyring(masters, vaults=VaultFolder(folder.path))
    async with database.begin() as tx:
        assert await fetch_values(tx, b"select distinct vault_number from data_keys") == [2]
        assert [(await fresh.of(tx, user_id)).open("s", blob) for user_id, blob in list(zip(ids, sealed, strict=True))[1:]] == [b"kept"] * 2
    vault = await vault_of(database)
    assert sorted(key.number for key in folder.read(vault) if key.bucket == 7) == [2]
    assert len(folder.read(vault)) == BUCKETS


async def test_a_retired_key_is_kept_for_the_time_of_grace(
    database: Database, keyring: Keyring, keeper: VaultKeeper, folder: VaultFolder
) -> None:
    await keeper.begin(database)
    user_id = await new_user(database, keyring, "77")
    await forget(database, keyring, user_id)
    assert await keeper.keep(database, grace_s=600) == 0
    vault, bucket = await vault_of(database), bucket_of(user_id)
    assert sorted(key.number for key in folder.read(vault) if key.bucket == bucket) == [1, 2]
    assert await keeper.keep(database, grace_s=0) == 1


async def test_a_database_of_the_version_before_gets_its_vault_without_losing_a_key(
    database: Database, masters: MasterKeys, keyring: Keyring, keeper: VaultKeeper
) -> None:
    old = Keyring(masters)
    ids = [await new_user(database, old, f"{n}") for n in range(20)]
    async with database.begin() as tx:
        sealed = [(await old.of(tx, user_id)).seal("s", b"kept") for user_id in ids]
    await keeper.begin(database)
    late = await new_user_of_old_process(database, masters)
    assert await keeper.keep(database, grace_s=0) == 0
    async with database.begin() as tx:
        assert await fetch_value(tx, b"select count(*) from data_keys where vault_number is null") == 0
        assert [(await keyring.of(tx, user_id)).open("s", blob) for user_id, blob in zip(ids, sealed, strict=True)] == [b"kept"] * 20
        await keyring.of(tx, late)
        with pytest.raises(VaultKeyMissing):
            await Keyring(masters).of(tx, ids[0])


async def test_no_vault_begins_while_a_process_works_that_could_not_read_it(database: Database, keeper: VaultKeeper) -> None:
    old = ProcessBeat(process_id=uuid4(), role=ProcessRole.WORKER, host="bali-1", pid=42, version="1.0")
    async with database.begin() as tx:
        await PostgresProcesses().beat(tx, old)
    assert await keeper.begin(database) is None
    assert [file.suffix for file in keeper.folder.path.iterdir() if file.suffix == ".keys"] == [], "and leaves no file"
    new = ProcessBeat(process_id=uuid4(), role=ProcessRole.WORKER, host="bali-1", pid=43, version="2.0", vault_folder=keeper.folder.mark())
    async with database.begin() as tx:
        await PostgresProcesses().beat(tx, new)
        await PostgresProcesses().stop(tx, old.process_id)
    assert await keeper.begin(database) is not None


async def test_a_database_without_a_vault_has_nothing_to_keep(database: Database, masters: MasterKeys, keeper: VaultKeeper) -> None:
    keyring = Keyring(masters)
    await forget(database, keyring, await new_user(database, keyring, "77"))
    await new_user(database, keyring, "78")
    assert await keeper.keep(database, grace_s=0) == 0
    assert not keeper.folder.path.exists()


async def test_a_new_key_and_a_renewal_at_once_lose_nothing(
    database: Database, keyring: Keyring, keeper: VaultKeeper, masters: MasterKeys, folder: VaultFolder
) -> None:
    """The new key is wrapped by the old key of the vault, and committed while the renewal waits for it."""
    await keeper.begin(database)
    user_id = UUID(bytes=uuid4().bytes[:15] + b"\x09")
    async with database.begin() as tx:
        await add_user(tx, user_id)
        await keyring.make(tx, user_id)
        renewal = asyncio.create_task(keeper.wrap_bucket(database, 9, renews=True))
        await asyncio.sleep(0.2)
        assert not renewal.done()
    assert await renewal == 1
    assert await keeper.destroy_retired(database, grace_s=0) == 1
    async with database.begin() as tx:
        assert (await Keyring(masters, vaults=VaultFolder(folder.path)).of(tx, user_id)).newest == 1


async def test_a_renewal_that_is_cut_off_leaves_a_key_too_many_and_no_row_without_one(
    database: Database, keyring: Keyring, keeper: VaultKeeper, folder: VaultFolder
) -> None:
    await keeper.begin(database)
    user_id = await new_user(database, keyring, "77")
    vault, bucket = await vault_of(database), bucket_of(user_id)
    folder.add(vault, bucket, above=1)  # and then the process died: no row knows of the key
    async with database.begin() as tx:
        assert (await keyring.of(tx, user_id)).newest == 1
    assert await keeper.wrap_bucket(database, bucket, renews=True) == 1
    async with database.begin() as tx:
        assert await fetch_value(tx, b"select vault_number from data_keys") == 3, "a number is never used twice"
    assert await keeper.destroy_retired(database, grace_s=0) == 2, "the retired one, and the one that was never used"


async def test_the_bytes_of_a_destroyed_key_are_overwritten_in_their_place(folder: VaultFolder, tmp_path: Path) -> None:
    vault = folder.create()
    secret = next(iter(folder.read(vault).values()))
    handle = folder.file_of(vault).open("rb")  # stands for the blocks of the disk: the old file has no name any more
    with handle:
        assert secret.hex().encode() in handle.read()
        folder.destroy(vault, {next(iter(folder.read(vault)))})
        handle.seek(0)
        assert secret.hex().encode() not in handle.read()
    assert secret not in folder.read(vault).values()
    assert sorted(file.suffix for file in folder.path.iterdir()) == [".keys", ".lock"]
    assert folder.file_of(vault).stat().st_mode & 0o777 == 0o600


async def test_what_a_killed_process_left_beside_the_vault_is_overwritten_by_the_next_one(folder: VaultFolder) -> None:
    vault = folder.create()
    for name in (".new", ".old"):
        folder.file_of(vault).with_name(folder.file_of(vault).name + name).write_text("left")
    number = folder.add(vault, 3, above=1)
    assert number == 2
    assert len([*folder.path.glob("vault-*")]) == 1


async def test_a_vault_that_is_not_there_is_named(database: Database, keeper: VaultKeeper, masters: MasterKeys, tmp_path: Path) -> None:
    await keeper.begin(database)
    elsewhere = VaultKeeper(masters, VaultFolder(tmp_path / "elsewhere"))
    async with database.begin() as tx:
        assert (len(await keeper.missing(tx)), len(await elsewhere.missing(tx))) == (0, BUCKETS)


async def test_data_keys_are_rotated_in_steps_that_may_be_cut_off(
    database: Database, keyring: Keyring, keeper: VaultKeeper, masters: MasterKeys, folder: VaultFolder
) -> None:
    await keeper.begin(database)
    ids = [await new_user(database, keyring, f"{n}") for n in range(5)]
    async with database.begin() as tx:
        sealed = [(await keyring.of(tx, user_id)).seal("s", b"old") for user_id in ids]
    began = datetime.now(UTC)
    async with database.begin() as tx:
        assert await count_unrotated(tx, began) == 5
        assert await rotate_some(tx, keyring, began, limit=3) == 3
    async with database.begin() as tx:  # as a command that was killed and is called again: it begins at the beginning
        assert await count_unrotated(tx, began) == 2
        assert [await rotate_some(tx, keyring, began, limit=3) for _ in range(2)] == [2, 0]
        fresh = Keyring(masters, vaults=folder)
        keys = [await fresh.of(tx, user_id) for user_id in ids]
    assert [each.newest for each in keys] == [2] * 5
    assert [each.open("s", blob) for each, blob in zip(keys, sealed, strict=True)] == [b"old"] * 5


async def test_a_rotation_beside_an_erasure_gives_the_erased_user_no_new_key(database: Database, keyring: Keyring) -> None:
    user_id = await new_user(database, keyring, "77")
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user_id)
        rotation = asyncio.create_task(renew(database, keyring, user_id))
        await asyncio.sleep(0.2)
        assert not rotation.done()
    assert await rotation is False
    async with database.begin() as tx:
        with pytest.raises(UserErased):
            await keyring.of(tx, user_id)


async def renew(database: Database, keyring: Keyring, user_id: UUID) -> bool:
    async with database.begin() as tx:
        return await keyring.renew(tx, user_id)


def test_overwriting_a_file_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    overwrite(tmp_path / "no such file")
    assert [*tmp_path.iterdir()] == []


def test_a_needle_has_the_nonce_in_it() -> None:
    keys = DataKeys({1: b"k" * 32})
    first, second = keys.seal("s", b"the same words, sealed twice"), keys.seal("s", b"the same words, sealed twice")
    assert first[:5] == second[:5]
    assert needle_of(first) != needle_of(second)


async def add_user(tx: Transaction, user_id: UUID) -> None:
    row = {"id": user_id, "code": user_id.hex}
    assert await execute(tx, b"insert into users (id, state, referral_code) values (%(id)s, 'active', %(code)s)", row)


async def vault_of(database: Database) -> UUID:
    async with database.begin() as tx:
        found: UUID = await fetch_value(tx, b"select vault from vault_buckets limit 1")
    return found


async def new_user_of_old_process(database: Database, masters: MasterKeys) -> UUID:
    """A user whom a process of the version before met: it knows of no vault."""
    user_id = uuid4()
    wrapped = masters.wrap(b"k" * 32, user_id)
    async with database.begin() as tx:
        await add_user(tx, user_id)
        await connection_of(tx).execute(
            "insert into data_keys (user_id, generation, master, wrapped) values (%s, 1, %s, %s)", [user_id, wrapped.master, wrapped.blob]
        )
    return user_id


async def test_a_disk_that_is_away_holds_up_only_what_was_never_read(folder: VaultFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = folder.create()
    known, elsewhere = VaultPlace(vault, 1, 1), VaultFolder(folder.path)
    key = await folder.key(known)
    monkeypatch.setattr("hermes.stores.key_vault.REREAD_S", 0.0)
    folder.path.rename(folder.path.with_name("unmounted"))
    folder.path.write_text("not a folder")
    assert await folder.key(known) == key
    with pytest.raises(StoreUnavailable):
        await elsewhere.key(known)


def test_a_damaged_vault_is_named(folder: VaultFolder) -> None:
    vault = folder.create()
    folder.file_of(vault).write_text("1 1 abcd\n")
    with pytest.raises(VaultKeyMissing, match="is damaged"):
        folder.read(vault)
