"""A connection is lost while messages are accepted together: each is stored once, and its sender hears that it is new."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from hermes.ports.inbox import AcceptedMessage
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database, fetch_value, open_database
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import migrate
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Envelope, MessageEvent, Platform
from tests.faults.lossy_proxy import Loss, LossyProxy, lossy_proxy

SENDERS = [f"s{number}" for number in range(12)]


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[LossyProxy]:
    await migrate(database_url)
    async with lossy_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def database(proxy: LossyProxy) -> AsyncIterator[Database]:
    async with open_database(proxy.url) as database:
        yield database


async def accept_round(database: Database, inbox: PostgresInbox, number: int) -> list[AcceptedMessage | None]:
    """Each sender's next message, all at the same time."""
    waiting = []
    for sender in SENDERS:
        event = MessageEvent(platform=Platform.TELEGRAM, sender_id=sender, text="hello")
        envelope = Envelope(event=event, account="bot", channel_id=sender, event_key=f"{sender}/{number}")
        waiting.append(inbox.accept_now(database, envelope, uuid4(), defer_in_s=0.0))
    return await asyncio.gather(*waiting)


@pytest.mark.parametrize("loss", Loss)
async def test_a_batch_whose_connection_is_lost_is_stored_once_and_is_new(proxy: LossyProxy, database: Database, loss: Loss) -> None:
    keyring = Keyring(MasterKeys.parse([new_master_key()]))
    people, inbox = PostgresUsers(keyring), PostgresInbox(keyring, database=database)
    async with database.begin() as tx:
        for sender in SENDERS:
            await people.find_or_create(tx, "bot", Platform.TELEGRAM, sender, state=UserState.ACTIVE)
    first = await accept_round(database, inbox, 1)
    proxy.lose(f"{SENDERS[-1]}/2".encode(), loss)
    second = await accept_round(database, inbox, 2)
    assert proxy.lost == 1
    assert [(each and each.seq, each and each.is_new) for each in first] == [(1, True)] * len(SENDERS)
    assert [(each and each.seq, each and each.is_new) for each in second] == [(2, True)] * len(SENDERS)
    again = await accept_round(database, inbox, 2)
    assert [each and (each.turn_id, each.is_new) for each in again] == [each and (each.turn_id, False) for each in second]
    async with database.once() as tx:
        counted = [await fetch_value(tx, b"select count(*) from " + table) for table in (b"inbox", b"procrastinate_jobs")]
    assert counted == [2 * len(SENDERS)] * 2
