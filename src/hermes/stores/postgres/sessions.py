"""Sessions of conversations on PostgreSQL."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID, uuid4

from hermes.graph.node import root_id
from hermes.ports.errors import Forgotten, NotThere
from hermes.ports.sessions import Session
from hermes.ports.transactions import Transaction
from hermes.stores.postgres.database import on
from hermes.stores.postgres.graph_rows import Kind, Vault
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load

SQL = load("sessions")


class PostgresSessions:
    """The port Sessions. The conversation's row is locked while its session is looked for, so that two callers make one."""

    def __init__(self, keyring: Keyring, *, idle_s: float = 43_200) -> None:
        self._keyring, self._idle_s = keyring, idle_s

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID) -> Session:
        wanted = {"conversation_id": conversation_id, "idle_s": self._idle_s}
        session = await self._go_on(tx, wanted)
        if session is not None:
            return session
        conversation = await (await on(tx).execute(SQL["lock_conversation"], wanted)).fetchone()
        if conversation is None:
            raise NotThere(f"there is no conversation {conversation_id}")
        session = await self._go_on(tx, wanted)  # somebody else may have begun it while this one waited
        if session is not None:
            return session
        owner_id, account_id = conversation
        try:
            keys = await self._keyring.of(tx, owner_id)
        except Forgotten:
            owner_id, keys = user_id, await self._keyring.of(tx, user_id)
            await on(tx).execute(SQL["take_over"], {**wanted, "user_id": user_id})
        row = await (await on(tx).execute(SQL["newest"], wanted)).fetchone()
        seed, session_id = os.urandom(16).hex(), uuid4()
        session = Session(session_id, conversation_id, owner_id, None if row is None else row[0], root_id(seed).hex(), 0)
        values = {
            "session_id": session_id,
            "account_id": account_id,
            "conversation_id": conversation_id,
            "user_id": owner_id,
            "previous": session.previous,
            "seed": Vault(keys, session_id).seal(Kind.SEED, seed.encode()),
            "head": session.head,
        }
        await on(tx).execute(SQL["add"], values)
        return session

    async def _go_on(self, tx: Transaction, wanted: dict[str, Any]) -> Session | None:
        """Return the newest session, noted as alive, unless it has been silent for too long."""
        row = await (await on(tx).execute(SQL["go_on"], wanted)).fetchone()
        if row is None:
            return None
        session = Session(*row)
        try:
            await self._keyring.of(tx, session.user_id)
        except Forgotten:
            return None  # nobody can read it any more, so nobody can go on with it
        return session

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        row = await (await on(tx).execute(SQL["get"], {"session_id": session_id})).fetchone()
        if row is None:
            raise NotThere(f"there is no session {session_id}")
        return Session(*row)
