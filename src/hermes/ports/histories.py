"""The hot copy of what was said last, so that a turn need not read the graph."""

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
    """How many messages of the list stand before these. What a model is shown of it, it is shown without them."""


class Histories(Protocol):
    """Hot history by session scope, sealed. Fails open: without Redis every read comes from the graph store, every write is left out.

    Outside of any transaction: nobody waits for Redis while holding a row."""

    async def read(self, conversation_key: str, session: Session) -> RecentHistory:
        """Return the last messages of the session, without `metadata`; from the graph store if no hot copy is at the session's head.

        How many are given only shrinks in large steps, so that one turn's prompt extends the one before.
        Raises NotThere, Forgotten and Damaged."""
        ...

    async def append(
        self, conversation_key: str, session: Session, before: RecentHistory, messages: Sequence[Mapping[str, Any]], *, head: str
    ) -> None:
        """Add what was just committed to the hot copy that stood at `before.head`. Never raises; a copy that moved on is dropped."""
        ...

    async def drop(self, session_ids: Sequence[UUID]) -> None:
        """Throw the hot copies of sessions away. Never raises: what Redis cannot be told is sealed, and gone when its time is up."""
        ...
