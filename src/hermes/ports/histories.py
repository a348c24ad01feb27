"""The hot copy of a session's last messages, so that a turn need not read the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.sessions import Session


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The last messages of a session's current list, oldest first, and the head they lead to."""

    messages: tuple[Mapping[str, Any], ...]
    head: str
    offset: int = 0
    """How many messages of the list stand before these. A model is not shown those."""


class Histories(Protocol):
    """Hot histories by conversation key, sealed. Fails open: without Redis every read comes from the graph store, every write is left out.

    Call it outside of any transaction, so that no caller waits for Redis while it locks a row."""

    async def read(self, conversation_key: str, session: Session) -> RecentHistory:
        """Return the last messages of the session, without `metadata`; from the graph store if no hot copy is at the session's head.

        The oldest messages are dropped only in large steps, so that one turn's prompt extends the one before.
        Raises NotFound, UserErased and DataDamaged."""
        ...

    async def append(
        self, conversation_key: str, session: Session, before: RecentHistory, messages: Sequence[Mapping[str, Any]], *, head: str
    ) -> None:
        """Add the messages that were just committed to the hot copy whose head was `before.head`. Never raises; a copy with another head
        is dropped."""
        ...

    async def drop(self, session_ids: Sequence[UUID]) -> None:
        """Delete the hot copies of sessions. Never raises: a copy that cannot be deleted now stays sealed, and expires."""
        ...
