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
    is_shared: bool = False
    """Whether several people read it: then it holds nothing private, and each message in it names its speaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuery:
    """Which sessions somebody asks for: those for which all of it holds."""

    names: tuple[str, ...] = ()
    """Ids of sessions or conversations, ids of channels, or what OpenAI clients call their chats; () for all sessions."""
    since: datetime | None = None
    """The last sign of life was then or later."""
    account: str | None = None


@dataclass(frozen=True, slots=True)
class UserNodes:
    """What one user's turns added to the graph of a session: by ids, without a word of it."""

    session_id: UUID
    nodes: frozenset[str]
    """The messages of their turns, answers and tool results among them, as `Appended.nodes` named them."""
    others: frozenset[str]
    """Those of everybody else's turns."""
    news: frozenset[str] = frozenset()
    """What Hermes said there by itself because they had asked for it, by name."""


class Sessions(Protocol):
    """Sessions of conversations. Fails closed."""

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        """Return the session that a message belongs to now, and note that it is alive; after 12 h (a setting) of silence, or where it was
        ended, it is a new one. So it is where `is_shared` is not what the session is: a private list is never shown to a room.

        A new session starts with an empty list and knows its predecessor. Called twice at once, it makes one session. It is sealed for
        whoever opened the conversation; where they were deleted, a new one begins, sealed for `user_id`, who speaks now. Raises NotThere,
        and Forgotten when that one was deleted too."""
        ...

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        """Return the session that a message belongs to now, and note that it is alive; None where a new one must begin. One write."""
        ...

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        """Return a session; raise NotThere."""
        ...

    async def find(self, tx: Transaction, query: SessionQuery) -> Sequence[UUID]:
        """Return the ids of the sessions that are wanted, in the order of their beginning, each once.

        A name that several people use for chats of their own stands for all of them. Raises NotThere for a name or an account that is
        not known at all; known ones of which nothing else holds give no session."""
        ...

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        """End a session that cannot be gone on with, and return the one that takes its place, with an empty list."""
        ...

    async def end(self, tx: Transaction, user_id: UUID) -> Sequence[UUID]:
        """End every session of the conversations that a user opened or wrote in; return those that were not ended before.

        The next message, whoever's it is, begins a new one with an empty list, and what this user said until now is not told across
        sessions either. A turn that is under way still ends in the list it was asked under."""
        ...

    async def user_nodes(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> Sequence[UserNodes]:
        """Return where a user's words stand in graphs that outlive their key, because those are sealed for somebody else.

        With an account: in the graphs of that account, also those that are sealed for the user, where others spoke too. What was noted as
        erased is left out, and so is what nobody can read any more."""
        ...

    async def note_erased(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Note that a user's words are gone from a session's graph."""
        ...

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        """Whether everybody who spoke in a session allows training, as of now. Somebody who was deleted does not.

        Raises NotThere, and Forgotten when the one was deleted for whom it is sealed."""
        ...
