"""A session is the part of a conversation between two long silences, recorded in one message graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Session:
    """One part of a conversation, recorded in one message graph."""

    id: UUID
    conversation_id: UUID
    user_id: UUID
    """The user whose key seals it."""
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
    """Which sessions: those that match every field that is set."""

    names: tuple[str, ...] = ()
    """Ids of sessions, conversations or channels, or the chat names of completions clients; () for all sessions."""
    since: datetime | None = None
    """The last message was then or later."""
    account: str | None = None


@dataclass(frozen=True, slots=True)
class UserNodes:
    """What one user's turns added to the graph of a session: the ids, without the text."""

    session_id: UUID
    nodes: frozenset[str]
    """The messages of their turns, answers and tool results included, by the ids of `AppendResult.nodes`."""
    others: frozenset[str]
    """The messages of all other users' turns."""
    news: frozenset[str] = frozenset()
    """The names of the proactive messages in it that the user had asked for."""


class Sessions(Protocol):
    """Sessions of conversations. Fails closed."""

    async def current(self, tx: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        """Return the session that a message belongs to now, and note the time. A new session begins after 12 h (a setting) of silence,
        after the session was ended, and if `is_shared` differs from the session's: a private list is never shown to a room.

        A new session starts with an empty list and knows its predecessor. Two calls at once make one session. It is sealed for the user
        who opened the conversation; if that user was deleted, a new session begins, sealed for `user_id`, who writes now. Raises NotFound,
        and UserErased if `user_id` was deleted too."""
        ...

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        """Return the session that a message belongs to now, and note the time; None if a new session must begin. One write."""
        ...

    async def get(self, tx: Transaction, session_id: UUID) -> Session:
        """Return a session; raise NotFound."""
        ...

    async def find(self, tx: Transaction, query: SessionQuery) -> Sequence[UUID]:
        """Return the ids of the sessions that match the query, in the order of their beginning, each once.

        A chat name that several clients use stands for all of those chats. Raises NotFound for an unknown name or account; a known one
        without a matching session gives none."""
        ...

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        """End a session that cannot be continued, and return the one that replaces it, with an empty list."""
        ...

    async def end(self, tx: Transaction, user_id: UUID) -> Sequence[UUID]:
        """End every session of the conversations that a user opened or wrote in; return those that were not ended before.

        The next message of any user begins a new session with an empty list, and the messages of this user until now are not carried over
        into later sessions either. A turn that is under way still ends in the list in which it began."""
        ...

    async def user_nodes(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> Sequence[UserNodes]:
        """Return which messages of a user are in graphs that outlive the user's key, because they are sealed for another user.

        With an account: in the graphs of that account, also in those sealed for the user in which other users wrote too. Sessions noted
        as erased are left out, and so are those that cannot be read any more."""
        ...

    async def note_erased(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Note that a user's words were erased from a session's graph."""
        ...

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        """Whether all users who wrote in a session allow training now. A deleted user does not.

        Raises NotFound, and UserErased if the session's owner was deleted."""
        ...
