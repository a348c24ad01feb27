"""A client has its answer before its record is written: what the next request of the chat finds then, in this process and in others."""

import asyncio
from collections.abc import AsyncIterator
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.gateway.chat_request import read_request
from hermes.gateway.client_chats import ChatRecorder, ChatStores
from hermes.ports.backends import Completion, Usage
from hermes.ports.errors import UserErased
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.ports.users import UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.sessions import PostgresClientChats
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.announced_answers import RedisAnnouncedAnswers
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform

USAGE = Usage(tokens_in=1, tokens_out=1)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class Process:
    """A process that records the chats of one user."""

    def __init__(self, database: Database, keyring: Keyring, redis: Redis, user_id: UUID) -> None:
        self.database, self.user_id = database, user_id
        self.graphs = PostgresGraphs(keyring)
        chats = PostgresClientChats(database, keyring, RedisAnnouncedAnswers(redis))
        self.stores = ChatStores(chats=chats, graphs=self.graphs, calls=PostgresModelCalls(), transactions=database)

    def recorder(self, *messages: dict[str, Any], name: str | None = None) -> ChatRecorder:
        request = read_request({"model": "m", "messages": list(messages)}, max_choices=1)
        return ChatRecorder(request, self.stores, account="shop", user_id=self.user_id, name=name)

    def call(self) -> ModelCall:
        return ModelCall(
            id=uuid4(),
            day=date(2026, 11, 15),
            account_id="shop",
            source=CallSource.COMPLETIONS,
            tier="t",
            user_id=self.user_id,
            model="m",
            outcome=CallOutcome.ANSWERED,
            latency_ms=1,
            usage=USAGE,
        )

    async def answer(self, text: str, *messages: dict[str, Any], name: str | None = None) -> UUID:
        """Answer a request and record that; return its session."""
        recorder = self.recorder(*messages, name=name)
        with recorder.look_ahead():
            place = await recorder.place(completion(text))
            recorded = await recorder.record(self.call(), completion(text))
        assert place in {None, recorded}, "the client was told the session in which the answer is recorded"
        return recorded

    async def chats(self) -> dict[UUID, list[tuple[list[str], str]]]:
        """Every session, with its samples and the contexts that they saw."""
        async with self.database.begin() as tx:
            rows = await (await connection_of(tx).execute("select id from sessions order by number")).fetchall()
            graphs = {row[0]: await self.graphs.load(tx, row[0]) for row in rows}
        assert all(graph.verify() for graph in graphs.values())
        return {
            session_id: [([one["content"] for one in each.context], each.message["content"]) for each in graph.responses()]
            for session_id, graph in graphs.items()
        }


def completion(text: str) -> Completion:
    return Completion(message=said(text), finish_reason="stop", usage=USAGE, model="m", request_digest="")


@pytest.fixture
async def processes(database: Database, redis_url: str) -> AsyncIterator[tuple[Process, Process]]:
    keyring = Keyring(MasterKeys.parse([new_master_key()]))
    async with database.begin() as tx:
        found, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.COMPLETIONS, "u", state=UserState.ACTIVE)
    async with Redis.from_url(redis_url) as redis:
        yield Process(database, keyring, redis, found.id), Process(database, keyring, redis, found.id)


ONE, TWO = user("What is the first number?"), user("And then?")
FIRST, SECOND = "The first number of all is one.", "Then comes two, and then three."
BOTH = [([ONE["content"]], FIRST), ([ONE["content"], FIRST, TWO["content"]], SECOND)]


@pytest.mark.parametrize("is_other", [False, True], ids=["this process", "another process"])
@pytest.mark.parametrize("is_named", [False, True], ids=["by the answer", "by the session's name"])
async def test_the_next_request_waits_for_the_record_of_the_answer(
    processes: tuple[Process, Process], *, is_other: bool, is_named: bool
) -> None:
    ours = processes[0]
    recorder = ours.recorder(ONE)
    with recorder.look_ahead():
        session_id = await recorder.place(completion(FIRST))
    assert session_id is not None
    name = str(session_id) if is_named else None
    following = asyncio.create_task(processes[is_other].answer(SECOND, ONE, said(FIRST), TWO, name=name))
    await asyncio.sleep(0.2)
    assert not following.done()
    assert await recorder.record(ours.call(), completion(FIRST)) == session_id
    assert await following == session_id
    assert await ours.chats() == {session_id: BOTH}


async def test_an_answer_whose_process_was_killed_is_waited_for_only_a_moment(processes: tuple[Process, Process]) -> None:
    killed, other = processes
    recorder = killed.recorder(ONE)
    with recorder.look_ahead():
        assert await recorder.place(completion(FIRST)) is not None
    await asyncio.wait_for(other.answer(SECOND, ONE, said(FIRST), TWO), 20)
    assert list((await other.chats()).values()) == [BOTH[1:]], "the lost answer is context, and no sample"


async def test_two_answers_in_one_place_are_both_recorded_where_their_clients_were_told(processes: tuple[Process, Process]) -> None:
    ours, other = processes
    session_id = await ours.answer(FIRST, ONE)
    recorders = [process.recorder(ONE, said(FIRST), TWO) for process in (ours, other)]
    for recorder in recorders:
        with recorder.look_ahead():
            assert await recorder.place(completion(SECOND)) == session_id
    told = await asyncio.gather(*(recorder.record(ours.call(), completion(SECOND)) for recorder in recorders))
    assert told == [session_id] * 2
    [samples] = (await ours.chats()).values()
    assert samples == [BOTH[0], BOTH[1], BOTH[1]]


async def test_a_chat_that_another_process_continued_is_no_longer_what_this_one_remembers(
    processes: tuple[Process, Process],
) -> None:
    ours, other = processes
    session_id = await ours.answer(FIRST, ONE)
    assert ours.stores.recent.find(ours.user_id, ChatFingerprinter([ONE, said(FIRST)]).fingerprints[0]) is not None
    assert await other.answer(SECOND, ONE, said(FIRST), TWO) == session_id
    three, third = user("And what was before it?"), "Before it was nothing that counts."
    assert await ours.answer(third, ONE, said(FIRST), three) == session_id, "an edit of the chat: the client took another way from there"
    [samples] = (await ours.chats()).values()
    assert samples == [*BOTH, ([ONE["content"], FIRST, three["content"]], third)]
    fourth = "Nothing is a number too, in a way."
    assert await ours.answer(fourth, ONE, said(FIRST), three, said(third), TWO) == session_id
    assert (await ours.chats())[session_id][-1] == ([ONE["content"], FIRST, three["content"], third, TWO["content"]], fourth)


THREE, THIRD = user("And what was before it?"), "Before it was nothing that counts."


async def test_of_two_chats_with_equal_lists_the_one_that_still_ends_there_goes_on(processes: tuple[Process, Process]) -> None:
    ours, other = processes
    equal = {await ours.answer(FIRST, ONE), await ours.answer(FIRST, ONE)}
    assert len(equal) == 2
    gone_on = await other.answer(SECOND, ONE, said(FIRST), TWO)  # the other process continues the one that this process remembers
    assert await ours.answer(THIRD, ONE, said(FIRST), THREE) == (equal - {gone_on}).pop()


async def test_a_chat_that_went_on_unseen_in_this_process_is_not_taken_for_one_that_ends_there(processes: tuple[Process, Process]) -> None:
    ours = processes[0]
    equal = {await ours.answer(FIRST, ONE), await ours.answer(FIRST, ONE)}
    recorder = ours.recorder(ONE, said(FIRST), TWO)
    async with recorder.open_chat():  # as for several answers at once
        gone_on = await recorder.record(ours.call(), completion(SECOND))
    assert await ours.answer(THIRD, ONE, said(FIRST), THREE) == (equal - {gone_on}).pop()


async def test_a_call_that_gives_no_answer_keeps_no_request_waiting(processes: tuple[Process, Process]) -> None:
    ours, other = processes
    recorder = ours.recorder(ONE)
    with recorder.look_ahead():
        await asyncio.sleep(0.2)  # it has been announced meanwhile
    began = asyncio.get_running_loop().time()
    await other.answer(SECOND, ONE, said("An example of the client's own, which is long enough."), TWO)
    assert asyncio.get_running_loop().time() - began < 0.9


@pytest.mark.parametrize("how", ["the user", "the account's words", "the chat"])
async def test_an_answer_whose_chat_is_erased_before_its_record_leaves_nothing_of_it(database: Database, redis_url: str, how: str) -> None:
    master = new_master_key()
    ours, others = (Keyring(MasterKeys.parse([master])) for _ in range(2))
    async with database.begin() as tx:
        found, _ = await PostgresUsers(ours).find_or_create(tx, "shop", Platform.COMPLETIONS, "u", state=UserState.ACTIVE)
    async with Redis.from_url(redis_url) as redis:
        process = Process(database, ours, redis, found.id)
        session_id = await process.answer(FIRST, ONE)
        recorder = process.recorder(ONE, said(FIRST), TWO)
        with recorder.look_ahead():
            assert await recorder.place(completion(SECOND)) == session_id
        async with database.begin() as tx:  # another process erases it, and the client has its answer
            if how == "the user":
                await PostgresUsers(others).forget(tx, found.id)
            elif how == "the account's words":
                await PostgresUsers(others).forget_in_account(tx, found.id, "shop")
            else:
                await connection_of(tx).execute("select drop_graphs(array[%s::uuid])", [session_id])
        if how == "the chat":  # by retention: the user is still there, so the answer is a sample, with its whole context
            recorded = await recorder.record(process.call(), completion(SECOND))
            async with database.begin() as tx:
                graph = await process.graphs.load(tx, recorded)
            assert graph.verify()
            assert [message["content"] for message in graph] == [ONE["content"], FIRST, TWO["content"], SECOND]
        else:
            with pytest.raises(UserErased):
                await recorder.record(process.call(), completion(SECOND))
            async with database.begin() as tx:
                for table in ("graph_messages", "graph_samples", "door_samples"):
                    left = await (await connection_of(tx).execute(f"select count(*) from {table}")).fetchone()  # noqa: S608  # a constant
                    assert left == (0,), table


async def test_a_withdrawal_comes_after_its_own_announcement(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as redis:
        batch = ScriptBatch(redis)
        answers = RedisAnnouncedAnswers(redis, batch)
        await answers.announce([b"other"])
        under_way = asyncio.create_task(batch.read("PING"))
        await asyncio.sleep(0)
        answers.withdraw([b"other"])
        announced = answers.announce([b"mine"])
        answers.withdraw([b"mine"])  # its client left before the trip
        await announced
        await under_way
        await batch.read("PING")
        assert await redis.keys("hermes:unrecorded:*") == []
