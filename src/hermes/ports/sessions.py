"""A session is one message graph: a conversation's stretch of talk between two long silences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Session:
    """One stretch of a conversation, recorded in one message graph."""

    id: UUID
    conversation_id: UUID
    user_id: UUID
    """Whose key seals it."""
    previous: UUID | None
    """The session before it, joined by `continuation`."""
    head: str
    """The context id of its current list."""
    length: int
    """How many messages the current list has."""


class Sessions(Protocol):
    """Sessions of conversations. Fails closed."""

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID) -> Session:
        """Return the session that a message belongs to now, and note that it is alive; after 12 h (a setting) of silence it is a new one.

        A new session starts with an empty list and knows its predecessor. Called twice at once, it makes one session. It is sealed for
        whoever opened the conversation; where they were deleted, a new one begins, sealed for `user_id`, who speaks now. Raises NotThere,
        and Forgotten when that one was deleted too."""
        ...

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        """Return a session; raise NotThere."""
        ...
