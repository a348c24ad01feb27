"""Sessions of conversations on PostgreSQL: those of users who write to Hermes, and the chats of completions clients."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from psycopg.rows import tuple_row

from hermes.graph.message import compact_json
from hermes.graph.node import root_id
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import NO_TRACES, AnnouncedAnswers, ChatFingerprint, ChatMatch, ChatTraces, GraphEntry, SessionQuery, UserNodes
from hermes.stores.postgres.database import Database, execute, fetch_positional, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.graph_rows import BodyKind, SessionCipher
from hermes.stores.postgres.graphs import append_row
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import CALLS, call_row
from hermes.stores.postgres.packed_arrays import IntegerArray, bigint_array, bytea_array, integer_array, uuid_array
from hermes.stores.postgres.queries import PositionalQuery, load_queries
from hermes.stores.postgres.statement_batch import StatementBatch
from hermes.stores.seal import DataKeys

if TYPE_CHECKING:
    from hermes.ports.models import ModelCall

SQL, CHATS = load_queries("sessions"), load_queries("client_chats")
FIND_AND_LOCK = CHATS["look"] + b" for no key update of sessions"
"""As `look`, and locks the chat: no other transaction writes to it until this one ends."""


def record_query(*more: bytes) -> PositionalQuery:
    """Samples with all that belongs to them, in one statement: their messages, the samples themselves, their fingerprints and their calls;
    and what `more` writes."""
    calls = (CALLS["insert"], CHATS["record_calls"], CALLS["types"], CHATS["record_end"])
    return PositionalQuery.of(b"\n".join((CHATS["record"], *more, CHATS["record_samples"], *calls)))


RECORD, RECORD_WITH_OVERLAYS = record_query(), record_query(CHATS["record_overlays"])
"""Two, because a part of a statement takes PostgreSQL time also if it has nothing to write, and most answers have no overlays."""
FIND_TRACED, FIND_HEADS = PositionalQuery.of(CHATS["find_traced"]), PositionalQuery.of(CHATS["heads"])
DIGEST_LABEL = "door"
"""Stored digests depend on it, so it stays."""
DIGEST_BYTES = 16
QUOTE = Struct(">q")
"""The first eight bytes of the digest of a trace, as PostgreSQL indexes them."""
MAX_TRACED_CHATS = 4


class PostgresSessions:
    """The port Sessions. A caller that finds no session locks the conversation's row and looks again, so that two callers make one."""

    def __init__(self, keyring: Keyring, *, idle_s: float = 43_200) -> None:
        self._keyring, self._idle_s = keyring, idle_s

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        session = await self.find_current(tx, conversation_id, is_shared=is_shared)
        if session is not None:
            return session
        where = {"conversation_id": conversation_id}
        conversation = await fetch_row(tx, ConversationOwner, SQL["lock_conversation"], where)
        if conversation is None:
            raise NotFound(f"there is no conversation {conversation_id}")
        # Another worker may have begun one while this one waited for the lock.
        session = await self.find_current(tx, conversation_id, is_shared=is_shared)
        if session is not None:
            return session
        owner_id = conversation.user_id
        try:
            keys = await self._keyring.of(tx, owner_id)
        except UserErased:
            owner_id, keys = user_id, await self._keyring.of(tx, user_id)
            await execute(tx, SQL["take_over"], {**where, "user_id": user_id})
        previous: UUID | None = await fetch_value(tx, SQL["newest"], where)
        seed, session_id = os.urandom(16).hex(), uuid4()
        session = Session(session_id, conversation_id, owner_id, previous, root_id(seed).hex(), 0, is_shared)
        values = {
            "session_id": session_id,
            "account_id": conversation.account_id,
            "conversation_id": conversation_id,
            "user_id": owner_id,
            "previous": previous,
            "seed": SessionCipher(keys, session_id).seal(BodyKind.SEED, seed.encode()),
            "head": session.head,
            "is_shared": is_shared,
        }
        await execute(tx, SQL["add"], values)
        self._keyring.note_owner(session_id, owner_id)
        return session

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        where = {"conversation_id": conversation_id, "idle_s": self._idle_s, "is_shared": is_shared}
        session = await fetch_row(tx, Session, SQL["find_current"], where)
        if session is None:
            return None
        try:
            await self._keyring.of(tx, session.user_id)
        except UserErased:
            return None  # its key is gone, so no worker can read or continue it
        self._keyring.note_owner(session.id, session.user_id)
        return session

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        session = await fetch_row(tx, Session, SQL["get"], {"session_id": session_id})
        if session is None:
            raise NotFound(f"there is no session {session_id}")
        return session

    async def find(self, tx: Transaction, query: SessionQuery) -> Sequence[UUID]:
        if query.account is not None and not await execute(tx, SQL["has_account"], {"account": query.account}):
            raise NotFound(f"there is no account {query.account!r}")
        among = {session_id for name in query.names for session_id in await self._find_by_name(tx, name)}
        limits = {"among": list(among) if query.names else None, "since": query.since, "account": query.account}
        return await fetch_values(tx, SQL["find"], limits)

    async def _find_by_name(self, tx: Transaction, name: str) -> Sequence[UUID]:
        """The ids of the sessions that a name stands for. Raises NotFound if there is none."""
        as_id = None
        with suppress(ValueError):
            as_id = UUID(name)
        found = await fetch_values(tx, SQL["find_by_name"], {"name": name, "id": as_id})
        if not found:
            raise NotFound(f"there is no conversation or session {name!r}")
        return found

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        await execute(tx, SQL["end_one"], {"session_id": session.id})
        return await self.current(tx, session.conversation_id, user_id, is_shared=session.is_shared)

    async def end(self, tx: Transaction, user_id: UUID) -> Sequence[UUID]:
        # Locks sessions before their user, as the end of a turn does.
        ended = await fetch_values(tx, SQL["end"], {"user_id": user_id})
        await execute(tx, SQL["show_from_now"], {"user_id": user_id})
        return ended

    async def user_nodes(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> Sequence[UserNodes]:
        return await fetch_rows(tx, read_user_nodes, SQL["user_nodes"], {"user_id": user_id, "account": account})

    async def note_erased(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        await execute(tx, SQL["note_erased"], {"user_id": user_id, "session_id": session_id})

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        consent = await fetch_row(tx, TrainingConsent, SQL["may_train"], {"session_id": session_id})
        if consent is None:
            raise NotFound(f"there is no session {session_id}")
        if consent.is_deleted:
            raise UserErased
        return consent.may_train


class ConversationOwner(NamedTuple):
    """The user whose key seals a conversation's sessions, and its account."""

    user_id: UUID
    account_id: str


class TrainingConsent(NamedTuple):
    """Whether a session's owner was deleted, and whether all of its users allow training."""

    is_deleted: bool
    may_train: bool


def read_user_nodes(*, session_id: UUID, **names: Sequence[str]) -> UserNodes:
    return UserNodes(session_id, **{kind: frozenset(found) for kind, found in names.items()})


# --- chats of completions clients


class PostgresClientChats:
    """The port ClientChats. Digests are stored as HMACs under the user's key, so a reader of the database cannot test guesses."""

    def __init__(self, database: Database, keyring: Keyring, announced: AnnouncedAnswers | None = None) -> None:
        """`announced` is shared with other processes that write chats; None: there are none."""
        self._database, self._keyring, self._announced = database, keyring, announced
        self._records = StatementBatch(database, record_answers, is_done=is_recorded)
        # Two at once: a text that many answers of one user have in common takes longer, and others do not wait for it.
        self._traces = StatementBatch(database, find_traced)
        # One at once, which takes a fraction of a millisecond: fewer statements for more requests.
        self._heads = StatementBatch(database, find_heads, at_once=1)

    async def find(self, tx: Transaction, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        return await self._find(tx, FIND_AND_LOCK, user_id, marks)

    async def look(self, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        async with self._database.once() as tx:
            return await self._find(tx, CHATS["look"], user_id, marks)

    async def trace(self, user_id: UUID, traces: ChatTraces) -> Sequence[UUID]:
        async with self._database.once() as tx:
            quotes = quote_numbers(traces, await self._keyring.of(tx, user_id))
            contexts, spans = quotes[: len(traces.contexts)], {*quotes[len(traces.contexts) :]}
            values = {"user_id": user_id, "quotes": [*contexts, *spans]}
            return rank_traced(await fetch_rows(tx, TracedSample, CHATS["trace"], values), contexts, spans)

    async def is_traced(self, user_id: UUID, traces: ChatTraces) -> bool:
        quotes = quote_numbers(traces, await self._keys(user_id))
        return bool(quotes) and await self._traces.run((user_id, quotes))

    async def is_unchanged(self, chat: ChatMatch) -> bool:
        return await self._heads.run(chat.session_id) == chat.head

    async def announce(self, user_id: UUID, context: bytes, session_id: UUID) -> tuple[Sequence[bytes], Awaitable[None]]:
        if self._announced is None:
            return (), asyncio.sleep(0)
        names = (make_digester(await self._keys(user_id))(context), session_id.bytes)
        return names, self._announced.announce(names)

    def withdraw(self, names: Sequence[bytes]) -> None:
        if self._announced is not None and names:
            self._announced.withdraw(names)

    async def wait_for_announced(self, user_id: UUID, contexts: Sequence[bytes], session_id: UUID | None = None) -> None:
        if self._announced is None or not (contexts or session_id):
            return
        names = [*map(make_digester(await self._keys(user_id)), contexts), *([session_id.bytes] if session_id else [])]
        await self._announced.wait_for(names)

    async def plan(self, user_id: UUID) -> ChatMatch:
        begun = new_client_chat(await self._keys(user_id))
        return ChatMatch(begun.session_id, begun.head, is_new=True, seed=begun.seed)

    async def add(
        self,
        user_id: UUID,
        place: ChatMatch,
        entries: Sequence[GraphEntry],
        mark: ChatFingerprint | None,
        call: ModelCall,
        *,
        unless: ChatTraces = NO_TRACES,
    ) -> ChatMatch | None:
        keys = await self._keys(user_id)
        appended = append_row(place.session_id, place.head, entries, keys)
        if appended is None:
            return None
        row = appended.values
        traces = quote_numbers(unless, keys) if place.seed and unless is not NO_TRACES else []
        fingerprint = fingerprint_columns(mark, keys) if mark is not None else NO_FINGERPRINT
        recorded = RecordedAnswer(place, user_id, row, fingerprint, call, traces)
        if not await self._records.run(recorded, key=place.session_id.int):
            return None
        self._keyring.note_owner(place.session_id, user_id)
        return ChatMatch(place.session_id, row["new_head"], mark)

    async def _keys(self, user_id: UUID) -> DataKeys:
        keys = self._keyring.known(user_id)
        if keys is not None:
            return keys
        async with self._database.once() as tx:
            return await self._keyring.of(tx, user_id)

    async def _find(self, tx: Transaction, query: bytes, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        digester = make_digester(await self._keyring.of(tx, user_id))
        if not marks:
            return None
        by_list = {digester(mark.shown): mark for mark in marks}
        values = {"user_id": user_id, "shown": list(by_list), "echo": [digester(mark.echo) for mark in marks]}
        row = await fetch_row(tx, RecognisedChat, query, values)
        if row is None:
            return None
        self._keyring.note_owner(row.session_id, user_id)
        mark = by_list.get(row.shown) if row.is_list and row.known_head == row.head else None
        return match_chat(row.session_id, row.head, mark if mark and mark.length == row.length else None, row.whole, digester)

    async def get(self, tx: Transaction, user_id: UUID, session_id: UUID, marks: Sequence[ChatFingerprint] = ()) -> ChatMatch | None:
        chat = await fetch_row(tx, ChatMatch, CHATS["get"], {"user_id": user_id, "session_id": session_id})
        return None if chat is None else await self._match_at_head(tx, user_id, chat, marks)

    async def find_or_begin(self, tx: Transaction, account: str, user_id: UUID, name: str, marks: Sequence[ChatFingerprint]) -> ChatMatch:
        with suppress(ValueError):
            if (by_id := await self.get(tx, user_id, UUID(name), marks)) is not None:
                return by_id
        channel_id = f"{user_id}/named/{name}"
        values = {"account": account, "channel_id": channel_id}
        await execute(tx, CHATS["lock_name"], values)  # so that of two first requests one begins the chat
        chat = await fetch_row(tx, ChatMatch, CHATS["find_by_name"], values)
        if chat is None:
            return await self._begin(tx, account, user_id, uuid4(), channel_id)
        return await self._match_at_head(tx, user_id, chat, marks)

    async def find_by_hint(
        self, tx: Transaction, account: str, user_id: UUID, hint: bytes, marks: Sequence[ChatFingerprint]
    ) -> ChatMatch | None:
        values = {"account": account, "channel_id": await self._hinted_channel(tx, user_id, hint)}
        await execute(tx, CHATS["lock_name"], values)
        chat = await fetch_row(tx, ChatMatch, CHATS["find_by_name"], values)
        return None if chat is None else await self._match_at_head(tx, user_id, chat, marks)

    async def begin(self, tx: Transaction, account: str, user_id: UUID, hint: bytes = b"") -> ChatMatch:
        session_id = uuid4()
        channel_id = await self._hinted_channel(tx, user_id, hint) if hint else f"{user_id}/{session_id}"
        return await self._begin(tx, account, user_id, session_id, channel_id)

    async def _hinted_channel(self, tx: Transaction, user_id: UUID, hint: bytes) -> str:
        return f"{user_id}/hinted/{make_digester(await self._keyring.of(tx, user_id))(hint).hex()}"

    async def note(self, tx: Transaction, user_id: UUID, session_id: UUID, head: str | None, mark: ChatFingerprint) -> None:
        fingerprint = fingerprint_columns(mark, await self._keyring.of(tx, user_id))
        await execute(tx, CHATS["note"], {"user_id": user_id, "session_id": session_id, "head": head, **fingerprint})

    async def hold_user(self, tx: Transaction, account: str, user_id: UUID) -> None:
        if not await execute(tx, CHATS["hold_user"], {"account": account, "user_id": user_id}):
            raise UserErased

    async def drop_empty(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        await execute(tx, CHATS["drop_empty"], {"user_id": user_id, "session_id": session_id})

    async def _match_at_head(self, tx: Transaction, user_id: UUID, chat: ChatMatch, marks: Sequence[ChatFingerprint]) -> ChatMatch:
        """The chat, and whether its current list is a list that the request shows."""
        digester = make_digester(await self._keyring.of(tx, user_id))
        by_list = {digester(mark.shown): mark for mark in marks}
        if not by_list:
            return chat
        at = {"session_id": chat.session_id, "head": chat.head, "shown": list(by_list)}
        matched = await fetch_row(tx, ShownList, CHATS["match_at_head"], at)
        return chat if matched is None else match_chat(chat.session_id, chat.head, by_list[matched.shown], matched.whole, digester)

    async def _begin(self, tx: Transaction, account: str, user_id: UUID, session_id: UUID, channel_id: str) -> ChatMatch:
        begun = new_client_chat(await self._keyring.of(tx, user_id), session_id)
        row = {"account": account, "channel_id": channel_id, "user_id": user_id, **begun._asdict()}
        await execute(tx, CHATS["begin"], row)
        self._keyring.note_owner(session_id, user_id)
        return ChatMatch(session_id, begun.head, is_new=True)


class RecognisedChat(NamedTuple):
    """A chat, and the newest of its fingerprints that is in the request: of a list, or only of a response."""

    session_id: UUID
    head: str
    known_head: str | None
    length: int
    shown: bytes
    whole: bytes
    is_list: bool


class TracedSample(NamedTuple):
    """A sample with some of the traces that were looked for."""

    session_id: UUID
    quotes: Sequence[int]


class ShownList(NamedTuple):
    """The digests of a chat's current list, without and with its reasoning."""

    shown: bytes
    whole: bytes


class RecordedAnswer(NamedTuple):
    """An answer as it goes into the database: its chat, the rows that append it, its fingerprint, and its call."""

    chat: ChatMatch
    user_id: UUID
    row: dict[str, Any]
    fingerprint: dict[str, Any]
    call: ModelCall
    traces: Sequence[int]
    """If the user has a response with one of these, no chat is begun."""


async def record_answers(tx: Transaction, answers: Sequence[RecordedAnswer]) -> list[bool]:
    """Write answers, each of another session; return which were written."""
    query, values = RECORD, record_values(answers)
    if any(answer.row["overlays"] for answer in answers):
        query, values = RECORD_WITH_OVERLAYS, values | overlay_values(answers)
    written = set(await fetch_positional(tx, query, values))
    return [place in written for place in range(1, len(answers) + 1)]


async def is_recorded(tx: Transaction, answer: RecordedAnswer) -> bool:
    """Whether an answer was written by a statement whose reply was lost."""
    values = {"call_id": answer.call.id, "session_id": answer.chat.session_id}
    return bool(await execute(tx, CHATS["recorded"], values))


def record_values(answers: Sequence[RecordedAnswer]) -> dict[str, Any]:
    """The values of the statement `record`. All that is no binary is one JSON value, which is cheaper than a parameter for each column."""
    rows = [answer.row for answer in answers]
    marks = [answer.fingerprint for answer in answers]
    return {
        "answers": compact_json([answer_columns(answer) for answer in answers]),
        "calls": compact_json([call_row(answer.call) for answer in answers]),
        "seeds": bytea_array([answer.chat.seed or None for answer in answers]),
        "nodes": bytea_array([row["nodes"] for row in rows]),
        "shown": bytea_array([mark["shown"] for mark in marks]),
        "whole": bytea_array([mark["whole"] for mark in marks]),
        "echo": bytea_array([mark["echo"] for mark in marks]),
        "places": places_of("addresses", rows),
        "addresses": bytea_array(values_of("addresses", rows)),
        "bodies": bytea_array(values_of("bodies", rows)),
        "sample_places": places_of("names", rows),
        "indices": integer_array(values_of("indices", rows)),
        "names": bytea_array(values_of("names", rows)),
        "responses": bytea_array(values_of("responses", rows)),
        "sample_overlays": bytea_array(values_of("sample_overlays", rows)),
        "sample_bodies": bytea_array(values_of("sample_bodies", rows)),
    }


def overlay_values(answers: Sequence[RecordedAnswer]) -> dict[str, Any]:
    """The further values of `record_overlays`."""
    rows = [answer.row for answer in answers]
    return {
        "overlay_places": places_of("overlays", rows),
        "overlays": bytea_array(values_of("overlays", rows)),
        "overlay_bodies": bytea_array(values_of("overlay_bodies", rows)),
    }


def values_of(name: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What all answers have in a column, the first answer first."""
    return [value for row in rows for value in row[name]]


def places_of(name: str, rows: Sequence[Mapping[str, Any]]) -> IntegerArray:
    """The number of its answer, for each value of `values_of`."""
    return integer_array([place for place, row in enumerate(rows, 1) for _ in row[name]])


def answer_columns(answer: RecordedAnswer) -> dict[str, Any]:
    """An answer's columns that are no binary."""
    return {
        "account_id": answer.call.account_id,
        "session_id": answer.chat.session_id.hex,
        "user_id": answer.user_id.hex,
        "head": None if answer.chat.seed else answer.chat.head,
        "new_head": answer.row["new_head"],
        "count": answer.row["count"],
        "mark": answer.row["mark"].hex,
        "length": answer.fingerprint["length"],
        "quotes": answer.fingerprint["quotes"],
        "traces": answer.traces or None,
    }


async def find_traced(tx: Transaction, requests: Sequence[tuple[UUID, Sequence[int]]]) -> list[bool]:
    """Which requests, each a user and numbers of traces, have a trace of one of the user's chats."""
    users = uuid_array(list({user_id for user_id, _ in requests}))
    quotes = bigint_array(list({quote for _, quotes in requests for quote in quotes}))
    found = set(await fetch_positional(tx, FIND_TRACED, {"users": users, "quotes": quotes}, row=tuple_row))
    return [bool(found) and any((user_id, quote) in found for quote in quotes) for user_id, quotes in requests]


async def find_heads(tx: Transaction, sessions: Sequence[UUID]) -> list[str | None]:
    """The head of each session's list; None for a session that is gone."""
    heads = dict(await fetch_positional(tx, FIND_HEADS, {"ids": uuid_array(sessions)}, row=tuple_row))
    return [heads.get(session_id) for session_id in sessions]


class NewClientChat(NamedTuple):
    """A chat that does not exist yet: its id, its sealed seed, and the head of its empty list."""

    session_id: UUID
    seed: bytes
    head: str


def new_client_chat(keys: DataKeys, session_id: UUID | None = None) -> NewClientChat:
    session_id, seed = session_id or uuid4(), os.urandom(16).hex()
    return NewClientChat(session_id, SessionCipher(keys, session_id).seal(BodyKind.SEED, seed.encode()), root_id(seed).hex())


NO_FINGERPRINT = {"length": None, "shown": b"", "whole": b"", "echo": b"", "quotes": None}


def fingerprint_columns(mark: ChatFingerprint, keys: DataKeys) -> dict[str, Any]:
    """The columns of a fingerprint."""
    digester = make_digester(keys)
    digests = {"shown": digester(mark.shown), "whole": digester(mark.whole), "echo": digester(mark.echo)}
    return {"length": mark.length, **digests, "quotes": quote_numbers(mark.traces, keys) or None}


def quote_numbers(traces: ChatTraces, keys: DataKeys) -> list[int]:
    """The number of each trace: first those of lists, then those of spans."""
    digests = b"".join(map(keys.digester(DIGEST_LABEL, QUOTE.size), (*traces.contexts, *traces.spans)))
    return [number for (number,) in QUOTE.iter_unpack(digests)]


def rank_traced(rows: Sequence[TracedSample], contexts: Sequence[int], spans: Collection[int]) -> list[UUID]:
    """The chats of samples with traces, the newest sample first: those with the longest list, then those with the most spans."""
    lists: dict[UUID, int] = {}
    holders: dict[int, set[UUID]] = {}
    for row in rows:
        for place, context in enumerate(contexts):
            if context in row.quotes:
                lists[row.session_id] = min(place, lists.get(row.session_id, place))
        for span in row.quotes:
            if span in spans:
                holders.setdefault(span, set()).add(row.session_id)
    counts = Counter(next(iter(chats)) for chats in holders.values() if len(chats) == 1)
    by_list = sorted(lists, key=lambda chat: lists[chat])
    return list(dict.fromkeys([*by_list, *(chat for chat, _ in counts.most_common())]))[:MAX_TRACED_CHATS]


def make_digester(keys: DataKeys) -> Callable[[bytes], bytes]:
    """The function that makes one user's stored digests."""
    return keys.digester(DIGEST_LABEL, DIGEST_BYTES)


def match_chat(session_id: UUID, head: str, mark: ChatFingerprint | None, whole: bytes, digester: Callable[[bytes], bytes]) -> ChatMatch:
    """The chat, with the fingerprint up to which the client shows its list exactly: with all of its reasoning, or with none."""
    if mark is None:
        return ChatMatch(session_id, head)
    if mark.whole == mark.shown:
        return ChatMatch(session_id, head, mark, hides_reasoning=digester(mark.shown) != whole)
    return ChatMatch(session_id, head, mark, has_reasoning=True) if digester(mark.whole) == whole else ChatMatch(session_id, head)
