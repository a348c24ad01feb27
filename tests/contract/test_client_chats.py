"""Chats that are found again by what was said in them."""

import asyncio
from dataclasses import replace
from datetime import date
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.gateway.chat_fingerprints import ChatFingerprinter
from hermes.graph import CallRecord
from hermes.ports.errors import UserErased
from hermes.ports.models import CallOutcome, CallSource, ModelCall
from hermes.ports.sessions import ChatFingerprint, ChatMatch, ChatTraces, ClientChats, GraphEntry
from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresClientChats
from hermes.stores.postgres.users import PostgresUsers
from hermes.turn import Platform


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def marks(*messages: dict[str, Any]) -> list[ChatFingerprint]:
    return ChatFingerprinter(messages).fingerprints


class House:
    """Chats of two users in one account."""

    def __init__(self, database: Database, chats: ClientChats, alice: UUID, bob: UUID) -> None:
        self.database, self.chats, self.alice, self.bob = database, chats, alice, bob

    async def begin(self, *messages: dict[str, Any], user_id: UUID | None = None) -> UUID:
        """A chat that ends with a response, and stands there."""
        async with self.database.begin() as tx:
            found = await self.chats.begin(tx, "shop", user_id or self.alice)
            assert found.is_new
            await self.chats.note(tx, user_id or self.alice, found.session_id, found.head, marks(*messages)[-1])
            return found.session_id

    async def find(self, *messages: dict[str, Any], user_id: UUID | None = None) -> ChatMatch | None:
        async with self.database.begin() as tx:
            return await self.chats.find(tx, user_id or self.alice, marks(*messages))

    async def moved(self, session_id: UUID) -> None:
        """Somebody wrote in the chat, so its list is another one."""
        async with self.database.begin() as tx:
            await connection_of(tx).execute("update sessions set head = 'elsewhere' where id = %s", [session_id])


@pytest.fixture
async def house(database: Database, keyring: Keyring, user: User) -> House:
    async with database.begin() as tx:
        other, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.COMPLETIONS, "bob", state=UserState.ACTIVE)
        await connection_of(tx).execute("insert into accounts (id) values ('shop') on conflict do nothing")
        channel = "insert into user_channels (account_id, platform, sender_id, user_id) values ('shop', 'completions', 'alice', %s)"
        await connection_of(tx).execute(channel, [user.id])
    return House(database, PostgresClientChats(database, keyring), user.id, other.id)


async def test_a_chat_is_found_by_a_list_that_ends_with_its_response(house: House) -> None:
    chat = await house.begin(user("one"), said("1"))
    found = await house.find(user("one"), said("1"), user("two"))
    assert found is not None
    assert (found.session_id, found.known, found.is_new) == (chat, marks(user("one"), said("1"))[0], False)
    assert await house.find(user("one"), said("other")) is None
    assert await house.find(user("one")) is None


async def test_by_an_echo_alone_the_list_must_be_looked_at(house: House) -> None:
    chat = await house.begin(user("one"), said("one is the first number"))
    found = await house.find(user("(summary)"), said("one is the first number"), user("two"))
    assert found is not None
    assert (found.session_id, found.known) == (chat, None)
    await house.begin(user("three"), said("yes"))
    assert await house.find(user("an example"), said("yes"), user("two")) is None, "a short answer may be the client's own"
    short = await house.find(user("(summary)"), user("three"), said("yes"))
    assert short is not None, "with its question it is ours"


async def test_the_longest_known_list_comes_before_the_newest_echo(house: House) -> None:
    first = await house.begin(user("a"), said("ok"))
    second = await house.begin(user("b"), said("ok"))
    assert [found.session_id for found in (await house.find(user("a"), said("ok")), await house.find(user("b"), said("ok"))) if found] == [
        first,
        second,
    ]
    for question in ("d", "e"):
        await house.begin(user(question), said("all of it is done now"))
    assert await house.find(user("c"), said("all of it is done now")) is None, "an answer of two chats is evidence for neither"
    longer = await house.begin(user("a"), said("ok"), user("more"), said("more"))
    both = await house.find(user("a"), said("ok"), user("more"), said("more"))
    assert both is not None
    assert both.session_id == longer


async def test_a_list_that_moved_on_must_be_looked_at(house: House) -> None:
    chat = await house.begin(user("one"), said("1"))
    await house.moved(chat)
    found = await house.find(user("one"), said("1"), user("two"))
    assert found is not None
    assert (found.session_id, found.head, found.known) == (chat, "elsewhere", None)


async def test_reasoning_is_shown_whole_or_not_at_all_or_the_list_must_be_looked_at(house: House) -> None:
    await house.begin(user("one"), said("1", reasoning="hm"))
    whole = await house.find(user("one"), said("1", reasoning="hm"))
    hidden = await house.find(user("one"), said("1"))
    forged = await house.find(user("one"), said("1", reasoning="ha"))
    assert whole is not None
    assert hidden is not None
    assert forged is not None
    assert [found.known is not None for found in (whole, hidden, forged)] == [True, True, False]
    assert [found.has_reasoning for found in (whole, hidden)] == [True, False]


async def test_nobody_finds_the_chat_of_somebody_else(house: House) -> None:
    chat = await house.begin(user("one"), said("1"))
    assert await house.find(user("one"), said("1"), user_id=house.bob) is None
    async with house.database.begin() as tx:
        assert await house.chats.get(tx, house.bob, chat) is None
        named = await house.chats.find_or_begin(tx, "shop", house.bob, str(chat), [])
    assert named.is_new, "the id of somebody else's chat is only a name"
    assert named.session_id != chat


async def test_a_name_is_one_chat_also_for_two_who_come_at_once(house: House) -> None:
    async def come() -> UUID:
        async with house.database.begin() as tx:
            return (await house.chats.find_or_begin(tx, "shop", house.alice, "game 7", [])).session_id

    assert len({*(await asyncio.gather(*(come() for _ in range(8))))}) == 1


async def test_a_named_chat_knows_where_it_stands(house: House) -> None:
    chat = await house.begin(user("one"), said("1"))
    async with house.database.begin() as tx:
        found = await house.chats.find_or_begin(tx, "shop", house.alice, str(chat), marks(user("one"), said("1")))
        other = await house.chats.find_or_begin(tx, "shop", house.alice, str(chat), marks(user("two"), said("2")))
    assert (found.session_id, found.known) == (chat, marks(user("one"), said("1"))[0])
    assert (other.session_id, other.known) == (chat, None)


async def test_a_response_beside_the_list_is_an_echo_that_must_be_looked_at(house: House) -> None:
    chat = await house.begin(user("one"), said("1"))
    async with house.database.begin() as tx:
        await house.chats.note(tx, house.alice, chat, None, marks(user("one"), said("other"))[0])
    found = await house.find(user("one"), said("other"))
    assert found is not None
    assert (found.session_id, found.known) == (chat, None)


async def test_a_found_chat_is_locked_until_the_end(house: House) -> None:
    await house.begin(user("one"), said("1"))
    order: list[str] = []
    async with house.database.begin() as tx:
        await house.chats.find(tx, house.alice, marks(user("one"), said("1")))

        async def second() -> None:
            await house.find(user("one"), said("1"))
            order.append("second")

        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.1)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_the_database_does_not_tell_what_was_said(house: House) -> None:
    for owner in (house.alice, house.bob):
        await house.begin(user("secret"), said("very secret"), user_id=owner)
    mark = marks(user("secret"), said("very secret"))[0]
    async with house.database.begin() as tx:
        rows = await (await connection_of(tx).execute("select shown, whole, echo from door_samples")).fetchall()
    first, second = rows
    assert not {*first} & {*second}, "equal words of two users look different"
    assert not {*first, *second} & {mark.shown[:16], mark.whole[:16], mark.echo[:16]}


async def test_for_a_deleted_user_there_is_nothing(house: House, keyring: Keyring) -> None:
    await house.begin(user("one"), said("1"))
    async with house.database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, house.alice)
    with pytest.raises(UserErased):
        await house.find(user("one"), said("1"))
    with pytest.raises(UserErased):
        async with house.database.begin() as tx:
            await house.chats.begin(tx, "shop", house.alice)


async def test_an_unknown_chat_is_not_there(house: House) -> None:
    async with house.database.begin() as tx:
        assert await house.chats.get(tx, house.alice, uuid4()) is None


def call_of(house: House) -> ModelCall:
    return ModelCall(
        id=uuid4(),
        day=date(2026, 11, 15),
        account_id="shop",
        source=CallSource.COMPLETIONS,
        tier="pro",
        model="m",
        outcome=CallOutcome.ANSWERED,
        latency_ms=1,
        user_id=house.alice,
        micro_usd=7,
    )


def entries(*messages: dict[str, Any], sample_id: str) -> list[GraphEntry]:
    *before, last = messages
    return [*map(GraphEntry, before), GraphEntry(last, is_sampled=True, call=CallRecord(model="m"), sample_id=sample_id)]


async def rows(house: House) -> list[tuple[Any, ...]]:
    async with house.database.begin() as tx:
        return await (await connection_of(tx).execute("select id, session_id, micro_usd from calls order by created_at")).fetchall()


async def test_a_chat_is_begun_and_goes_on_with_its_call_in_one_stroke(house: House, keyring: Keyring) -> None:
    question, answer, more, last = user("one"), said("1"), user("two"), said("2")
    first, second = call_of(house), call_of(house)
    chat = await house.chats.add(
        house.alice, await house.chats.plan(house.alice), entries(question, answer, sample_id="a"), marks(question, answer)[0], first
    )
    assert chat is not None
    found = await house.chats.look(house.alice, marks(question, answer, more))
    assert found == chat, "what is returned is what would be found"
    assert found.known == marks(question, answer)[0]
    mark = marks(question, answer, more, last)[-1]
    grown = await house.chats.add(house.alice, found, entries(more, last, sample_id="b"), mark, second)
    async with house.database.begin() as tx:
        graph = await PostgresGraphs(keyring).load(tx, chat.session_id)
    assert grown == ChatMatch(chat.session_id, graph.head, mark)
    assert graph == [question, answer, more, last]
    assert [response.context for response in graph.responses()] == [[question], [question, answer, more]]
    assert graph.verify()
    assert await rows(house) == [(first.id, chat.session_id, 7), (second.id, chat.session_id, 7)]
    again = await house.chats.look(house.alice, marks(question, answer, more, last))
    assert again is not None
    assert again.known == mark


async def test_what_was_found_and_has_moved_is_not_written(house: House, keyring: Keyring) -> None:
    question, answer = user("one"), said("1")
    chat = await house.chats.add(
        house.alice,
        await house.chats.plan(house.alice),
        entries(question, answer, sample_id="a"),
        marks(question, answer)[0],
        call_of(house),
    )
    assert chat is not None
    found = await house.chats.look(house.alice, marks(question, answer))
    assert found is not None
    calls = [call_of(house) for _ in range(2)]
    both = await asyncio.gather(
        *(
            house.chats.add(house.alice, found, entries(user(f"q{at}"), said(f"a{at}"), sample_id=f"s{at}"), None, calls[at])
            for at in range(2)
        )
    )
    assert {None if each is None else each.session_id for each in both} == {chat.session_id, None}, (
        "of two that go on from one place, one finds that it has moved"
    )
    async with house.database.begin() as tx:
        graph = await PostgresGraphs(keyring).load(tx, chat.session_id)
    assert len(graph) == 4


async def test_a_known_sample_is_not_written_again_in_one_stroke(house: House) -> None:
    question, answer = user("one"), said("1")
    await house.chats.add(
        house.alice,
        await house.chats.plan(house.alice),
        entries(question, answer, sample_id="a"),
        marks(question, answer)[0],
        call_of(house),
    )
    found = await house.chats.look(house.alice, marks(question, answer))
    assert found is not None
    assert await house.chats.add(house.alice, found, entries(user("x"), said("y"), sample_id="a"), None, call_of(house)) is None


async def test_an_answer_that_says_nothing_leaves_no_mark(house: House) -> None:
    await house.chats.add(
        house.alice, await house.chats.plan(house.alice), entries(user("one"), said(""), sample_id="a"), None, call_of(house)
    )
    async with house.database.begin() as tx:
        assert await (await connection_of(tx).execute("select count(*) from door_samples")).fetchone() == (0,)


async def test_no_chat_is_begun_for_a_request_with_a_trace_of_another_and_nothing_is_written(house: House) -> None:
    question, answer, more, last = user("one"), said("1"), user("two"), said("2")
    first = marks(question, answer)[0]
    shown = ChatTraces(contexts=(b"c" * 32,), spans=(b"s" * 32,))
    chat = await house.chats.add(
        house.alice,
        await house.chats.plan(house.alice),
        entries(question, answer, sample_id="a"),
        replace(first, traces=shown),
        known := call_of(house),
    )
    mark = marks(more, last)[0]
    for traces in (ChatTraces(contexts=shown.contexts), ChatTraces(spans=(b"x" * 32, *shown.spans))):
        call = call_of(house)
        assert (
            await house.chats.add(
                house.alice, await house.chats.plan(house.alice), entries(more, last, sample_id="b"), mark, call, unless=traces
            )
            is None
        )
    assert chat is not None
    assert await rows(house) == [(known.id, chat.session_id, 7)]
    async with house.database.begin() as tx:
        assert await (await connection_of(tx).execute("select count(*) from sessions")).fetchone() == (1,)
    unrelated = ChatTraces(spans=(b"y" * 32,))
    assert (
        await house.chats.add(
            house.alice, await house.chats.plan(house.alice), entries(more, last, sample_id="b"), mark, call_of(house), unless=unrelated
        )
        is not None
    )


async def test_a_chat_that_has_moved_takes_no_call(house: House) -> None:
    question, answer = user("one"), said("1")
    await house.chats.add(
        house.alice,
        await house.chats.plan(house.alice),
        entries(question, answer, sample_id="a"),
        marks(question, answer)[0],
        call_of(house),
    )
    found = await house.chats.look(house.alice, marks(question, answer))
    assert found is not None
    stale = replace(found, head="0" * 64)
    assert await house.chats.add(house.alice, stale, entries(user("x"), said("y"), sample_id="b"), None, call_of(house)) is None
    assert len(await rows(house)) == 1


async def test_a_chat_is_unchanged_until_it_goes_on_or_is_gone(house: House) -> None:
    question, answer = user("one"), said("1")
    plan = await house.chats.plan(house.alice)
    assert not await house.chats.is_unchanged(plan), "nothing is written yet"
    chat = await house.chats.add(house.alice, plan, entries(question, answer, sample_id="a"), marks(question, answer)[0], call_of(house))
    assert chat is not None
    assert await house.chats.is_unchanged(chat)
    grown = await house.chats.add(house.alice, chat, entries(user("two"), said("2"), sample_id="b"), None, call_of(house))
    assert grown is not None
    assert [await house.chats.is_unchanged(each) for each in (chat, grown)] == [False, True]
