"""Sessions of conversations on PostgreSQL: those of users who write to Hermes, and the chats of completions clients."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid4

from hermes.graph.message import compact_json
from hermes.graph.node import root_id
from hermes.graph.stored_graph import continue_graph
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import NO_TRACES, AnnouncedAnswers, ChatFingerprint, ChatMatch, ChatTraces, GraphEntry, SessionQuery, UserNodes
from hermes.stores.postgres.database import Database, execute, fetch_positional, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.graph_rows import BodyKind, SessionCipher
from hermes.stores.postgres.graphs import append_row
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import CALLS, call_row
from hermes.stores.postgres.packed_arrays import bigint_array, bytea_array, integer_array, uuid_array
from hermes.stores.postgres.queries import PositionalQuery, load_queries
from hermes.stores.postgres.statement_batch import StatementBatch
from hermes.stores.seal import DataKeys

if TYPE_CHECKING:
    from hermes.ports.models import ModelCall

SQL, CHATS = load_queries("sessions"), load_queries("client_chats")
FROM_PLACED = b"from (select call as written from placed order by place) as each, jsonb_to_record(written)"
FIND_AND_LOCK = CHATS["look"] + b" for no key update of sessions"
"""As `look`, and locks the chat: no other transaction writes to it until this one ends."""
RECORD = PositionalQuery.of(CHATS["record"] + CALLS["add"].replace(b"from jsonb_to_record(%(call)s)", FROM_PLACED) + CHATS["record_end"])
"""Samples with all that belongs to them, in one statement: their messages, the samples themselves, their fingerprints and their calls."""
DIGEST_BYTES = 16
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
        self._traces = StatementBatch(database, find_traced)
        self._heads = StatementBatch(database, find_heads)

    async def find(self, tx: Transaction, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        return await self._find(tx, FIND_AND_LOCK, user_id, marks)

    async def look(self, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        async with self._database.once() as tx:
            return await self._find(tx, CHATS["look"], user_id, marks)

    async def trace(self, user_id: UUID, traces: ChatTraces) -> Sequence[UUID]:
        async with self._database.once() as tx:
            digester = make_digester(await self._keyring.of(tx, user_id))
            contexts, spans = quote_numbers(traces.contexts, digester), {*quote_numbers(traces.spans, digester)}
            values = {"user_id": user_id, "quotes": [*contexts, *spans]}
            return rank_traced(await fetch_rows(tx, TracedSample, CHATS["trace"], values), contexts, spans)

    async def is_traced(self, user_id: UUID, traces: ChatTraces) -> bool:
        digester = make_digester(await self._keys(user_id))
        quotes = [*quote_numbers(traces.contexts, digester), *quote_numbers(traces.spans, digester)]
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
        row = append_row(place.session_id, place.head, continue_graph(place.head, 0), entries, keys)
        if row is None:
            return None
        digester = make_digester(keys)
        recorded = RecordedAnswer(place, user_id, row, fingerprint_columns(mark, digester) if mark is not None else NO_FINGERPRINT, call)
        if place.seed and unless is not NO_TRACES:
            recorded.traces += [*quote_numbers(unless.contexts, digester), *quote_numbers(unless.spans, digester)]
        if not await self._records.run(recorded, key=place.session_id):
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
        fingerprint = fingerprint_columns(mark, make_digester(await self._keyring.of(tx, user_id)))
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


@dataclass(slots=True)
class RecordedAnswer:
    """An answer as it goes into the database: its chat, the rows that append it, its fingerprint, and its call."""

    chat: ChatMatch
    user_id: UUID
    row: dict[str, Any]
    fingerprint: dict[str, Any]
    call: ModelCall
    traces: list[int] = field(default_factory=list)
    """If the user has a response with one of these, no chat is begun."""


async def record_answers(tx: Transaction, answers: Sequence[RecordedAnswer]) -> list[bool]:
    """Write answers, each of another session; return which were written."""
    written = set(await fetch_positional(tx, RECORD, record_values(answers)))
    return [answer.chat.session_id in written for answer in answers]


async def is_recorded(tx: Transaction, answer: RecordedAnswer) -> bool:
    """Whether an answer was written by a statement whose reply was lost."""
    values = {"call_id": answer.call.id, "session_id": answer.chat.session_id}
    return bool(await execute(tx, CHATS["recorded"], values))


def record_values(answers: Sequence[RecordedAnswer]) -> dict[str, Any]:
    """The values of the statement `record`. All that is no binary is one JSON value, which is cheaper than a parameter for each column."""
    rows = [answer.row for answer in answers]
    marks = [answer.fingerprint for answer in answers]
    messages = [(place, *pair) for place, row in enumerate(rows, 1) for pair in zip(row["addresses"], row["bodies"], strict=True)]
    overlays = [(place, *pair) for place, row in enumerate(rows, 1) for pair in zip(row["overlays"], row["overlay_bodies"], strict=True)]
    samples = [
        (place, *sample) for place, row in enumerate(rows, 1) for sample in zip(*(row[name] for name in SAMPLE_COLUMNS), strict=True)
    ]
    places, addresses, bodies = columns_of(3, messages)
    overlay_places, overlay_addresses, overlay_bodies = columns_of(3, overlays)
    sample_places, names, indices, responses, sample_overlays, sample_bodies = columns_of(6, samples)
    return {
        "answers": compact_json([answer_columns(answer) for answer in answers]),
        "seeds": bytea_array([answer.chat.seed or None for answer in answers]),
        "nodes": bytea_array([row["nodes"] for row in rows]),
        "shown": bytea_array([mark["shown"] for mark in marks]),
        "whole": bytea_array([mark["whole"] for mark in marks]),
        "echo": bytea_array([mark["echo"] for mark in marks]),
        "places": integer_array(places),
        "addresses": bytea_array(addresses),
        "bodies": bytea_array(bodies),
        "overlay_places": integer_array(overlay_places),
        "overlays": bytea_array(overlay_addresses),
        "overlay_bodies": bytea_array(overlay_bodies),
        "sample_places": integer_array(sample_places),
        "names": bytea_array(names),
        "indices": integer_array(indices),
        "responses": bytea_array(responses),
        "sample_overlays": bytea_array(sample_overlays),
        "sample_bodies": bytea_array(sample_bodies),
    }


SAMPLE_COLUMNS = ("names", "indices", "responses", "sample_overlays", "sample_bodies")


def answer_columns(answer: RecordedAnswer) -> dict[str, Any]:
    session_id, user_id = str(answer.chat.session_id), str(answer.user_id)
    return {
        "session_id": session_id,
        "user_id": user_id,
        "account_id": answer.call.account_id,
        "channel_id": f"{user_id}/{session_id}",
        "head": None if answer.chat.seed else answer.chat.head,
        "new_head": answer.row["new_head"],
        "count": answer.row["count"],
        "mark": answer.row["mark"].hex,
        "length": answer.fingerprint["length"],
        "quotes": answer.fingerprint["quotes"],
        "traces": answer.traces or None,
        "call": {**call_row(answer.call), "session_id": session_id, "user_id": user_id},
    }


def columns_of(count: int, rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


async def find_traced(tx: Transaction, requests: Sequence[tuple[UUID, Sequence[int]]]) -> list[bool]:
    """Which requests, each a user and numbers of traces, have a trace of one of the user's chats."""
    pairs = [(place, user_id, quote) for place, (user_id, quotes) in enumerate(requests) for quote in quotes]
    places, users, quotes = columns_of(3, pairs)
    values = {"places": integer_array(places), "users": uuid_array(users), "quotes": bigint_array(quotes)}
    found = set(await fetch_values(tx, CHATS["is_traced"], values))
    return [place in found for place in range(len(requests))]


async def find_heads(tx: Transaction, sessions: Sequence[UUID]) -> list[str | None]:
    """The head of each session's list; None for a session that is gone."""
    found = await fetch_rows(tx, SessionHead, CHATS["heads"], {"ids": uuid_array(sessions)})
    heads = {each.session_id: each.head for each in found}
    return [heads.get(session_id) for session_id in sessions]


class SessionHead(NamedTuple):
    """A session, and the head of its list."""

    session_id: UUID
    head: str


class NewClientChat(NamedTuple):
    """A chat that does not exist yet: its id, its sealed seed, and the head of its empty list."""

    session_id: UUID
    seed: bytes
    head: str


def new_client_chat(keys: DataKeys, session_id: UUID | None = None) -> NewClientChat:
    session_id, seed = session_id or uuid4(), os.urandom(16).hex()
    return NewClientChat(session_id, SessionCipher(keys, session_id).seal(BodyKind.SEED, seed.encode()), root_id(seed).hex())


NO_FINGERPRINT = {"length": None, "shown": b"", "whole": b"", "echo": b"", "quotes": None}


def fingerprint_columns(mark: ChatFingerprint, digester: Callable[[bytes], bytes]) -> dict[str, Any]:
    """The columns of a fingerprint."""
    quotes = [*quote_numbers(mark.traces.contexts, digester), *quote_numbers(mark.traces.spans, digester)]
    digests = {"shown": digester(mark.shown), "whole": digester(mark.whole), "echo": digester(mark.echo)}
    return {"length": mark.length, **digests, "quotes": quotes or None}


def quote_numbers(traces: Sequence[bytes], digester: Callable[[bytes], bytes]) -> list[int]:
    """Eight bytes of the digest of each trace, as PostgreSQL indexes them."""
    return [int.from_bytes(digester(trace)[:8], "big", signed=True) for trace in traces]


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
    """The function that makes one user's stored digests. They depend on the label "door", so it stays."""
    digest_all = keys.digester("door")
    return lambda digest: digest_all(digest)[:DIGEST_BYTES]


def match_chat(session_id: UUID, head: str, mark: ChatFingerprint | None, whole: bytes, digester: Callable[[bytes], bytes]) -> ChatMatch:
    """The chat, with the fingerprint up to which the client shows its list exactly: with all of its reasoning, or with none."""
    if mark is None:
        return ChatMatch(session_id, head)
    if mark.whole == mark.shown:
        return ChatMatch(session_id, head, mark, hides_reasoning=digester(mark.shown) != whole)
    return ChatMatch(session_id, head, mark, has_reasoning=True) if digester(mark.whole) == whole else ChatMatch(session_id, head)
