"""Sessions of conversations on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID, uuid4

from hermes.graph.node import root_id
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Session, SessionQuery, UserNodes
from hermes.stores.postgres.database import connection_of
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
        conversation = await (await connection_of(tx).execute(SQL["lock_conversation"], where)).fetchone()
        if conversation is None:
            raise NotFound(f"there is no conversation {conversation_id}")
        # Another worker may have begun one while this one waited for the lock.
        session = await self.find_current(tx, conversation_id, is_shared=is_shared)
        if session is not None:
            return session
        owner_id, account_id = conversation
        try:
            keys = await self._keyring.of(tx, owner_id)
        except UserErased:
            owner_id, keys = user_id, await self._keyring.of(tx, user_id)
            await connection_of(tx).execute(SQL["take_over"], {**where, "user_id": user_id})
        row = await (await connection_of(tx).execute(SQL["newest"], where)).fetchone()
        seed, session_id = os.urandom(16).hex(), uuid4()
        session = Session(session_id, conversation_id, owner_id, None if row is None else row[0], root_id(seed).hex(), 0, is_shared)
        values = {
            "session_id": session_id,
            "account_id": account_id,
            "conversation_id": conversation_id,
            "user_id": owner_id,
            "previous": session.previous,
            "seed": SessionCipher(keys, session_id).seal(BodyKind.SEED, seed.encode()),
            "head": session.head,
            "is_shared": is_shared,
        }
        await connection_of(tx).execute(SQL["add"], values)
        self._keyring.note_owner(session_id, owner_id)
        return session

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        where = {"conversation_id": conversation_id, "idle_s": self._idle_s, "is_shared": is_shared}
        row = await (await connection_of(tx).execute(SQL["find_current"], where)).fetchone()
        if row is None:
            return None
        session = Session(*row)
        try:
            await self._keyring.of(tx, session.user_id)
        except UserErased:
            return None  # its key is gone, so no worker can read or continue it
        self._keyring.note_owner(session.id, session.user_id)
        return session

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        row = await (await connection_of(tx).execute(SQL["get"], {"session_id": session_id})).fetchone()
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        return Session(*row)

    async def find(self, tx: Transaction, query: SessionQuery) -> Sequence[UUID]:
        if query.account is not None:
            known = await (await connection_of(tx).execute(SQL["has_account"], {"account": query.account})).fetchone()
            if known is None:
                raise NotFound(f"there is no account {query.account!r}")
        among = {session_id for name in query.names for session_id in await self._find_by_name(tx, name)}
        limits = {"among": list(among) if query.names else None, "since": query.since, "account": query.account}
        return [session_id for (session_id,) in await (await connection_of(tx).execute(SQL["find"], limits)).fetchall()]

    async def _find_by_name(self, tx: Transaction, name: str) -> Sequence[UUID]:
        """The ids of the sessions that a name stands for. Raises NotFound if there is none."""
        as_id = None
        with suppress(ValueError):
            as_id = UUID(name)
        rows = await (await connection_of(tx).execute(SQL["find_by_name"], {"name": name, "id": as_id})).fetchall()
        if not rows:
            raise NotFound(f"there is no conversation or session {name!r}")
        return [session_id for (session_id,) in rows]

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        await connection_of(tx).execute(SQL["end_one"], {"session_id": session.id})
        return await self.current(tx, session.conversation_id, user_id, is_shared=session.is_shared)

    async def end(self, tx: Transaction, user_id: UUID) -> Sequence[UUID]:
        # Locks sessions before their user, as the end of a turn does.
        ended = await (await connection_of(tx).execute(SQL["end"], {"user_id": user_id})).fetchall()
        await connection_of(tx).execute(SQL["show_from_now"], {"user_id": user_id})
        return [session_id for (session_id,) in ended]

    async def user_nodes(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> Sequence[UserNodes]:
        rows = await (await connection_of(tx).execute(SQL["user_nodes"], {"user_id": user_id, "account": account})).fetchall()
        return [UserNodes(session_id, *map(frozenset, columns)) for session_id, *columns in rows]

    async def note_erased(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        await connection_of(tx).execute(SQL["note_erased"], {"user_id": user_id, "session_id": session_id})

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        row = await (await connection_of(tx).execute(SQL["may_train"], {"session_id": session_id})).fetchone()
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        is_deleted, trains = row
        if is_deleted:
            raise UserErased
        return bool(trains)
