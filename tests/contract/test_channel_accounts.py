"""Accounts at platforms, sealed."""

import pytest

from hermes.ports.channels import ChannelAccount
from hermes.ports.errors import NotFound
from hermes.stores.postgres.channel_accounts import PostgresChannelAccounts
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform

BOT = ChannelAccount(platform=Platform.TELEGRAM, account="my-bot", about={"token": "7:secret", "secret": "s"}, is_polled=True)


@pytest.fixture
def accounts(keyring: Keyring) -> PostgresChannelAccounts:
    return PostgresChannelAccounts(keyring)


async def test_an_account_comes_back_as_it_was_and_is_replaced_under_its_name(
    database: Database, accounts: PostgresChannelAccounts
) -> None:
    async with database.begin() as tx:
        assert await accounts.put(tx, BOT)
        assert await accounts.get(tx, Platform.TELEGRAM, "my-bot") == BOT
        other = ChannelAccount(platform=Platform.TELEGRAM, account="my-bot", about={"token": "8:new"})
        assert not await accounts.put(tx, other)
        found = await accounts.get(tx, Platform.TELEGRAM, "my-bot")
    assert (found.about, found.is_polled, found.id) == ({"token": "8:new"}, False, BOT.id)
    assert "8:new" not in repr(found)


async def test_the_mark_is_another_one_after_every_change(database: Database, accounts: PostgresChannelAccounts) -> None:
    marks = []
    for act in (None, BOT, BOT, "remove"):
        async with database.begin() as tx:
            match act:
                case ChannelAccount():
                    await accounts.put(tx, act)
                case "remove":
                    assert await accounts.remove(tx, BOT.platform, BOT.account)
            marks.append(await accounts.mark(tx))
    assert len({*marks}) == 3, "without accounts it is what it was in the beginning"
    assert marks[1] != marks[2]


async def test_what_opens_an_account_is_sealed_and_gone_when_it_is_removed(database: Database, accounts: PostgresChannelAccounts) -> None:
    async with database.begin() as tx:
        await accounts.put(tx, BOT)
        [[sealed]] = await (await connection_of(tx).execute("select about from channel_accounts")).fetchall()
        assert b"secret" not in bytes(sealed)
        assert await accounts.remove(tx, BOT.platform, BOT.account)
        assert not await accounts.remove(tx, BOT.platform, BOT.account)
        assert await accounts.list(tx) == []
        with pytest.raises(NotFound):
            await accounts.get(tx, BOT.platform, BOT.account)
        [[keys]] = await (await connection_of(tx).execute("select count(*) from data_keys where user_id = %s", [BOT.id])).fetchall()
    assert keys == 0


async def test_an_account_that_cannot_be_opened_is_left_out_and_the_others_are_there(
    database: Database, accounts: PostgresChannelAccounts
) -> None:
    second = ChannelAccount(platform=Platform.WHATSAPP, account="shop", about={"token": "x"})
    async with database.begin() as tx:
        await accounts.put(tx, BOT)
        await accounts.put(tx, second)
        await connection_of(tx).execute("update channel_accounts set about = '\\x00' where platform = 'whatsapp'")
        assert await accounts.list(tx) == [BOT]
        stranger = PostgresChannelAccounts(Keyring(MasterKeys.parse([new_master_key()])))
        assert await stranger.list(tx) == []
