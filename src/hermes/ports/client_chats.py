"""Chats of clients that name none: each is found again by the responses that were sampled in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.graphs import GraphEntry
from hermes.ports.model_calls import ModelCall
from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class ChatFingerprint:
    """What a chat is recognised by just behind a response: digests, which the store keys with the user's own key."""

    length: int
    """How many messages the list has up to there, the response included."""
    shown: bytes
    """The list without its reasoning."""
    whole: bytes
    """The list with all of it."""
    echo: bytes
    """The response alone."""


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """A chat that a request belongs to. Its row is locked until the transaction ends, so nobody else writes in it meanwhile."""

    session_id: UUID
    head: str
    """The context id of its current list."""
    known: ChatFingerprint | None = None
    """The place in the request up to which the current list is what the client shows; None where the list must be looked at."""
    is_new: bool = False
    has_reasoning: bool = False
    """Whether the client showed the reasoning of that list too. Says nothing where the list has none."""
    hides_reasoning: bool = False
    """Whether the list has reasoning, and the client showed none of it."""


class ClientChats(Protocol):
    """The chats of the OpenAI door. Fails closed."""

    async def find(self, tx: Transaction, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """Return the chat of this user's that a request with these marks belongs to; None for a new one. Locks it.

        A list that is known up to a response, word for word, is that chat; of several the longest, then the newest. Otherwise the newest
        response that the request holds decides, of those that were given in one chat only; an "ok" that many chats hold tells nothing as
        long as there is another. Raises Forgotten."""
        ...

    async def look(self, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """As `find`, at once and without a lock: what it says may be over when it is used."""
        ...

    async def add(
        self, user_id: UUID, chat: ChatMatch | None, entries: Sequence[GraphEntry], fingerprint: ChatFingerprint | None, call: ModelCall
    ) -> UUID | None:
        """Append to a chat that was looked up, or begin one, and remember the response and its call: all of it at once, or nothing.

        Return the chat; None where it is no more as it was found. The call may be recorded then all the same."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, session_id: UUID, fingerprints: Sequence[ChatFingerprint] = ()) -> ChatMatch | None:
        """Return one of the user's chats by its id; None if there is none. Locks it."""
        ...

    async def find_or_begin(
        self, tx: Transaction, account: str, user_id: UUID, name: str, fingerprints: Sequence[ChatFingerprint]
    ) -> ChatMatch:
        """Return the chat that the client itself calls so, and begin it if there is none; whatever the request holds. Locks it.

        `name` may be the id of one of the user's chats."""
        ...

    async def begin(self, tx: Transaction, account: str, user_id: UUID) -> ChatMatch:
        """Begin a chat with an empty list. Raises Forgotten."""
        ...

    async def drop_empty(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Take a chat away in which nothing was ever said; no change for any other."""
        ...

    async def note(self, tx: Transaction, user_id: UUID, session_id: UUID, head: str | None, fingerprint: ChatFingerprint) -> None:
        """Remember a response by its mark. `head` is that of the list that ends with it; None where the list does not."""
        ...
