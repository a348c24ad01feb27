"""The port Sessions: a conversation's stretches of talk between two long silences."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from hermes.graph.node import root_id
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transactions
from hermes.ports.session import Session
from hermes.ports.sessions import GraphEntry, Graphs, SessionQuery, Sessions, UserNodes
from hermes.ports.users import User, Users, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.graphs import PostgresGraphs
from hermes.stores.postgres.inbox import PostgresInbox
from hermes.stores.postgres.journal import PostgresInteractions
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.sessions import PostgresClientChats, PostgresSessions
from hermes.stores.postgres.users import PostgresUsers
from hermes.testing.memory import MemoryGraphs, MemorySessions
from hermes.turn import Envelope, MessageEvent, Platform
from tests.contract.people import new_conversation
from tests.contract.turns import claim_turn, on_postgres

HOUR_S = 3_600


@pytest.fixture
def graphs(adapter: str, keyring: Keyring) -> Graphs:
    return MemoryGraphs() if adapter == "memory" else PostgresGraphs(keyring)


@pytest.fixture
def sessions(graphs: Graphs, keyring: Keyring) -> Sessions:
    return MemorySessions(graphs) if isinstance(graphs, MemoryGraphs) else PostgresSessions(keyring)


@pytest.fixture
async def user(transactions: Transactions, people: Users) -> User:
    """Somebody who wrote to the account `bali` on Telegram."""
    async with transactions.begin() as tx:
        user, _ = await people.find_or_create(tx, "bali", Platform.TELEGRAM, "42", state=UserState.ACTIVE)
    return user


async def begin_conversation(transactions: Transactions, user: User, channel_id: str) -> UUID:
    return await new_conversation(transactions, user, channel_id) if isinstance(transactions, Database) else uuid4()


async def current(transactions: Transactions, sessions: Sessions, conversation_id: UUID, speaker: UUID | None = None) -> Session:
    async with transactions.begin() as tx:
        return await sessions.current(tx, conversation_id, speaker or uuid4())


async def be_silent(database: Database, session: Session, seconds: float) -> None:
    """Let the last sign of life be so much longer ago."""
    async with database.begin() as tx:
        await connection_of(tx).execute(
            "update sessions set last_at = last_at - %s * interval '1 second' where id = %s", [seconds, session.id]
        )


async def test_the_first_message_of_a_conversation_starts_an_empty_session(
    transactions: Transactions, graphs: Graphs, user: User, sessions: Sessions
) -> None:
    conversation_id = await begin_conversation(transactions, user, "42")
    session = await current(transactions, sessions, conversation_id, user.id)
    assert session == Session(session.id, conversation_id, user.id, None, session.head, 0)
    async with transactions.begin() as tx:
        graph = await graphs.load(tx, session.id)
        assert await sessions.get(tx, session.id) == session
    assert session.head == graph.head == root_id(graph.seed).hex()


async def test_the_session_stays_while_people_talk_and_knows_where_its_list_stands(
    transactions: Transactions, graphs: Graphs, user: User, sessions: Sessions
) -> None:
    session = await current(transactions, sessions, await begin_conversation(transactions, user, "42"), user.id)
    async with transactions.begin() as tx:
        head = (await graphs.append(tx, session.id, session.head, [GraphEntry({"role": "user", "content": "Hi"})])).head
    expected = Session(session.id, session.conversation_id, user.id, None, head, 1)
    assert await current(transactions, sessions, session.conversation_id, user.id) == expected


@on_postgres
async def test_every_message_keeps_the_session_alive(database: Database, user: User, sessions: PostgresSessions) -> None:
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    for _ in range(3):
        await be_silent(database, first, 11.9 * HOUR_S)
        assert await current(database, sessions, first.conversation_id) == first


@on_postgres
async def test_after_twelve_hours_of_silence_a_new_session_knows_its_predecessor(
    database: Database, user: User, sessions: PostgresSessions
) -> None:
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    await be_silent(database, first, 12.1 * HOUR_S)
    second = await current(database, sessions, first.conversation_id)
    assert second == Session(second.id, first.conversation_id, user.id, first.id, second.head, 0)
    assert (second.id != first.id, second.head != first.head) == (True, True)
    assert await current(database, sessions, first.conversation_id) == second
    await be_silent(database, second, 12.1 * HOUR_S)
    assert (await current(database, sessions, first.conversation_id)).previous == second.id
    async with database.begin() as tx:
        assert await sessions.get(tx, first.id) == first


@on_postgres
async def test_how_long_is_long_is_a_setting(database: Database, keyring: Keyring, user: User) -> None:
    sessions = PostgresSessions(keyring, idle_s=60)
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    await be_silent(database, first, 61)
    assert (await current(database, sessions, first.conversation_id)).previous == first.id


@on_postgres
async def test_a_clock_that_is_set_back_changes_no_order(database: Database, user: User, sessions: PostgresSessions) -> None:
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    async with database.begin() as tx:
        await connection_of(tx).execute("update sessions set started_at = started_at + interval '1 day'")
    await be_silent(database, first, 13 * HOUR_S)
    second = await current(database, sessions, first.conversation_id)
    assert await current(database, sessions, first.conversation_id) == second


@pytest.mark.parametrize("is_first", [True, False])
@on_postgres
async def test_many_messages_at_once_make_one_session(database: Database, user: User, sessions: PostgresSessions, is_first: bool) -> None:
    conversation_id = await new_conversation(database, user, "42")
    if not is_first:
        await be_silent(database, await current(database, sessions, conversation_id), 13 * HOUR_S)
    found = await asyncio.gather(*(current(database, sessions, conversation_id) for _ in range(12)))
    assert len(set(found)) == 1
    async with database.begin() as tx:
        [[count]] = await (await connection_of(tx).execute("select count(*) from sessions")).fetchall()
    assert count == (1 if is_first else 2)


async def test_conversations_have_sessions_of_their_own(transactions: Transactions, user: User, sessions: Sessions) -> None:
    one, other = [
        await current(transactions, sessions, await begin_conversation(transactions, user, channel), user.id) for channel in ("42", "43")
    ]
    assert len({one.id, other.id}) == len({one.head, other.head}) == 2


@on_postgres
async def test_what_is_not_there_is_said(database: Database, sessions: PostgresSessions) -> None:
    async with database.begin() as tx:
        with pytest.raises(NotFound):
            await sessions.get(tx, uuid4())
        with pytest.raises(NotFound):
            await sessions.current(tx, uuid4(), uuid4())


@on_postgres
async def test_a_forgotten_user_has_no_session(database: Database, keyring: Keyring, user: User, sessions: PostgresSessions) -> None:
    session = await current(database, sessions, await new_conversation(database, user, "42"))
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user.id)
    with pytest.raises(UserErased):
        await current(database, sessions, session.conversation_id)


@on_postgres
async def test_where_the_opener_was_deleted_whoever_speaks_now_begins_anew(
    database: Database, keyring: Keyring, user: User, sessions: PostgresSessions
) -> None:
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    async with database.begin() as tx:
        carol, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.TELEGRAM, "carol", state=UserState.ACTIVE)
        await PostgresUsers(keyring).forget(tx, user.id)
    second = await current(database, sessions, first.conversation_id, carol.id)
    assert (second.user_id, second.previous, second.length) == (carol.id, first.id, 0)
    assert await current(database, sessions, first.conversation_id, carol.id) == second


# --- finding sessions


async def found(transactions: Transactions, sessions: Sessions, *names: str, **more: object) -> list[UUID]:
    async with transactions.begin() as tx:
        return list(await sessions.find(tx, SessionQuery(names=names, **more)))  # type: ignore[arg-type]  # a test's own words


async def test_sessions_are_found_in_the_order_of_their_beginning(transactions: Transactions, user: User, sessions: Sessions) -> None:
    conversations = [await begin_conversation(transactions, user, str(number)) for number in range(5)]
    begun = [(await current(transactions, sessions, conversation, user.id)).id for conversation in conversations]
    assert await found(transactions, sessions) == begun


@on_postgres
async def test_a_name_is_an_id_of_either_kind_a_channel_or_what_a_client_calls_its_chat(
    database: Database, keyring: Keyring, user: User, sessions: PostgresSessions
) -> None:
    first = await current(database, sessions, await new_conversation(database, user, "42"))
    await be_silent(database, first, 13 * HOUR_S)
    second = await current(database, sessions, first.conversation_id)
    chats = PostgresClientChats(database, keyring)
    async with database.begin() as tx:
        carol, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.COMPLETIONS, "carol", state=UserState.ACTIVE)
        games = [(await chats.find_or_begin(tx, "bali", person.id, "game 7", ())).session_id for person in (user, carol)]
        await chats.find_or_begin(tx, "bali", user.id, "another", ())
    assert await found(database, sessions, str(first.id)) == [first.id]
    assert await found(database, sessions, str(first.conversation_id)) == [first.id, second.id]
    assert await found(database, sessions, "42") == [first.id, second.id]
    assert await found(database, sessions, "game 7") == games, "a name that two people use stands for both chats"
    assert await found(database, sessions, "game 7", str(second.id), "42") == [first.id, second.id, *games], "each once"


@on_postgres
async def test_since_and_account_narrow_what_is_found(database: Database, keyring: Keyring, user: User, sessions: PostgresSessions) -> None:
    old, new = [await current(database, sessions, await new_conversation(database, user, channel)) for channel in ("42", "43")]
    await be_silent(database, old, 2 * HOUR_S)
    async with database.begin() as tx:
        dora, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.COMPLETIONS, "dora", state=UserState.ACTIVE)
        elsewhere = (await PostgresClientChats(database, keyring).begin(tx, "shop", dora.id)).session_id
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert await found(database, sessions, since=an_hour_ago) == [new.id, elsewhere]
    assert await found(database, sessions, account="bali") == [old.id, new.id]
    assert await found(database, sessions, since=an_hour_ago, account="bali") == [new.id]
    assert await found(database, sessions, "42", since=an_hour_ago) == [], "known, but silent since"


@pytest.mark.parametrize(
    "wanted", [SessionQuery(names=("42", "nowhere")), SessionQuery(names=(str(uuid4()),)), SessionQuery(account="nobody")]
)
@on_postgres
async def test_a_name_that_nobody_has_is_said(database: Database, user: User, sessions: PostgresSessions, wanted: SessionQuery) -> None:
    await current(database, sessions, await new_conversation(database, user, "42"))
    async with database.begin() as tx:
        with pytest.raises(NotFound, match=r"nowhere|session|account 'nobody'"):
            await sessions.find(tx, wanted)


# --- the word on training


async def may_train(database: Database, sessions: PostgresSessions, session_id: UUID) -> bool:
    async with database.begin() as tx:
        return await sessions.may_train(tx, session_id)


@on_postgres
async def test_the_word_on_training_is_that_of_now(database: Database, keyring: Keyring, user: User, sessions: PostgresSessions) -> None:
    session = await current(database, sessions, await new_conversation(database, user, "42"))
    heard = []
    for word in (True, False, True):
        async with database.begin() as tx:
            await PostgresUsers(keyring).allow_training(tx, user.id, trains=word)
        heard.append(await may_train(database, sessions, session.id))
    assert heard == [True, False, True]


@on_postgres
async def test_in_a_group_everybody_who_spoke_must_allow_training(
    database: Database, keyring: Keyring, user: User, sessions: PostgresSessions
) -> None:
    people = PostgresUsers(keyring)

    async def speak(sender: str, *, trains: bool) -> UUID:
        """Let somebody say something in the one channel; return the session."""
        event = MessageEvent(platform=Platform.TELEGRAM, sender_id=sender, text="hello")
        envelope = Envelope(event=event, account="bali", channel_id="group", event_key=str(uuid4()))
        async with database.begin() as tx:
            speaker, _ = await people.find_or_create(tx, "bali", Platform.TELEGRAM, sender, state=UserState.ACTIVE)
            await people.allow_training(tx, speaker.id, trains=trains)
            accepted = await PostgresInbox(keyring).accept(tx, envelope, uuid4())
        claim = await claim_turn(database, keyring, accepted.turn_id)
        session = await current(database, sessions, claim.conversation_id, speaker.id)
        async with database.begin() as tx:
            await PostgresInteractions().add(tx, claim, session.id, {})
            await PostgresInbox(keyring).finish(tx, claim)
        return session.id

    first = await speak("ann", trains=True)
    assert await may_train(database, sessions, first)
    assert await speak("bob", trains=False) == first
    assert not await may_train(database, sessions, first)
    async with database.begin() as tx:
        await connection_of(tx).execute("update sessions set last_at = last_at - interval '13 hours'")
    second = await speak("ann", trains=True)
    assert (await may_train(database, sessions, first), await may_train(database, sessions, second)) == (False, True)


@on_postgres
async def test_who_was_deleted_has_no_word_any_more(database: Database, keyring: Keyring, user: User, sessions: PostgresSessions) -> None:
    session = await current(database, sessions, await new_conversation(database, user, "42"))
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, user.id)
    async with database.begin() as tx:
        with pytest.raises(UserErased):
            await sessions.may_train(tx, session.id)
        with pytest.raises(NotFound):
            await sessions.may_train(tx, uuid4())


# --- taking back


async def speak(database: Database, keyring: Keyring, sender: str, channel: str, nodes: tuple[str, ...] = ()) -> tuple[UUID, Session]:
    """Let somebody say something on a channel, and the log name what it added; return who, and in which session."""
    event = MessageEvent(platform=Platform.TELEGRAM, sender_id=sender, text="hello")
    envelope = Envelope(event=event, account="bali", channel_id=channel, event_key=str(uuid4()))
    async with database.begin() as tx:
        speaker, _ = await PostgresUsers(keyring).find_or_create(tx, "bali", Platform.TELEGRAM, sender, state=UserState.ACTIVE)
        accepted = await PostgresInbox(keyring).accept(tx, envelope, uuid4())
    claim = await claim_turn(database, keyring, accepted.turn_id)
    session = await current(database, PostgresSessions(keyring), claim.conversation_id, speaker.id)
    async with database.begin() as tx:
        await PostgresInteractions().add(tx, claim, session.id, {"nodes": list(nodes)} if nodes else {})
        await PostgresInbox(keyring).finish(tx, claim)
    return speaker.id, session


@on_postgres
async def test_a_session_that_was_ended_is_gone_on_with_by_nobody(database: Database, keyring: Keyring, sessions: PostgresSessions) -> None:
    ann, own = await speak(database, keyring, "ann", "ann")
    _, group = await speak(database, keyring, "bob", "group")
    await speak(database, keyring, "ann", "group")
    _, others = await speak(database, keyring, "bob", "bob")
    async with database.begin() as tx:
        assert set(await sessions.end(tx, ann)) == {own.id, group.id}
        assert await sessions.end(tx, ann) == []
        assert await sessions.find_current(tx, own.conversation_id) is None
        await PostgresGraphs(keyring).append(tx, own.id, own.head, [GraphEntry({"role": "user", "content": "late"})])
        assert await sessions.find_current(tx, own.conversation_id) is None, "also where a turn that was under way ended in it"
    second = await current(database, sessions, own.conversation_id)
    assert second == Session(second.id, own.conversation_id, ann, own.id, second.head, 0)
    assert (await current(database, sessions, group.conversation_id)).previous == group.id
    assert await current(database, sessions, others.conversation_id) == others


@on_postgres
async def test_where_somebody_spoke_among_others_is_known_until_it_is_erased(
    database: Database, keyring: Keyring, sessions: PostgresSessions
) -> None:
    ann, own = await speak(database, keyring, "ann", "group", ("a1", "a2"))
    bob, _ = await speak(database, keyring, "bob", "group", ("b1", "b2"))
    await speak(database, keyring, "bob", "group", ("b3",))
    await speak(database, keyring, "bob", "bob", ("alone",))
    await speak(database, keyring, "ann", "group")
    of_bob = UserNodes(own.id, frozenset({"b1", "b2", "b3"}), frozenset({"a1", "a2"}))
    of_ann = UserNodes(own.id, frozenset({"a1", "a2"}), frozenset({"b1", "b2", "b3"}))
    async with database.begin() as tx:
        assert (list(await sessions.user_nodes(tx, bob)), list(await sessions.user_nodes(tx, ann))) == ([of_bob], [])
        assert list(await sessions.user_nodes(tx, bob, account="bali")) == [of_bob]
        assert list(await sessions.user_nodes(tx, ann, account="bali")) == [of_ann], "an account forgets also what is sealed for them"
        assert list(await sessions.user_nodes(tx, bob, account="other")) == []
        await sessions.note_erased(tx, bob, own.id)
        assert (list(await sessions.user_nodes(tx, bob)), len(await sessions.user_nodes(tx, ann, account="bali"))) == ([], 1)
    second, _ = await speak(database, keyring, "cid", "group", ("c1",))
    async with database.begin() as tx:
        await PostgresUsers(keyring).forget(tx, ann)
        assert list(await sessions.user_nodes(tx, second)) == [], "what is sealed for somebody who is gone is gone"


async def test_a_private_session_does_not_go_on_in_a_room_nor_a_rooms_in_private(
    transactions: Transactions, user: User, sessions: Sessions
) -> None:
    conversation_id = await begin_conversation(transactions, user, "42")
    private = await current(transactions, sessions, conversation_id, user.id)
    async with transactions.begin() as tx:
        assert await sessions.find_current(tx, conversation_id, is_shared=True) is None
        room = await sessions.current(tx, conversation_id, user.id, is_shared=True)
        assert (room.is_shared, room.previous, room.length) == (True, private.id, 0)
        assert await sessions.find_current(tx, conversation_id, is_shared=True) == room
        assert await sessions.get(tx, room.id) == room
        assert await sessions.find_current(tx, conversation_id) is None
        again = await sessions.begin(tx, room, user.id)
        assert (again.is_shared, again.previous, again.id != room.id) == (True, room.id, True)
        assert (await sessions.get(tx, private.id), await sessions.get(tx, room.id)) == (private, room)
