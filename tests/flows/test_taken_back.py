"""What a user takes back is shown to no model again: words in a group, facts in notes; on real stores, read off the prompts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.app.root import Hermes, open_hermes
from hermes.config import DatabaseSettings, MemorySettings, Secret, Settings
from hermes.graph import MessageGraph
from hermes.ports.backends import ModelRequest
from hermes.ports.errors import StoreUnavailable
from hermes.ports.memories import FactOrigin
from hermes.ports.models import Answer, Caller
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Graphs
from hermes.ports.users import UserChannel, UserState
from hermes.soul.my_data import ConversationEraser, forget_fact, forget_memory, forget_user, forget_user_at
from hermes.soul.supersede import LearnedFact
from hermes.stores.postgres.database import connection_of
from hermes.turn import Envelope, MessageEvent, Platform
from tests.flows.echo import own_words, said

CONFIDED = "my password is MANGROVE by the way"
FACT = "has an appointment at the clinic on Tuesdays"


@dataclass
class Listener:
    """A model that keeps what it was asked, and says what a test wants."""

    prompts: list[str] = field(default_factory=list)
    answer: Callable[[str], str] = lambda words: f"You said: {words}"
    meanwhile: Callable[[str], Awaitable[None]] | None = None

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        self.prompts.append(json.dumps([dict(message) for message in ask.messages]))
        if self.meanwhile is not None:
            await self.meanwhile(own_words(ask))
        return said(self.answer(own_words(ask)))


@dataclass(frozen=True)
class House:
    """Hermes without a worker: a test drives every turn itself."""

    hermes: Hermes
    model: Listener

    @property
    def eraser(self) -> ConversationEraser:
        eraser = self.hermes.my_data.eraser
        assert eraser is not None
        return eraser

    async def accept(self, text: str, *, user: str = "ada", channel: str | None = None, account: str = "shop") -> UUID:
        event = MessageEvent(platform=Platform.REST, sender_id=user, text=text)
        where = {"account": account, "channel_id": channel or user}
        envelope = Envelope(event=event, event_key=str(uuid4()), is_shared=channel is not None, **where)
        return (await self.hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)).turn_id

    async def say(self, text: str, **where: Any) -> UUID:
        turn_id = await self.accept(text, **where)
        await self.hermes.turn(turn_id)
        return turn_id

    async def user(self, name: str, account: str = "shop") -> UUID:
        async with self.hermes.database.begin() as tx:
            user = await self.hermes.adapters.people.find(tx, UserChannel(account, Platform.REST, name))
        assert user is not None
        return user.id

    async def rows(self, query: str, *values: object) -> list[Any]:
        async with self.hermes.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode(), values)).fetchall()

    async def graphs(self) -> list[MessageGraph]:
        """Every graph that can still be read, in the order of their sessions."""
        async with self.hermes.database.begin() as tx:
            rows = await (
                await connection_of(tx).execute("select s.id from sessions s join data_keys using (user_id) order by number")
            ).fetchall()
            return [await self.hermes.adapters.graphs.load(tx, session_id) for (session_id,) in rows]

    async def know(self, user_id: UUID, text: str, turn_id: UUID | None = None) -> UUID:
        learnt = LearnedFact(text=text, origin=FactOrigin.SAID, source_turn=turn_id, confidence=0.9)
        [fact] = await self.hermes.user_memory.writer.save(user_id, [learnt], now=datetime.now(UTC))
        return fact.id

    def memory(self) -> dict[str, Any]:
        data = self.hermes.my_data
        return {"transactions": data.transactions, "memories": data.memories, "souls": data.souls, "eraser": data.eraser}


@pytest.fixture
async def house(database_url: str, redis_url: str, tmp_path: Path) -> AsyncIterator[House]:
    settings = Settings(
        home=tmp_path,
        database_url=Secret(database_url),
        redis_url=Secret(redis_url),
        database=DatabaseSettings(connect_timeout_s=1.0),
        memory=MemorySettings(asks_models=False),
    )
    model = Listener()
    async with open_hermes(settings, adjust=lambda parts: replace(parts, models=model)) as hermes:
        yield House(hermes, model)


def everything_in(graph: MessageGraph) -> str:
    return graph.to_json()


# --- words in a group


async def talk_in_a_group(house: House) -> tuple[UUID, UUID]:
    """Ada opens a group, Bob tells a secret, Ada goes on; return who they are."""
    await house.say("hello there my dear concierge", channel="team")
    await house.say(CONFIDED, user="bob", channel="team")
    await house.say("where shall we eat tonight?", channel="team")
    return await house.user("ada"), await house.user("bob")


async def test_after_somebody_is_forgotten_their_words_are_in_no_prompt_and_in_nothing_that_can_be_read(house: House) -> None:
    _, bob = await talk_in_a_group(house)
    assert "MANGROVE" in house.model.prompts[-1]
    await forget_user(bob, house.hermes.my_data)
    assert await house.hermes.redis.keys("hermes:history:*") == []
    await house.say("so what did we talk about?", channel="team")
    assert "MANGROVE" not in house.model.prompts[-1]
    before, after = await house.graphs()
    assert [("MANGROVE" in everything_in(graph), bool(graph.verify())) for graph in (before, after)] == [(False, True)] * 2
    assert "where shall we eat tonight?" in everything_in(before)
    asked = await house.rows(
        "select step, type, request is null from run_events join inbox using (turn_id) where step = 'call_model' order by id"
    )
    assert [tuple(row) for row in asked[:3]] == [
        ("call_model", "llm_called", True),
        ("call_model", "llm_called", True),  # Bob's own
        ("call_model", "llm_called", True),
    ]


async def test_to_forget_somebody_twice_changes_nothing_more(house: House) -> None:
    _, bob = await talk_in_a_group(house)
    await forget_user(bob, house.hermes.my_data)
    [first] = await house.graphs()
    await forget_user(bob, house.hermes.my_data)
    [second] = await house.graphs()
    assert second.to_json() == first.to_json()


async def test_what_others_were_told_in_the_same_words_is_theirs_and_stays(house: House) -> None:
    house.model.answer = lambda _: "You are welcome!"
    _, bob = await talk_in_a_group(house)
    await forget_user(bob, house.hermes.my_data)
    [graph] = await house.graphs()
    assert [message["content"] for message in graph if message["role"] == "assistant"] == ["You are welcome!"] * 3
    assert "MANGROVE" not in everything_in(graph)


async def test_with_a_store_away_in_the_middle_they_are_still_there_and_it_is_repeated(house: House) -> None:
    _, bob = await talk_in_a_group(house)
    parts = house.hermes.my_data
    with pytest.raises(StoreUnavailable):
        await forget_user(bob, replace(parts, eraser=replace(house.eraser, graphs=away(house.eraser.graphs))))
    async with house.hermes.database.begin() as tx:
        assert (await house.hermes.adapters.people.get(tx, bob)).state is UserState.ACTIVE
    await house.say("anything new?", channel="team")
    assert "MANGROVE" not in house.model.prompts[-1], "the list that has it was ended first"
    await forget_user(bob, parts)
    assert ["MANGROVE" in everything_in(graph) for graph in await house.graphs()] == [False, False]


def away(graphs: Graphs) -> Any:
    class Away:
        """Graphs that can be read and not written."""

        async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
            return await graphs.load(tx, session_id)

        async def save(self, *_: object) -> str:
            raise StoreUnavailable

    return Away()


async def test_a_turn_under_way_when_its_sender_is_forgotten_leaves_no_word(house: House) -> None:
    await house.say("hello there my dear concierge", channel="team")
    turn_id = await house.accept(CONFIDED, user="bob", channel="team")
    bob = await house.user("bob")

    async def forget(words: str) -> None:
        if "MANGROVE" in words:
            await forget_user(bob, house.hermes.my_data)

    house.model.meanwhile = forget
    await house.hermes.turn(turn_id)
    assert [tuple(row) for row in await house.rows("select state from inbox where turn_id = %s", turn_id)] == [("dead",)]
    assert ["MANGROVE" in everything_in(graph) for graph in await house.graphs()] == [False]


async def test_what_was_said_while_somebody_is_being_forgotten_is_erased_too(house: House) -> None:
    _, bob = await talk_in_a_group(house)
    parts, calls = house.hermes.my_data, list[UUID]()

    class Slow:
        """People who are held only after one more message was answered."""

        def __getattr__(self, name: str) -> Any:
            return getattr(parts.people, name)

        async def hold(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
            calls.append(user_id)
            if len(calls) == 1:
                await house.say("and MANGROVE is a fine word", user="bob", channel="team")
            await parts.people.hold(tx, user_id, account=account)

    people: Any = Slow()
    await forget_user(bob, replace(parts, people=people))
    assert (len(calls), ["MANGROVE" in everything_in(graph) for graph in await house.graphs()]) == (2, [False, False])


# --- facts


@pytest.mark.parametrize("one", [True, False], ids=["one fact", "all facts"])
async def test_a_fact_that_was_taken_back_is_told_to_no_model_again(house: House, *, one: bool) -> None:
    turn_id = await house.say("I have an appointment at the clinic on Tuesdays, you know")
    ada = await house.user("ada")
    fact_id = await house.know(ada, FACT, turn_id)
    await house.say("when is my clinic appointment again?")
    assert FACT in house.model.prompts[-1]
    if one:
        assert await forget_fact(ada, fact_id, **house.memory())
    else:
        assert await forget_memory(ada, **house.memory()) == 1
    assert await house.hermes.redis.keys("hermes:history:*") == []
    for text in ("what do you know about me these days?", "and what else is there to know?"):
        await house.say(text)
        assert "clinic" not in house.model.prompts[-1]
    assert "these days" in house.model.prompts[-1], "the new session goes on"
    assert [tuple(row) for row in await house.rows("select ended_at is not null from sessions order by number")] == [(True,), (False,)]


async def test_where_no_such_fact_was_nothing_ends(house: House) -> None:
    await house.say("tell me about the weather in Paris")
    assert not await forget_fact(await house.user("ada"), uuid4(), **house.memory())
    await house.say("and in Rome?")
    assert "the weather in Paris" in house.model.prompts[-1]


# --- one person, two accounts


async def test_an_account_forgets_what_it_has_and_leaves_the_rest(house: House) -> None:
    clinic = await house.say("I take pills in the evening, my friend", account="clinic")
    ada = await house.user("ada", "clinic")
    async with house.hermes.database.begin() as tx:
        await house.hermes.adapters.people.link(tx, ada, UserChannel("shop", Platform.REST, "customer7"))
    shop = await house.say("I wear shoes of size 43, my friend", user="customer7", channel="customer7")
    await house.say("hello from somebody else", user="ben", channel="customer7")
    pills, shoes = await house.know(ada, "takes pills every evening", clinic), await house.know(ada, "wears size 43", shop)
    assert await forget_user_at(ada, "shop", house.hermes.my_data) is False
    async with house.hermes.database.begin() as tx:
        parts = house.hermes.adapters
        assert (await parts.people.get(tx, ada)).state is UserState.ACTIVE
        assert list((await parts.people.channels(tx, [ada]))[ada]) == [UserChannel("clinic", Platform.REST, "ada")]
        assert [fact.id for fact in await parts.memories.all(tx, ada)] == [pills]
    assert shoes != pills
    assert [row[0] for row in await house.rows("select turn_id from inbox where user_id = %s", ada)] == [clinic]
    texts = [everything_in(graph) for graph in await house.graphs()]
    assert [("pills in the evening" in text, "size 43" in text, "hello from somebody else" in text) for text in texts] == [
        (True, False, False),
        (False, False, True),
    ]
    await house.say("what do you know?", user="customer7")
    assert await house.user("customer7") != ada
    assert "size 43" not in house.model.prompts[-1]
    await house.say("and what do you know here?", account="clinic")
    assert "size 43" not in house.model.prompts[-1]
    assert await forget_user_at(ada, "clinic", house.hermes.my_data) is True


async def test_a_conversation_with_nobody_else_in_it_is_gone_with_its_graph(house: House) -> None:
    await house.say("hello my dear friend of mine", account="clinic")
    ada = await house.user("ada", "clinic")
    async with house.hermes.database.begin() as tx:
        await house.hermes.adapters.people.link(tx, ada, UserChannel("shop", Platform.REST, "customer7"))
    await house.say(CONFIDED, user="customer7")
    await forget_user_at(ada, "shop", house.hermes.my_data)
    await forget_user_at(ada, "shop", house.hermes.my_data)
    kept, gone = await house.graphs()
    assert (len(kept), len(gone), "MANGROVE" in everything_in(gone)) == (2, 0, False)
    named = await house.rows("select account_id, channel_id like 'forgotten/%%' from conversations order by created_at")
    assert [tuple(row) for row in named] == [("clinic", False), ("shop", True)]
