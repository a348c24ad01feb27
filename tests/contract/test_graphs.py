"""The port Graphs: a message graph comes back as it was, byte for byte, and what is stored of it cannot be read."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes import CallRecord, MessageGraph, SampleConflict, Turn
from hermes.graph.stored_graph import history_of
from hermes.ports.errors import DataDamaged, NotFound, StaleHead, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import GraphEntry
from hermes.ports.users import User
from hermes.stores.postgres import graphs
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graph_rows import BodyKind, SessionCipher
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.users import PostgresUsers
from tests.contract.people import new_session
from tests.unit.graph.sessions import TOOLS, rich_session

TABLES = ("messages", "log", "versions", "overlays", "samples", "annotations", "chats")
channels = itertools.count()


class Shelf:
    """One session and the store, to write tests in few words."""

    def __init__(self, database: Database, graphs: PostgresGraphs, session: Session) -> None:
        self.database, self.graphs, self.session, self.head = database, graphs, session, session.head

    async def append(self, *entries: GraphEntry) -> str:
        async with self.database.begin() as tx:
            self.head = (await self.graphs.append(tx, self.session.id, self.head, entries)).head
        return self.head

    async def load(self) -> MessageGraph:
        async with self.database.begin() as tx:
            return await self.graphs.load(tx, self.session.id)

    async def save(self, graph: MessageGraph) -> str:
        async with self.database.begin() as tx:
            self.head = await self.graphs.save(tx, self.session.id, self.head, graph)
        return self.head

    async def counts(self) -> dict[str, int]:
        """How many rows each table has for this session."""
        async with self.database.begin() as tx:
            found = {}
            for table in TABLES:
                query = f"select count(*) from graph_{table} where session_id = %s"  # noqa: S608  # names of ours
                [[found[table]]] = await (await connection_of(tx).execute(query.encode(), [self.session.id])).fetchall()
        return found


@pytest.fixture(params=["the owner is known", "the owner is looked up"])
async def shelf(database: Database, keyring: Keyring, user: User, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A session, to a process that has met it before or that has not: appending is one statement or several, and must be the same."""
    if request.param == "the owner is looked up":
        monkeypatch.setattr(keyring, "owner_of", lambda _: None)
    return await new_shelf(database, keyring, user)


async def new_shelf(database: Database, keyring: Keyring, user: User) -> Shelf:
    session = await new_session(database, keyring, user, f"channel-{next(channels)}")
    return Shelf(database, PostgresGraphs(keyring), session)


def says(role: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **more}


async def like_rich_session(shelf: Shelf) -> MessageGraph:
    """The graph that has everything in it, as this session's own."""
    graph = await shelf.load()
    for message in rich_session():
        graph.append(message, sampled=False)
    graph.clear()
    chat = rich_session()
    graph.extend(list(chat.versions[0])[:2])
    graph.append(says("assistant", "first", reasoning="hm"), call=CallRecord(sample_id="1", model="policy-model"))
    turn = graph.prepare(tools=TOOLS, ephemeral="Secretly.", keep_reasoning="current_turn", template_id="chatml")
    for name in ("2", "3"):
        record = CallRecord(sample_id=name, token_ids=[6, 7], logprobs=[-0.3, -0.25], prompt_token_ids=[1], raw_text="raw words")
        graph.commit(turn, says("assistant", f"twin {name}"), call=record)
    graph.append(says("tool", "agent says", tool_call_id="c", metadata={"note": "beside", "chat": chat}))
    graph.append(says("assistant", "second"))
    graph[1]["content"] = "edited"
    graph.append(says("assistant", "third"), call=CallRecord(policy_spans=[("a", 0, 1), ("b", 1, 2)], usage={"in": 3}))
    graph.compact(slice(1, 3), "(summary)")
    for response in graph.responses():
        graph.annotate(response, reward=0.5, words=["well", {"done": True}])
    return graph


# Round trips


async def test_a_new_session_is_an_empty_graph_at_the_sessions_head(shelf: Shelf) -> None:
    graph = await shelf.load()
    assert (list(graph), graph.head, len(graph.versions)) == ([], shelf.session.head, 1)


async def test_a_graph_with_everything_in_it_comes_back_byte_for_byte(shelf: Shelf) -> None:
    graph = await like_rich_session(shelf)
    head = await shelf.save(graph)
    loaded = await shelf.load()
    assert loaded.to_json() == graph.to_json()
    assert head == graph.head == loaded.head
    assert loaded.verify().status == "ok"
    assert MessageGraph.from_json(loaded.to_json()).to_json() == loaded.to_json()


async def test_a_loaded_graph_is_frozen_as_a_new_one_is(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("user", "Hi", parts=[{"a": [1]}], metadata={"deep": {"list": [1]}})))
    loaded = await shelf.load()
    for change in (
        lambda: loaded[0]["parts"].append(1),
        lambda: loaded[0]["parts"][0]["a"].append(1),
        lambda: loaded[0]["metadata"]["deep"].update(a=1),
    ):
        with pytest.raises(TypeError):
            change()


async def test_appending_gives_the_graph_that_appending_in_memory_gives(shelf: Shelf) -> None:
    in_memory = await shelf.load()
    call = CallRecord(model="policy-model", tools=TOOLS, template_id="chatml", sample_id="turn/1", token_ids=[1, 2], logprobs=[-1.0, -2.0])
    chat = rich_session()
    entries = [
        GraphEntry(says("system", "Be brief.")),
        GraphEntry(says("user", "Grüße 🌴", metadata={"at": 1})),
        GraphEntry(says("assistant", "Hi."), call=call),
        GraphEntry(says("tool", "found", metadata={"chat": chat})),
        GraphEntry(says("assistant", "Bye."), sample_id="turn/2"),
        GraphEntry(says("assistant", "An authored one.")),
    ]
    for start in (0, 2, 3, 4):
        stop = {0: 2, 2: 3, 3: 4, 4: 6}[start]
        assert await shelf.append(*entries[start:stop]) == shelf.head
    in_memory.extend([entries[0].message, entries[1].message])
    in_memory.append(entries[2].message, call=call)
    in_memory.append(entries[3].message)
    in_memory.append(entries[4].message, call=CallRecord(sample_id="turn/2"))
    in_memory.append(entries[5].message, sampled=False)
    loaded = await shelf.load()
    assert loaded.to_json() == in_memory.to_json()
    assert shelf.head == in_memory.head
    assert loaded.verify().status == "ok"


async def test_appending_behind_kept_versions_gives_what_it_gives_in_memory(shelf: Shelf) -> None:
    graph = await like_rich_session(shelf)
    await shelf.save(graph)
    await shelf.append(GraphEntry(says("user", "On.")), GraphEntry(says("assistant", "Going on."), call=CallRecord(sample_id="on")))
    graph.append(says("user", "On."))
    graph.append(says("assistant", "Going on."), call=CallRecord(sample_id="on"))
    loaded = await shelf.load()
    assert loaded.to_json() == graph.to_json()
    assert loaded[-1].sampled
    loaded[0]["content"] = "edited later"
    assert loaded.previous is not None
    assert [dict(node) for node in loaded.previous][-1] == says("assistant", "Going on.")


async def test_a_sampled_entry_without_a_name_gets_one(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("assistant", "Hi."), is_sampled=True), GraphEntry(says("user", "no sample"), is_sampled=False))
    loaded = await shelf.load()
    assert [(response.message["content"], response.call) for response in loaded.responses()] == [("Hi.", None)]
    assert len(next(loaded.responses()).sample_id) == 32
    assert loaded.verify().status == "ok"


async def test_the_same_sample_twice_is_one_and_with_other_content_a_conflict(shelf: Shelf) -> None:
    entry = GraphEntry(says("assistant", "Hi."), sample_id="turn/1")
    head = await shelf.append(GraphEntry(says("user", "Hello")), entry)
    before = (await shelf.load()).to_json()
    assert await shelf.append(entry) == head
    assert (await shelf.load()).to_json() == before
    with pytest.raises(SampleConflict):
        await shelf.append(GraphEntry(says("assistant", "Something else."), sample_id="turn/1"))
    with pytest.raises(ValueError, match="have different sample ids"):
        await shelf.append(GraphEntry(says("assistant", "Hi."), call=CallRecord(sample_id="a"), sample_id="b"))
    assert (await shelf.load()).to_json() == before


async def test_appending_nothing_changes_nothing(shelf: Shelf) -> None:
    assert await shelf.append() == shelf.session.head


async def test_odd_texts_and_numbers_come_back(shelf: Shelf) -> None:
    graph = await shelf.load()
    graph.append(says("user", "half \ud83d and NUL \0", big=2**8000, small=-0.0, none=None, keys={"\ud83d": [True, 1, 1.0]}, metadata=None))
    graph.append({"content": "other order", "role": "user", "metadata": {"chat": None}})
    graph.append(says("assistant", "x"), call=CallRecord(sampling={"z": 1, "a": 2}, sample_id="é"))
    await shelf.save(graph)
    loaded = await shelf.load()
    assert loaded.to_json() == graph.to_json()
    assert loaded.verify().status == "ok"


# Random programs

TEXTS = st.sampled_from(["a", "b", "c"])
PLACES = st.integers(-4, 4)
OPERATIONS = st.one_of(
    st.tuples(st.just("sample"), TEXTS),
    st.tuples(st.just("sample_with_call"), TEXTS),
    st.tuples(st.just("author"), TEXTS),
    st.tuples(st.just("edit"), PLACES, TEXTS),
    st.tuples(st.just("insert"), PLACES, TEXTS),
    st.tuples(st.just("delete"), PLACES, PLACES),
    st.tuples(st.just("assign"), PLACES, PLACES, st.lists(TEXTS, max_size=3)),
    st.tuples(st.just("compact"), st.integers(0, 3), st.integers(1, 4), TEXTS),
    st.tuples(st.just("note"), PLACES, TEXTS),
    st.tuples(st.just("drop_side_data"), PLACES),
    st.tuples(st.just("attach"), st.integers(0, 3)),
    st.tuples(st.just("prepare"), st.booleans()),
    st.tuples(st.just("commit"), st.integers(0, 3), TEXTS, st.booleans()),
    st.tuples(st.just("annotate"), st.integers(0, 9), TEXTS),
    st.tuples(st.just("redact"), PLACES),
    st.tuples(st.just("reverse")),
    st.tuples(st.just("clear")),
)
SAVES = st.sampled_from(["keep", "keep", "reload", "copy", "later", "append"])


class Program:
    """Does operations on a graph; the turns and chats that were made on the way are there for later ones."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.chats: list[MessageGraph] = []
        self.names = itertools.count()

    def run(self, graph: MessageGraph, name: str, *values: Any) -> None:
        getattr(self, name)(graph, *values)

    def sample(self, graph: MessageGraph, text: str) -> None:
        graph.append(says("assistant", text))

    def sample_with_call(self, graph: MessageGraph, text: str) -> None:
        record = CallRecord(
            sample_id=f"s{next(self.names)}", tools=TOOLS if text == "a" else None, raw_text=text, token_ids=[1], logprobs=[-1.0]
        )
        graph.append(says("assistant", text), call=record)

    def author(self, graph: MessageGraph, text: str) -> None:
        graph.append(says("user", text))

    def edit(self, graph: MessageGraph, place: int, text: str) -> None:
        if -len(graph) <= place < len(graph):
            graph[place]["content"] = text

    def insert(self, graph: MessageGraph, place: int, text: str) -> None:
        graph.insert(place, says("user", text))

    def delete(self, graph: MessageGraph, start: int, stop: int) -> None:
        del graph[start:stop]

    def assign(self, graph: MessageGraph, start: int, stop: int, texts: list[str]) -> None:
        graph[start:stop] = [says("user", text) for text in texts]

    def compact(self, graph: MessageGraph, start: int, length: int, text: str) -> None:
        if graph[start : start + length]:
            graph.compact(slice(start, start + length), text)

    def note(self, graph: MessageGraph, place: int, text: str) -> None:
        if -len(graph) <= place < len(graph):
            graph[place]["metadata"] = {**(graph[place].get("metadata") or {}), "note": text}

    def drop_side_data(self, graph: MessageGraph, place: int) -> None:
        if -len(graph) <= place < len(graph):
            graph[place].pop("metadata", None)

    def attach(self, graph: MessageGraph, which: int) -> None:
        if which >= len(self.chats):
            chat = MessageGraph([says("user", "a")], seed="sub")
            if which % 2:
                chat.append(says("assistant", f"inner {next(self.names)}"))
                chat[0]["content"] = "b"
            if self.chats:
                chat.append(says("tool", "deeper", metadata={"chat": self.chats[-1]}))
            self.chats.append(chat)
        graph.append(says("tool", "out", metadata={"chat": self.chats[which % len(self.chats)], "side": 1}))

    def prepare(self, graph: MessageGraph, tools: bool) -> None:
        self.turns.append(graph.prepare(tools=TOOLS if tools else None, ephemeral="eph" if tools else None))

    def commit(self, graph: MessageGraph, which: int, text: str, adopt: bool) -> None:
        if self.turns:
            graph.commit(self.turns[which % len(self.turns)], says("assistant", text), adopt=adopt)

    def annotate(self, graph: MessageGraph, which: int, text: str) -> None:
        known = list(graph.responses())
        if known:
            graph.annotate(known[which % len(known)], text=text)

    def redact(self, graph: MessageGraph, place: int) -> None:
        if -len(graph) <= place < len(graph):
            graph.redact(place)

    def reverse(self, graph: MessageGraph) -> None:
        graph.reverse()

    def clear(self, graph: MessageGraph) -> None:
        graph.clear()


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(st.tuples(OPERATIONS, SAVES), min_size=1, max_size=25))
async def test_saving_after_every_step_or_once_at_the_end_gives_the_same_graph(
    steps: list[tuple[tuple[Any, ...], str]], database: Database, keyring: Keyring, user: User
) -> None:
    shelf, program = await new_shelf(database, keyring, user), Program()
    graph = await shelf.load()
    for number, (operation, how) in enumerate(steps):
        program.run(graph, *operation)
        if how == "later":
            continue
        await shelf.save(graph)
        if how == "append":
            entry = GraphEntry(says("assistant", "stored first"), sample_id=f"append {number}")
            await shelf.append(entry)
            graph.append(entry.message, call=CallRecord(sample_id=entry.sample_id))
        loaded = await shelf.load()
        assert loaded.to_json() == graph.to_json()
        assert loaded.head == graph.head == shelf.head
        assert loaded.verify().problems == ()
        if how != "keep":
            graph = loaded.copy() if how == "copy" else loaded
    await shelf.save(graph)
    once = await twin_of(shelf, database, keyring, user, graph.seed)
    whole = graph.copy()
    history_of(whole).base = history_of(await once.load()).base
    await once.save(whole)
    assert (await once.load()).to_json() == (await shelf.load()).to_json() == graph.to_json()
    by_steps, at_once = await shelf.counts(), await once.counts()
    assert {**by_steps, "log": 0} == {**at_once, "log": 0}


async def twin_of(shelf: Shelf, database: Database, keyring: Keyring, user: User, seed: str) -> Shelf:
    """Another session with the same seed, so that the same messages have the same ids in it."""
    twin = await new_shelf(database, keyring, user)
    async with database.begin() as tx:
        sealed = SessionCipher(await keyring.of(tx, user.id), twin.session.id).seal(BodyKind.SEED, seed.encode())
        values = [sealed, shelf.session.head, twin.session.id]
        await connection_of(tx).execute("update sessions set seed = %s, head = %s where id = %s", values)
    twin.head = shelf.session.head
    return twin


# What is written


async def test_equal_messages_share_a_row_and_side_data_makes_another(shelf: Shelf) -> None:
    await shelf.append(*(GraphEntry(says("user", "again")) for _ in range(5)), GraphEntry(says("user", "again", metadata={"n": 1})))
    assert (await shelf.counts())["messages"] == 2
    assert (await shelf.load())[5]["metadata"] == {"n": 1}


async def test_an_edit_near_the_start_of_a_long_list_writes_what_it_replaced(shelf: Shelf) -> None:
    await shelf.append(
        *(GraphEntry(says("user", f"question {number}")) for number in range(2_000)), GraphEntry(says("assistant", "A"), is_sampled=True)
    )
    graph = await shelf.load()
    graph[1]["content"] = "edited"
    graph[1_998]["content"] = "edited too"
    async with shelf.database.begin() as tx:
        before = await written(tx)
        await shelf.graphs.save(tx, shelf.session.id, shelf.head, graph)
        rows = await written(tx) - before
        [[splices]] = await (await connection_of(tx).execute("select splices from graph_log order by id desc limit 1")).fetchall()
    assert rows == {("graph_log", "inserted"): 1, ("graph_messages", "inserted"): 2, ("graph_versions", "inserted"): 1}
    assert splices == [[1, 2, [2_001]], [1_998, 1_999, [2_002]]]
    assert (await shelf.load()).to_json() == graph.to_json()


async def written(tx: Transaction) -> Counter[tuple[str, str]]:
    """Rows of graphs that this connection has written lately, by table and what was done."""
    query = "select relname, n_tup_ins, n_tup_upd, n_tup_del from pg_stat_xact_user_tables where relname like 'graph%'"
    rows = await (await connection_of(tx).execute(query)).fetchall()
    return Counter({(row[0], what): count for row in rows for what, count in zip(("inserted", "updated", "deleted"), row[1:], strict=True)})


async def test_saving_an_unchanged_graph_writes_nothing(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("user", "Hi")))
    one, other = await shelf.load(), await shelf.load()
    await shelf.save(one)
    other.append(says("user", "still fresh"))
    await shelf.save(other)
    assert [message["content"] for message in await shelf.load()] == ["Hi", "still fresh"]


async def test_what_an_edit_leaves_no_trace_of_is_removed(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("user", "never sampled behind")), GraphEntry(says("user", "stays")))
    graph = await shelf.load()
    del graph[0]
    await shelf.save(graph)
    assert (await shelf.counts())["messages"] == 1
    assert (await shelf.load()).to_json() == graph.to_json()


async def test_an_erased_message_is_gone_from_the_rows_and_its_ids_hold(shelf: Shelf) -> None:
    graph = await like_rich_session(shelf)
    await shelf.save(graph)
    graph.append(says("user", "my word is kumquat"))
    graph.append(
        says("assistant", "noted kumquat"), call=CallRecord(sample_id="erased", raw_text="noted kumquat", token_ids=[5], logprobs=[-5.0])
    )
    await shelf.save(graph)
    before = await bodies(shelf)
    graph.redact(-2)
    graph.redact(-1)
    await shelf.save(graph)
    assert not before & await bodies(shelf)
    loaded = await shelf.load()
    assert loaded.to_json() == graph.to_json()
    assert "kumquat" not in loaded.to_json()
    assert loaded.verify().status == "redacted"


async def bodies(shelf: Shelf) -> set[bytes]:
    """Every sealed body of the session."""
    found: set[bytes] = set()
    async with shelf.database.begin() as tx:
        for table in ("messages", "samples", "overlays", "annotations", "chats"):
            query = f"select body from graph_{table} where session_id = %s"  # noqa: S608  # names of ours
            found |= {body for (body,) in await (await connection_of(tx).execute(query.encode(), [shelf.session.id])).fetchall()}
    return found


async def test_nothing_that_was_said_can_be_read_in_the_database(shelf: Shelf, user: User) -> None:
    graph = await like_rich_session(shelf)
    await shelf.save(graph)
    await shelf.append(
        GraphEntry(says("user", "pineapple")), GraphEntry(says("assistant", "mango"), call=CallRecord(model="papaya", sample_id="guava"))
    )
    graph = await shelf.load()
    graph.redact(-2)
    await shelf.save(graph)
    words = [
        *("pineapple", "mango", "papaya", "guava", "Be brief", "summary", "agent", "deepest", "twin", "third", "edited", "Secretly"),
        *("chatml", "policy-model", "raw words", "555-1234", "reward", "assistant", "system", "reasoning", "ask", "parameters", "beside"),
    ]
    secrets = [word.encode() for word in words] + [graph.seed.encode(), graph.seed.encode().hex().encode()]
    secrets += [digest for node in history_of(graph).all_nodes() for digest in (node.digest, node.digest.hex().encode())]
    async with shelf.database.begin() as tx:
        for table in ("sessions", *(f"graph_{name}" for name in TABLES)):
            rows = await (await connection_of(tx).cursor(binary=True).execute(f"select * from {table}".encode())).fetchall()  # noqa: S608
            assert rows
            dump = b"\n".join(value if isinstance(value, bytes) else repr(value).encode() for row in rows for value in row)
            assert [secret for secret in secrets if secret in dump] == [], table


async def test_equal_messages_of_two_sessions_have_nothing_in_common(database: Database, keyring: Keyring, user: User) -> None:
    shelves = [await new_shelf(database, keyring, user) for _ in range(2)]
    for shelf in shelves:
        await shelf.append(GraphEntry(says("assistant", "the same"), sample_id="the same"))
    async with database.begin() as tx:
        [addresses, names, responses] = [
            {bytes(value) for (value,) in await (await connection_of(tx).execute(query.encode())).fetchall()}
            for query in ("select address from graph_messages", "select name from graph_samples", "select response from graph_samples")
        ]
    assert (len(addresses), len(names), len(responses)) == (2, 2, 2)


# Two writers


async def test_of_two_appends_on_one_head_exactly_one_wins(shelf: Shelf) -> None:
    head = shelf.head

    async def append(text: str) -> str:
        async with shelf.database.begin() as tx:
            return (await shelf.graphs.append(tx, shelf.session.id, head, [GraphEntry(says("user", text))])).head

    outcomes = await asyncio.gather(*(append(f"text {number}") for number in range(8)), return_exceptions=True)
    heads = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert (len(heads), sum(isinstance(outcome, StaleHead) for outcome in outcomes)) == (1, 7)
    loaded = await shelf.load()
    assert (len(loaded), loaded.head) == (1, heads[0])


async def test_an_append_in_between_makes_a_loaded_graph_stale(shelf: Shelf) -> None:
    graph = await shelf.load()
    graph.append(says("user", "mine"))
    await shelf.append(GraphEntry(says("user", "theirs")))
    for head in (shelf.head, shelf.session.head):
        async with shelf.database.begin() as tx:
            with pytest.raises(StaleHead):
                await shelf.graphs.save(tx, shelf.session.id, head, graph)
    assert [message["content"] for message in await shelf.load()] == ["theirs"]


async def test_annotations_saved_by_somebody_else_are_noticed_though_the_head_is_the_same(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("assistant", "Hi."), sample_id="1"))
    mine, theirs = await shelf.load(), await shelf.load()
    for graph, reward in ((mine, 0.0), (theirs, 1.0)):
        graph.annotate(next(graph.responses()), reward=reward)
    await shelf.save(theirs)
    with pytest.raises(StaleHead):
        await shelf.save(mine)
    assert [response.annotations for response in (await shelf.load()).responses()] == [[{"reward": 1.0}]]


async def test_an_edit_that_returned_to_the_same_head_is_noticed(shelf: Shelf) -> None:
    await shelf.append(GraphEntry(says("user", "a")), GraphEntry(says("assistant", "b"), sample_id="1"))
    mine, theirs = await shelf.load(), await shelf.load()
    theirs[0]["content"] = "x"
    theirs[0]["content"] = "a"
    head = shelf.head
    assert await shelf.save(theirs) == head
    mine.append(says("user", "c"))
    with pytest.raises(StaleHead):
        await shelf.save(mine)
    assert (await shelf.load()).to_json() == theirs.to_json()


async def test_a_save_that_rolled_back_left_nothing_and_makes_its_graph_stale(shelf: Shelf) -> None:
    graph = await shelf.load()
    graph.append(says("user", "lost"))
    with suppress(RuntimeError):
        async with shelf.database.begin() as tx:
            await shelf.graphs.save(tx, shelf.session.id, shelf.head, graph)
            raise RuntimeError
    with pytest.raises(StaleHead):
        await shelf.save(graph)
    assert list(await shelf.load()) == []


async def test_reading_while_others_append_gives_a_whole_graph(shelf: Shelf) -> None:
    async def write() -> None:
        for number in range(40):
            await shelf.append(GraphEntry(says("user", f"question {number}")), GraphEntry(says("assistant", "A"), sample_id=f"{number}"))

    async def read() -> None:
        while not writing.done():
            assert (await shelf.load()).verify().status == "ok"

    writing = asyncio.create_task(write())
    await asyncio.gather(writing, read(), read())
    assert len(await shelf.load()) == 80


# What is not there


async def test_no_such_session_is_not_there(shelf: Shelf) -> None:
    graph, nobody = await shelf.load(), uuid4()
    async with shelf.database.begin() as tx:
        with pytest.raises(NotFound):
            await shelf.graphs.load(tx, nobody)
        with pytest.raises(NotFound):
            await shelf.graphs.append(tx, nobody, shelf.head, [GraphEntry(says("user", "Hi"))])
        with pytest.raises(ValueError, match="loaded from session"):
            await shelf.graphs.save(tx, nobody, shelf.head, graph)


async def test_a_graph_that_was_not_loaded_here_is_refused(shelf: Shelf) -> None:
    for graph in (MessageGraph(), MessageGraph.from_json((await shelf.load()).to_json()), (await shelf.load()).fork()):
        with pytest.raises(ValueError, match="loaded from session"):
            await shelf.save(graph)


async def test_the_graph_of_a_forgotten_user_cannot_be_read_or_written(shelf: Shelf, keyring: Keyring, user: User) -> None:
    await shelf.append(GraphEntry(says("user", "Hi")))
    graph = await shelf.load()
    async with shelf.database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user.id)
    graph.append(says("user", "more"))
    for attempt in (shelf.load(), shelf.append(GraphEntry(says("user", "more"))), shelf.save(graph)):
        with pytest.raises(UserErased):
            await attempt


async def test_rows_moved_to_another_session_do_not_open(database: Database, keyring: Keyring, user: User) -> None:
    one, other = [await new_shelf(database, keyring, user) for _ in range(2)]
    await one.append(GraphEntry(says("user", "Hi")))
    async with database.begin() as tx:
        for table in ("messages", "log"):
            query = f"update graph_{table} set session_id = %s where session_id = %s"  # noqa: S608  # names of ours
            await connection_of(tx).execute(query.encode(), [other.session.id, one.session.id])
    with pytest.raises(DataDamaged, match="moved from another place"):
        await other.load()


# How long it takes


@pytest.mark.slow
async def test_a_conversation_of_ten_thousand_messages_is_loaded_in_150_ms_and_appending_costs_the_same_at_its_end(shelf: Shelf) -> None:
    appending_s: list[float] = []
    for number in range(5_000):
        record = CallRecord(model="policy-model", sampling={"temperature": 1.0}, usage={"in": 812, "out": 64}, tools=TOOLS)
        started = time.perf_counter()
        await shelf.append(
            GraphEntry(says("user", f"find me a sunset bar in Canggu, number {number}")),
            GraphEntry(says("assistant", f"Here are three bars that you may like, {number}"), call=record, sample_id=f"turn/{number}"),
        )
        appending_s.append(time.perf_counter() - started)
    loading_s: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        graph = await shelf.load()
        loading_s.append(time.perf_counter() - started)
    assert (len(graph), graph.head, graph.verify().status) == (10_000, shelf.head, "ok")
    assert min(loading_s) < 0.150
    assert median(appending_s[-500:]) < 2 * median(appending_s[:500])


async def test_one_function_drops_the_rows_of_every_table_that_goes_with_a_session(database: Database) -> None:
    async with database.once() as tx:
        connection = connection_of(tx)
        query = "select conrelid::regclass::text from pg_constraint where confrelid = 'sessions'::regclass and confdeltype = 'c'"
        tables = {name for [name] in await (await connection.execute(query)).fetchall()}
        query = "select pg_get_functiondef('drop_graphs'::regproc) || pg_get_functiondef('drop_graph_rows'::regproc)"
        [functions] = await (await connection.execute(query)).fetchone() or [""]
    assert tables == {*(f"graph_{table}" for table in TABLES), "door_samples"}
    assert set(re.findall(r"delete from (\w+)", functions)) == tables
    files = (Path(graphs.__file__).parent / "sql").glob("*.sql")
    assert [file.name for file in files if "delete from graph_versions" in file.read_text(encoding="utf-8")] == []
