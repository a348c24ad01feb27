"""Chats of completions clients. If a client names no chat, its chat is found again by the responses that were sampled in it."""

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
    """Digests by which a chat is recognised after one of its responses. The store keys them with the user's own key."""

    length: int
    """How many messages the list has up to there, the response included."""
    shown: bytes
    """Digest of the list without its reasoning."""
    whole: bytes
    """Digest of the list with its reasoning."""
    echo: bytes
    """Digest of the response alone."""


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """A chat that a request belongs to. Its row is locked until the transaction ends, so no other request writes in it meanwhile."""

    session_id: UUID
    head: str
    """The context id of its current list."""
    known: ChatFingerprint | None = None
    """The place in the request up to which the client sent exactly the current list; None if the list must be compared."""
    is_new: bool = False
    has_reasoning: bool = False
    """Whether the client also sent the reasoning of that list. Means nothing if the list has none."""
    hides_reasoning: bool = False
    """Whether the list has reasoning, and the client sent none of it."""


class ClientChats(Protocol):
    """The chats of the completions endpoint. Fails closed."""

    async def find(self, tx: Transaction, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """Return the user's chat that a request with these fingerprints belongs to; None for a new one. Locks it.

        A chat matches if its list is in the request up to a response, word for word; of several, the longest wins, then the newest. If none
        matches, the newest response in the request that was given in one chat only decides: an "ok" that many chats have counts only if
        there is no other response. Raises UserErased."""
        ...

    async def look(self, user_id: UUID, fingerprints: Sequence[ChatFingerprint]) -> ChatMatch | None:
        """As `find`, in a transaction of its own and without a lock: the result may be outdated when it is used."""
        ...

    async def add(
        self, user_id: UUID, chat: ChatMatch | None, entries: Sequence[GraphEntry], fingerprint: ChatFingerprint | None, call: ModelCall
    ) -> UUID | None:
        """Append to a chat that `look` found, or begin one, and record the response and its call: all of it, or nothing.

        Return the chat; None if it has changed since `look`. Even then the call may be recorded."""
        ...

    async def get(self, tx: Transaction, user_id: UUID, session_id: UUID, fingerprints: Sequence[ChatFingerprint] = ()) -> ChatMatch | None:
        """Return one of the user's chats by its id; None if there is none. Locks it."""
        ...

    async def find_or_begin(
        self, tx: Transaction, account: str, user_id: UUID, name: str, fingerprints: Sequence[ChatFingerprint]
    ) -> ChatMatch:
        """Return the chat that the client names, and begin it if there is none; the messages of the request do not matter. Locks it.

        `name` may be the id of one of the user's chats."""
        ...

    async def begin(self, tx: Transaction, account: str, user_id: UUID) -> ChatMatch:
        """Begin a chat with an empty list. Raises UserErased."""
        ...

    async def drop_empty(self, tx: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Delete a chat that never had a message; no change for any other chat."""
        ...

    async def note(self, tx: Transaction, user_id: UUID, session_id: UUID, head: str | None, fingerprint: ChatFingerprint) -> None:
        """Store the fingerprint of a response. `head` is the head of the list that ends with the response; None if the list does not."""
        ...
