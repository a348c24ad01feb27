"""Chats of the OpenAI endpoint on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from hermes.graph.node import root_id
from hermes.graph.stored_graph import continue_graph
from hermes.ports.models import ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import ChatFingerprint, ChatMatch, GraphEntry
from hermes.stores.postgres.database import Database, execute, fetch_row
from hermes.stores.postgres.graph_rows import BodyKind, SessionCipher
from hermes.stores.postgres.graphs import SQL as GRAPHS
from hermes.stores.postgres.graphs import append_row
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import SQL as CALLS
from hermes.stores.postgres.model_calls import as_row
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys

SQL = load_queries("client_chats")
FIND_AND_LOCK = SQL["look"] + b" for no key update of sessions"
"""As `look`, and locks the chat: no other transaction writes to it until this one ends."""
ADD_REST = (
    GRAPHS["append_rest"].removesuffix(b"select live from moved")
    + SQL["add_fingerprint"]
    + b", called as ("
    + CALLS["add"]
    + b") select live from moved"
)
ADD = GRAPHS["append"] + ADD_REST
ADD_FIRST = SQL["add_first"] + ADD_REST
"""A sample with all that belongs to it, in one statement: its messages, the sample itself, its fingerprint and its call."""
DIGEST_BYTES = 16


class PostgresClientChats:
    """The port ClientChats. Digests are stored as HMACs under the user's key, so a reader of the database cannot test guesses."""

    def __init__(self, database: Database, keyring: Keyring) -> None:
        self._database, self._keyring = database, keyring

    async def find(self, tx: Transaction, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        return await self._find(tx, FIND_AND_LOCK, user_id, marks)

    async def look(self, user_id: UUID, marks: Sequence[ChatFingerprint]) -> ChatMatch | None:
        async with self._database.once() as tx:
            return await self._find(tx, SQL["look"], user_id, marks)

    async def add(
        self, user_id: UUID, found: ChatMatch | None, entries: Sequence[GraphEntry], mark: ChatFingerprint | None, call: ModelCall
    ) -> UUID | None:
        async with self._database.once() as tx:
            keys = await self._keyring.of(tx, user_id)
            place = new_client_chat(keys) if found is None else found
            row = append_row(place.session_id, place.head, continue_graph(place.head, 0), entries, keys)
            if row is None:
                return None
            fingerprint = fingerprint_columns(mark, make_digester(keys)) if mark is not None else NO_FINGERPRINT
            owner = {"user_id": user_id, "account_id": call.account_id}
            values = {**as_row(replace(call, session_id=place.session_id, user_id=user_id)), **owner, **row, **fingerprint}
            if isinstance(place, NewClientChat):
                values |= {"channel_id": f"{user_id}/{place.session_id}", "seed": place.seed}
            query = ADD_FIRST if isinstance(place, NewClientChat) else ADD
            is_written = await execute(tx, query, values) > 0
        if is_written:
            self._keyring.note_owner(place.session_id, user_id)
        return place.session_id if is_written else None

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
        chat = await fetch_row(tx, ChatMatch, SQL["get"], {"user_id": user_id, "session_id": session_id})
        return None if chat is None else await self._match_at_head(tx, user_id, chat, marks)

    async def find_or_begin(self, tx: Transaction, account: str, user_id: UUID, name: str, marks: Sequence[ChatFingerprint]) -> ChatMatch:
        with suppress(ValueError):
            if (by_id := await self.get(tx, user_id, UUID(name), marks)) is not None:
                return by_id
        channel_id = f"{user_id}/named/{name}"
        values = {"account": account, "channel_id": channel_id}
        await execute(tx, SQL["lock_name"], values)  # so that of two first requests one begins the chat
        chat = await fetch_row(tx, ChatMatch, SQL["find_by_name"], values)
        if chat is None:
            return await self._begin(tx, account, user_id, uuid4(), channel_id)
        return await self._match_at_head(tx, user_id, chat, marks)

    async def begin(self, tx: Transaction, account: str, user_id: UUID) -> ChatMatch:
        session_id = uuid4()
        return await self._begin(tx, account, user_id, session_id, f"{user_id}/{session_id}")

    async def note(self, tx: Transaction, user_id: UUID, session_id: UUID, head: str | None, mark: ChatFingerprint) -> None:
        fingerprint = fingerprint_columns(mark, make_digester(await self._keyring.of(tx, user_id)))
        await execute(tx, SQL["note"], {"user_id": user_id, "session_id": session_id, "head": head, **fingerprint})

    async def drop_empty(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        await execute(tx, SQL["drop_empty"], {"user_id": user_id, "session_id": session_id})

    async def _match_at_head(self, tx: Transaction, user_id: UUID, chat: ChatMatch, marks: Sequence[ChatFingerprint]) -> ChatMatch:
        """The chat, and whether its current list is a list that the request shows."""
        digester = make_digester(await self._keyring.of(tx, user_id))
        by_list = {digester(mark.shown): mark for mark in marks}
        if not by_list:
            return chat
        at = {"session_id": chat.session_id, "head": chat.head, "shown": list(by_list)}
        matched = await fetch_row(tx, ShownList, SQL["match_at_head"], at)
        return chat if matched is None else match_chat(chat.session_id, chat.head, by_list[matched.shown], matched.whole, digester)

    async def _begin(self, tx: Transaction, account: str, user_id: UUID, session_id: UUID, channel_id: str) -> ChatMatch:
        begun = new_client_chat(await self._keyring.of(tx, user_id), session_id)
        row = {"account": account, "channel_id": channel_id, "user_id": user_id, **begun._asdict()}
        await execute(tx, SQL["begin"], row)
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


class ShownList(NamedTuple):
    """The digests of a chat's current list, without and with its reasoning."""

    shown: bytes
    whole: bytes


class NewClientChat(NamedTuple):
    """A chat that does not exist yet: its id, its sealed seed, and the head of its empty list."""

    session_id: UUID
    seed: bytes
    head: str


def new_client_chat(keys: DataKeys, session_id: UUID | None = None) -> NewClientChat:
    session_id, seed = session_id or uuid4(), os.urandom(16).hex()
    return NewClientChat(session_id, SessionCipher(keys, session_id).seal(BodyKind.SEED, seed.encode()), root_id(seed).hex())


NO_FINGERPRINT = {"length": None, "shown": b"", "whole": b"", "echo": b""}


def fingerprint_columns(mark: ChatFingerprint, digester: Callable[[bytes], bytes]) -> dict[str, Any]:
    """The columns of a fingerprint."""
    return {"length": mark.length, "shown": digester(mark.shown), "whole": digester(mark.whole), "echo": digester(mark.echo)}


def make_digester(keys: DataKeys) -> Callable[[bytes], bytes]:
    """The function that makes one user's stored digests. They depend on the label "door", so it stays."""
    return lambda digest: keys.digest("door", digest)[:DIGEST_BYTES]


def match_chat(session_id: UUID, head: str, mark: ChatFingerprint | None, whole: bytes, digester: Callable[[bytes], bytes]) -> ChatMatch:
    """The chat, with the fingerprint up to which the client shows its list exactly: with all of its reasoning, or with none."""
    if mark is None:
        return ChatMatch(session_id, head)
    if mark.whole == mark.shown:
        return ChatMatch(session_id, head, mark, hides_reasoning=digester(mark.shown) != whole)
    return ChatMatch(session_id, head, mark, has_reasoning=True) if digester(mark.whole) == whole else ChatMatch(session_id, head)
