"""A session is one message graph: a conversation's stretch of talk between two long silences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which sessions somebody asks for: those for which all of it holds."""

    names: tuple[str, ...] = ()
    """Ids of sessions or conversations, ids of channels, or what OpenAI clients call their chats; () for all sessions."""
    since: datetime | None = None
    """The last sign of life was then or later."""
    account: str | None = None


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

    async def find(self, tx: Transaction, wanted: Wanted) -> Sequence[UUID]:
        """Return the ids of the sessions that are wanted, in the order of their beginning, each once.

        A name that several people use for chats of their own stands for all of them. Raises NotThere for a name or an account that is
        not known at all; known ones of which nothing else holds give no session."""
        ...

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        """Whether everybody who spoke in a session allows training, as of now. Somebody who was deleted does not.

        Raises NotThere, and Forgotten when the one was deleted for whom it is sealed."""
        ...
