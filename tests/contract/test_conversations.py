"""Conversations as operators read them, on PostgreSQL: the shape without a key, content only with the right to it, accounts apart."""

import re
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from hermes import CallRecord, MessageGraph
from hermes.console.access import AccessRefused, ConsoleAccess, Opened, ReasonMissing, Subject
from hermes.console.conversation_file import write_conversation
from hermes.console.conversation_views import GraphView, RowGlyph, RowView
from hermes.console.conversations import Conversations
from hermes.console.graph_windows import GraphQuery
from hermes.console.lane_rows import REPLAY
from hermes.ports.conversations import ConversationFilter, SessionFacts
from hermes.ports.errors import NotFound
from hermes.ports.operators import Actor, Face, Operator, Role
from hermes.ports.users import User
from hermes.stores.postgres.conversations import PostgresConversations
from hermes.stores.postgres.database import Database, execute
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.operators import PostgresAuditLog
from hermes.stores.postgres.users import PostgresUsers
from tests.contract.people import new_session
from tests.contract.turns import new_turn


def actor(role: Role = Role.OWNER, *, accounts: frozenset[str] | None = None) -> Actor:
    operator = Operator(id=uuid4(), name="ada", role=role, accounts=accounts, created_at=datetime.now(UTC), created_by="test")
    return Actor(operator, Face.CLI)


def says(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


@pytest.fixture
def conversations(database: Database, keyring: Keyring) -> Conversations:
    access = ConsoleAccess(database, PostgresAuditLog(), needs_reason=True, now=lambda: datetime.now(UTC))
    return Conversations(database, PostgresConversations(keyring), access)


async def keep(database: Database, keyring: Keyring, session_id: UUID, graph: MessageGraph, head: str) -> None:
    async with database.begin() as tx:
        await PostgresGraphs(keyring).save(tx, session_id, head, graph)


async def make_session(database: Database, keyring: Keyring, user: User, channel: str = "42") -> UUID:
    """A session with an edit, a chat attached to a message, a tool's result and an erased message."""
    session = await new_session(database, keyring, user, channel)
    async with database.begin() as tx:
        graph = await PostgresGraphs(keyring).load(tx, session.id)
    head = graph.head
    graph.append(says("user", "a secret place"))
    graph.append(says("assistant", "the beach"))
    graph.replace(0, says("user", "a quiet place"))
    chat = MessageGraph([says("user", "inner question")])
    chat.append(says("assistant", "inner answer"))
    graph.append({**says("user", "made by a chat"), "metadata": {"chat": chat}})
    graph.append({"role": "tool", "tool_call_id": "t", "content": "result"})
    graph.append(says("user", "to be erased"))
    graph.append(says("assistant", "the last"))
    graph.redact(4)
    await keep(database, keyring, session.id, graph, head)
    return session.id


def rows_of(view: GraphView) -> list[RowView]:
    return [item for item in view.items if isinstance(item, RowView)]


async def test_a_closed_graph_has_its_shape_and_no_word(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    facts = await conversations.find(actor(Role.VIEWER), str(await make_session(database, keyring, user)))
    view = await conversations.read(facts, GraphQuery())
    assert [(row.row.lane, row.glyph, row.message) for row in rows_of(view)] == [
        (lane, RowGlyph.CONTEXT, None) for lane in (1, 0, 0, 0, 0, 1, 0, 0)
    ]
    assert all(row.size for row in rows_of(view))
    assert [row.row.copied for row in rows_of(view) if row.row.copied] == [(0,), (1,)]
    assert [(version.name, version.kind, version.messages, version.samples) for version in view.versions] == [
        ("now", None, 6, 0),
        ("version 2", "redaction", 6, 1),
        ("version 1", "edit", 2, 1),
    ]
    said = write_conversation(view, actor().operator).partition("<main")[2]
    assert not {"secret", "quiet", "place"} & set(re.findall(r"\w+", said))


async def test_an_opened_graph_says_what_was_said_and_marks_what_is_erased(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    facts = await conversations.find(actor(), str(await make_session(database, keyring, user)))
    opened = await conversations.open(actor(), facts, "ticket 812")
    view = await conversations.read(facts, GraphQuery(), opened)
    rows = rows_of(view)
    assert [(row.glyph, row.message.fields.get("content") if row.message else "") for row in rows] == [
        (RowGlyph.CONTEXT, "a secret place"),
        (RowGlyph.CONTEXT, "a quiet place"),
        (RowGlyph.CONTEXT, "the beach"),
        (RowGlyph.CHAT, "made by a chat"),
        (RowGlyph.TOOL, "result"),
        (RowGlyph.ERASED, None),
        (RowGlyph.CONTEXT, "[redacted]"),
        (RowGlyph.CONTEXT, "the last"),
    ]
    inner = await conversations.read(facts, GraphQuery(chat=0), opened)
    assert [row.message.fields["content"] for row in rows_of(inner) if row.message] == ["inner question", "inner answer"]
    diff = await conversations.diff(facts, "v1,now", opened)
    assert [(part.kind, part.text) for part in diff.blocks[0].parts] == [
        *(("same", "a "), ("gone", "secret"), ("new", "quiet"), ("same", " place"))
    ]
    file = write_conversation(view, actor().operator)
    assert "Exported by ada on" in file
    assert "<script" not in file
    assert "to be erased" not in file


async def test_content_needs_the_right_to_this_conversation(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    facts = await conversations.find(actor(), str(await make_session(database, keyring, user)))
    with pytest.raises(ReasonMissing):
        await conversations.open(actor(), facts)
    with pytest.raises(AccessRefused):
        await conversations.open(actor(Role.VIEWER), facts, "ticket 812")
    with pytest.raises(AccessRefused):
        await conversations.permit_export(actor(Role.OPERATOR), facts, is_open=True)
    other = Opened(actor(), Subject(kind="conversation", id=str(uuid4())), datetime.now(UTC))
    for read in (conversations.read(facts, GraphQuery(), other), conversations.diff(facts, "v1,now", other)):
        with pytest.raises(AccessRefused, match="was opened, not conversation"):
            await read
    with pytest.raises(AccessRefused, match="open the conversation first"):
        await conversations.read(facts, GraphQuery(chat=0))


async def test_a_forgotten_owner_leaves_an_empty_frame(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    session_id = await make_session(database, keyring, user)
    facts = await conversations.find(actor(), str(session_id))
    opened = await conversations.open(actor(), facts, "ticket 812")
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user.id)
    for stale in (facts, await conversations.find(actor(), str(session_id))):
        view = await conversations.read(stale, GraphQuery(), opened)
        assert (view.is_erased, view.is_open, len(view.items)) == (True, False, 0)


async def test_the_shape_that_was_kept_goes_with_a_user_who_leaves_the_account(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    session_id = await make_session(database, keyring, user)
    before = await conversations.find(actor(), str(session_id))
    assert len(rows_of(await conversations.read(before, GraphQuery()))) > 4
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget_in_account(tx, user.id, before.account)
    facts = await conversations.find(actor(), str(session_id))
    view = await conversations.read(facts, GraphQuery())
    assert (facts.messages, rows_of(view), [version.messages for version in view.versions]) == (0, [], [0])


async def test_sessions_are_found_by_their_ids_and_only_in_the_operators_accounts(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    first = await make_session(database, keyring, user)
    second = await make_session(database, keyring, user, "43")
    facts = await conversations.find(actor(), str(first))
    assert (await conversations.find(actor(), str(facts.conversation_id))).session_id == first
    assert (await conversations.find(actor(), "42")).session_id in {first, second}  # the newest session of this sender
    for operator in (actor(accounts=frozenset({"other"})), actor(Role.VIEWER)):
        with pytest.raises(NotFound):
            await conversations.find(operator, "42")
    with pytest.raises(NotFound):
        await conversations.find(actor(accounts=frozenset({"other"})), str(first))
    listed = await conversations.list(actor(), ConversationFilter())
    assert [(row.session_id, row.versions, row.messages) for row in listed] == [(second, 2, 6), (first, 2, 6)]
    after = await conversations.list(actor(), ConversationFilter(), before=listed[0].number)
    assert [row.session_id for row in after] == [first]
    assert await conversations.list(actor(accounts=frozenset({"other"})), ConversationFilter()) == []
    by_user = await conversations.list(actor(), ConversationFilter(user_id=user.id))
    assert len(by_user) == 2
    by_conversation = await conversations.list(actor(), ConversationFilter(conversation_id=facts.conversation_id))
    assert [row.session_id for row in by_conversation] == [first]
    assert await conversations.list(actor(), ConversationFilter(user_id=user.id, platform="web")) == []


async def test_a_replay_is_a_lane_of_its_own_beside_the_answer_that_it_repeats(
    conversations: Conversations, database: Database, keyring: Keyring, user: User
) -> None:
    session = await new_session(database, keyring, user, "42")
    async with database.begin() as tx:
        graph = await PostgresGraphs(keyring).load(tx, session.id)
    head = graph.head
    graph.append(says("user", "hello"))
    graph.append(says("assistant", "hi"), call=CallRecord(model="gpt", usage={"prompt_tokens": 7}))
    graph.annotate(next(graph.responses()), reward=1.0)
    await keep(database, keyring, session.id, graph, head)
    facts = await conversations.find(actor(), str(session.id))
    assert not any(row.row.segment for row in rows_of(await conversations.read(facts, GraphQuery())))
    replay_id = await add_replay(database, keyring, facts)
    rows = rows_of(await conversations.read(facts, GraphQuery(), await conversations.open(actor(), facts, "ticket 812")))
    sample = rows[1].first_sample
    assert sample is not None
    assert (sample.call.model if sample.call else None, sample.notes) == ("gpt", [{"reward": 1.0}])
    assert len({row.turn.turn_id for row in rows if row.turn}) == 1
    assert [(row.row.lane, row.glyph) for row in rows] == [(0, RowGlyph.CONTEXT), (0, RowGlyph.SAMPLED), (1, RowGlyph.REPLAY)]
    assert [(segment.kind, segment.replay_id) for segment in rows[0].row.leaves] == [(REPLAY, replay_id)]


async def add_replay(database: Database, keyring: Keyring, facts: SessionFacts) -> UUID:
    """A turn that added the session's messages, and a replay of it."""
    replay_id = uuid4()
    values = {
        "turn_id": await new_turn(database, keyring),
        "replay_id": replay_id,
        "session_id": facts.session_id,
        "user_id": facts.user_id,
    }
    async with database.begin() as tx:
        await execute(
            tx,
            b"""with turn as (
                insert into interactions (turn_id, account_id, user_id, session_id, platform, meta)
                values (%(turn_id)s, 'bali', %(user_id)s, %(session_id)s, 'telegram', '{"nodes": ["a", "b"], "outcome": "answered"}')
            )
            insert into replays (id, turn_id, session_id, user_id, account_id, by, model)
            values (%(replay_id)s, %(turn_id)s, %(session_id)s, %(user_id)s, 'bali', 'ada', 'other')""",
            values,
        )
    return replay_id
