"""Sessions of conversations on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID, uuid4

from hermes.graph.node import root_id
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Session, SessionQuery, UserNodes
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.graph_rows import BodyKind, SessionCipher
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("sessions")


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
