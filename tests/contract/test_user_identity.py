"""Users: met once, sealed with a key of their own, forgotten for good."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from hermes.ports.errors import NotFound, UserErased
from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.outbox import PostgresOutbox
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeyMissing, MasterKeys, SealBroken, new_master_key
from hermes.turn import Platform
from tests.contract.turns import new_claim


@pytest.fixture
def people(keyring: Keyring) -> PostgresUsers:
    return PostgresUsers(keyring)


async def meet(database: Database, people: PostgresUsers, sender: str = "77", **where: str) -> tuple[User, bool]:
    async with database.begin() as tx:
        account, platform = where.get("account", "bot"), Platform(where.get("platform", "telegram"))
        return await people.find_or_create(tx, account, platform, sender, state=UserState.STRANGER)


async def test_a_sender_is_met_once(database: Database, people: PostgresUsers) -> None:
    user, is_new = await meet(database, people)
    assert is_new
    assert (user.state, user.tier, user.language, user.trains) == (UserState.STRANGER, "free", None, False)
    assert await meet(database, people) == (user, False)


async def test_two_first_messages_at_once_make_one_user(database: Database, people: PostgresUsers) -> None:
    met = await asyncio.gather(*(meet(database, people) for _ in range(12)))
    assert sum(is_new for _, is_new in met) == 1
    assert len({user.id for user, _ in met}) == 1
    async with database.begin() as tx:
        assert await (await connection_of(tx).execute("select count(*) from users")).fetchone() == (1,)


async def test_the_same_sender_elsewhere_is_somebody_else(database: Database, people: PostgresUsers) -> None:
    users = [
        await meet(database, people),
        await meet(database, people, account="other"),
        await meet(database, people, platform="instagram"),
        await meet(database, people, "78"),
    ]
    assert len({user.id for user, _ in users}) == 4


async def test_activation_and_consent_are_remembered(database: Database, people: PostgresUsers) -> None:
    user, _ = await meet(database, people)
    async with database.begin() as tx:
        await people.activate(tx, user.id)
        await people.allow_training(tx, user.id, trains=True)
        known = await people.get(tx, user.id)
    assert (known.state, known.trains) == (UserState.ACTIVE, True)


async def test_somebody_who_was_forgotten_is_gone_for_good(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    user, _ = await meet(database, people)
    async with database.begin() as tx:
        sealed = (await keyring.of(tx, user.id)).seal("s", b"secret")
        await people.forget(tx, user.id)
        await people.forget(tx, user.id)
        assert (await people.get(tx, user.id)).state is UserState.DELETED
        with pytest.raises(UserErased):
            await keyring.of(tx, user.id)
        with pytest.raises(UserErased):
            await people.activate(tx, user.id)
        with pytest.raises(UserErased):
            await people.allow_training(tx, user.id, trains=True)
    newcomer, is_new = await meet(database, people)
    assert is_new
    assert newcomer.id != user.id
    async with database.begin() as tx:
        others = await keyring.of(tx, newcomer.id)
    with pytest.raises(SealBroken):
        others.open("s", sealed)


async def test_there_is_no_such_user(database: Database, people: PostgresUsers) -> None:
    async with database.begin() as tx:
        for call in (people.get(tx, uuid4()), people.activate(tx, uuid4()), people.forget(tx, uuid4())):
            with pytest.raises(NotFound):
                await call


async def test_another_process_notices_within_its_cache_time(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    user, _ = await meet(database, people)
    elsewhere = Keyring(keyring._masters, keep_s=0.0)
    async with database.begin() as tx:
        await elsewhere.of(tx, user.id)
        await people.forget(tx, user.id)
        with pytest.raises(UserErased):
            await elsewhere.of(tx, user.id)


async def test_no_address_of_somebody_who_was_forgotten_stays(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    claim = await new_claim(database, keyring, channel="phone-4711")
    async with database.begin() as tx:
        await PostgresOutbox(keyring).put(tx, claim, ["answer"])
        await connection_of(tx).execute("update inbox set event_key = 'from phone-4711'")
        await people.forget(tx, claim.user_id)
        tables = [row[0] for row in await (await connection_of(tx).execute("select relname from pg_stat_user_tables")).fetchall()]
        connection = connection_of(tx)
        found = [table for table in tables if "4711" in str(await (await connection.execute(f"select t::text from {table} t")).fetchall())]  # noqa: S608
    assert found == []


async def test_a_group_goes_on_when_the_one_who_opened_it_is_forgotten(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    opener = await new_claim(database, keyring, channel="opener")
    async with database.begin() as tx:
        inbox = PostgresInbox(keyring)
        group = replace(opener.envelope, channel_id="group", event_key="o1")
        await people.find_or_create(tx, "shop", Platform.REST, "opener", state=UserState.ACTIVE)
        await inbox.accept(tx, group, uuid4())
        await people.find_or_create(tx, "shop", Platform.REST, "carol", state=UserState.ACTIVE)
        await inbox.accept(tx, replace(group, event=replace(group.event, sender_id="carol"), event_key="c1"), uuid4())
        await people.forget(tx, opener.user_id)
        named = "select channel_id from conversations where channel_id not like 'forgotten/%'"
        assert await (await connection_of(tx).execute(named)).fetchall() == [("group",)]


async def test_a_reader_during_the_deletion_does_not_keep_the_keys(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    user, _ = await meet(database, people)
    async with database.begin() as deletion:
        await people.forget(deletion, user.id)
        async with database.begin() as reader:  # the deletion is not committed: the keys are still there, for this once
            await keyring.of(reader, user.id)
    async with database.begin() as tx:
        with pytest.raises(UserErased):
            await keyring.of(tx, user.id)


async def test_a_new_generation_seals_and_the_old_one_still_opens(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    user, _ = await meet(database, people)
    async with database.begin() as tx:
        old = (await keyring.of(tx, user.id)).seal("s", b"old")
        await keyring.make(tx, user.id)
        keys = await keyring.of(tx, user.id)
    assert (keys.newest, keys.open("s", old), keys.open("s", keys.seal("s", b"new"))) == (2, b"old", b"new")


async def test_master_keys_are_rotated_without_touching_what_was_sealed(database: Database) -> None:
    old, new = new_master_key(), new_master_key()
    before = Keyring(MasterKeys.parse([old]))
    users = [(await meet(database, PostgresUsers(before), f"{n}"))[0] for n in range(5)]
    async with database.begin() as tx:
        sealed = [(await before.of(tx, user.id)).seal("s", b"kept") for user in users]
    both = Keyring(MasterKeys.parse([new, old]))
    async with database.begin() as tx:
        with pytest.raises(MasterKeyMissing):
            await Keyring(MasterKeys.parse([new])).of(tx, users[0].id)
        assert [await both.rewrap(tx, limit=3) for _ in range(3)] == [3, 2, 0]
        after = Keyring(MasterKeys.parse([new]))
        assert [(await after.of(tx, user.id)).open("s", blob) for user, blob in zip(users, sealed, strict=True)] == [b"kept"] * 5


async def test_keys_that_may_not_be_used_any_more_leave_memory(database: Database, people: PostgresUsers, keyring: Keyring) -> None:
    users = [(await meet(database, people, sender))[0] for sender in ("one", "two")]
    short = Keyring(keyring._masters, keep_s=0.05)
    async with database.begin() as tx:
        await short.of(tx, users[0].id)
        await asyncio.sleep(0.06)
        await short.of(tx, users[1].id)
    assert list(short._known) == [users[1].id]
