"""A connection is lost after the commit and before the answer: what was written stands once, and its callers are told the truth."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import date
from uuid import UUID

import pytest

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.graph import CallRecord
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import ChatMatch, GraphEntry
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database, connection_of, execute, fetch_value, fetch_values, open_database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.migrate import migrate
from hermes.stores.postgres.sessions import PostgresClientChats
from hermes.stores.postgres.statement_batch import StatementBatch
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.time_ids import new_time_id
from hermes.turn import Platform
from tests.faults.lossy_proxy import Loss, LossyProxy, lossy_proxy

CHATS = 12
LAST = f"message {CHATS - 1}"
"""Is sent in a batch with others."""


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[LossyProxy]:
    await migrate(database_url)
    async with lossy_proxy(database_url) as proxy:
        yield proxy


@pytest.fixture
async def database(proxy: LossyProxy) -> AsyncIterator[Database]:
    async with open_database(proxy.url) as database:
        yield database


@pytest.fixture
def keyring() -> Keyring:
    return Keyring(MasterKeys.parse([new_master_key()]))


@pytest.fixture
async def user_id(database: Database, keyring: Keyring) -> UUID:
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.COMPLETIONS, "ada", state=UserState.ACTIVE)
    return user.id


COUNTS = b"""
select (select count(*) from sessions), (select count(*) from graph_samples), (select count(*) from door_samples),
    (select count(*) from calls)
"""


class Client:
    """A client of the endpoint with several chats, each of which gets its answers."""

    def __init__(self, database: Database, keyring: Keyring, user_id: UUID) -> None:
        self.database, self.user_id = database, user_id
        self.chats = PostgresClientChats(database, keyring)

    async def find(self, number: int, round_: int) -> ChatMatch | None:
        """The chat that a new message goes on with."""
        marks = ChatFingerprinter(exchanges(number, round_)).fingerprints
        return await self.chats.look(self.user_id, marks) if marks else None

    async def record(self, number: int, round_: int, found: ChatMatch | None) -> UUID | None:
        """Record the answer to a new message of a chat; None if it was not recorded in one statement."""
        said = exchanges(number, round_ + 1)
        entries = [GraphEntry(said[-2]), GraphEntry(said[-1], is_sampled=True, call=CallRecord(model="m"))]
        call = ModelCall(
            id=new_time_id(),
            source=CallSource.COMPLETIONS,
            tier="pro",
            day=date(2026, 11, 19),
            outcome=CallOutcome.ANSWERED,
            account_id="shop",
            backend="vllm",
            model=f"message {number}",
            latency_ms=1,
        )
        chat = found or await self.chats.plan(self.user_id)
        added = await self.chats.add(self.user_id, chat, entries, ChatFingerprinter(said).fingerprints[-1], call)
        return None if added is None else added.session_id

    async def counts(self) -> tuple[int, int, int, int]:
        """How many chats, samples, fingerprints and calls are stored."""
        async with self.database.once() as tx:
            row = await (await connection_of(tx).execute(COUNTS)).fetchone()
        assert row is not None
        return row[0], row[1], row[2], row[3]


def exchanges(number: int, rounds: int) -> list[dict[str, str]]:
    """What was said in a chat."""
    roles = ("user", "assistant")
    return [{"role": role, "content": f"{number}, {round_}"} for round_ in range(rounds) for role in roles]


@pytest.mark.parametrize("loss", Loss)
async def test_answers_whose_batch_is_lost_are_recorded_once_and_their_chats_are_known(
    proxy: LossyProxy, database: Database, keyring: Keyring, user_id: UUID, loss: Loss
) -> None:
    client = Client(database, keyring, user_id)
    chats: list[UUID | None] = []
    for round_ in range(3):
        found = [await client.find(number, round_) for number in range(CHATS)]
        proxy.lose(LAST.encode(), loss)
        told = await asyncio.gather(*(client.record(number, round_, chat) for number, chat in enumerate(found)))
        assert proxy.lost == 1
        assert None not in told, "what stands is not written once more in the slow way"
        assert round_ == 0 or told == chats
        assert len(set(told)) == CHATS
        assert await client.counts() == (CHATS, *[(round_ + 1) * CHATS] * 3)
        chats = list(told)


ADD = b"insert into words (word) select unnest(%(words)s::text[]) on conflict do nothing returning word"


async def add(tx: Transaction, words: Sequence[str]) -> list[bool]:
    written = await fetch_values(tx, ADD, {"words": list(words)})
    return [word in written for word in words]


async def is_there(tx: Transaction, word: str) -> bool:
    return await execute(tx, b"select from words where word = %(word)s", {"word": word}) > 0


@pytest.mark.parametrize("loss", Loss)
async def test_an_item_of_a_lost_batch_that_refuses_a_second_row_tells_of_the_first(
    proxy: LossyProxy, database: Database, loss: Loss
) -> None:
    async with database.once() as tx:
        await execute(tx, b"create table words (word text primary key)")
        await add(tx, ["word 5"])
    batch = StatementBatch(database, add, is_done=is_there)
    proxy.lose(b"word 11", loss)
    rows = await asyncio.gather(*(batch.run(f"word {number}") for number in range(12)))
    assert proxy.lost == 1
    # Of a row that stood before, a lost batch cannot say whose it is. The ids of chats and calls are random, so theirs is their own.
    assert [is_written for number, is_written in enumerate(rows) if number != 5] == [True] * 11
    async with database.once() as tx:
        assert await fetch_value(tx, b"select count(*) from words") == 12
    assert not await batch.run("word 5"), "nothing is lost, so nothing is in doubt"
