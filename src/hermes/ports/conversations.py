"""Conversations as operators see them: the list of sessions, and the message graph of one, closed and opened.

Closed means without a key: which messages a version has, in what order, what a model sampled, and how long each sealed message is. That is
enough to draw the graph. What a message says is read separately, and only the messages that are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction

if TYPE_CHECKING:
    from hermes.graph import MessageGraph

MAX_COUNTED = 1_000
"""No list counts further than this; it shows `1,000+`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFilter:
    """Which sessions: those that match every field that is set."""

    platform: str | None = None
    user_id: UUID | None = None
    conversation_id: UUID | None = None
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees; None: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """A session in the list of conversations."""

    session_id: UUID
    conversation_id: UUID
    number: int
    """The order of starting; the list's cursor."""
    account: str
    platform: str
    channel_id: str
    user_id: UUID
    agent: str | None
    """Of the newest turn; None if the session has none, as at the completions API."""
    messages: int
    turns: int
    """At most MAX_COUNTED + 1."""
    versions: int
    """Kept ones; at most MAX_COUNTED + 1."""
    is_erased: bool
    """The owner was deleted: no key opens it any more."""
    started_at: datetime
    last_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """One session without its messages."""

    session_id: UUID
    conversation_id: UUID
    mark: UUID
    """Another one with every change of the graph."""
    account: str
    platform: str
    channel_id: str
    user_id: UUID
    messages: int
    chats: int
    """Attached ones."""
    has_erased: bool
    """Messages were erased in it."""
    is_erased: bool
    started_at: datetime
    last_at: datetime
    ended_at: datetime | None
    previous_id: UUID | None
    """The session before it in the same conversation."""
    next_id: UUID | None
    calls: int
    tokens: int
    micro_usd: int
    """Of all its model calls, compaction included."""


class ShapeHunk(NamedTuple):
    """next version[start:stop] stands where this one has `nodes`."""

    start: int
    stop: int
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class ShapeVersion:
    """A kept version, as the difference to the one after it: that one's first `tail` messages with the hunks put back, then `end`."""

    number: int
    successor: int
    kind: str
    """Of the edge to its successor: edit, compaction, alternative, …"""
    tail: int
    end: Sequence[int]
    hunks: Sequence[ShapeHunk]


@dataclass(frozen=True, slots=True)
class ShapeSample:
    """A sampled message: where it stands, and its response's id."""

    head: int
    """The number of its version."""
    index: int
    response: str


class GraphWrite(NamedTuple):
    """A write to a graph: how many nodes it added, and whether it only appended them."""

    added: int
    is_append: bool


@dataclass(frozen=True, slots=True)
class GraphShape:
    """How the messages of a graph are joined. A node is one message in one place; nodes are numbered from 0."""

    live: int
    """The current list's number among the versions."""
    addresses: Sequence[bytes]
    """By node; equal for equal messages of this graph."""
    listed: Sequence[int]
    """The nodes of the current list."""
    versions: Sequence[ShapeVersion]
    """Kept ones, oldest first."""
    samples: Sequence[ShapeSample]
    """In the order of sampling."""
    writes: Sequence[GraphWrite] = ()
    """How the nodes came, in order."""


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """A turn that added messages to the session's graph."""

    turn_id: UUID
    added: int
    """How many messages."""
    outcome: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TurnCost:
    """What all calls of a turn cost."""

    turn_id: UUID
    model: str | None
    """That answered last."""
    tokens_in: int
    tokens_out: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class SessionReplay:
    """A replay of one of the session's answers."""

    replay_id: UUID
    turn_id: UUID | None
    call_id: UUID | None
    model: str
    state: str
    likeness: float | None
    micro_usd: int | None
    latency_ms: int | None


@dataclass(frozen=True, slots=True)
class GraphMessage:
    """A message as it was written. Content."""

    role: str
    fields: Mapping[str, Any]
    is_erased: bool = False
    chat: int | None = None
    """The number of the chat that made it."""


@dataclass(frozen=True, slots=True)
class SampleCall:
    """The call behind a sample."""

    sample_id: str
    model: str | None
    finish_reason: str | None
    usage: Mapping[str, Any]
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallCost:
    """What a call cost, and the turn that it belongs to."""

    call_id: UUID
    turn_id: UUID | None
    model: str
    tokens_in: int
    tokens_out: int
    micro_usd: int
    latency_ms: int
    at: datetime


@dataclass(frozen=True, slots=True)
class AttachedGraph:
    """A chat that made a message. Content."""

    graph: MessageGraph
    chats: Mapping[int, int]
    """The numbers of the chats attached inside it, by the object id of their history."""


class ConversationReader(Protocol):
    """Reads conversations for operators. The first group needs no key; the second opens what users and models wrote, so that its callers
    demand the right to it. Fails closed."""

    async def list(
        self, tx: Transaction, wanted: ConversationFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[ConversationRow]:
        """Return sessions, the newest first; `before` is the number of the last one of the page before."""
        ...

    async def find(self, tx: Transaction, name: str, *, accounts: frozenset[str] | None = None) -> UUID | None:
        """Return the session that a name stands for: its own id, the id of one of its turns, or the newest one of a conversation (by id, or
        by the sender on the platform). None if there is none in these accounts."""
        ...

    async def facts(self, tx: Transaction, session_id: UUID, *, accounts: frozenset[str] | None = None) -> SessionFacts | None:
        """Return what is known of a session without a key; None if there is none in these accounts."""
        ...

    async def shape(self, tx: Transaction, session_id: UUID) -> GraphShape:
        """Return how the session's messages are joined."""
        ...

    async def sizes(self, tx: Transaction, session_id: UUID, addresses: Sequence[bytes]) -> Mapping[bytes, int]:
        """Return how many bytes each of these messages has."""
        ...

    async def turns(self, tx: Transaction, session_id: UUID) -> Sequence[SessionTurn]:
        """Return the turns that added messages, oldest first."""
        ...

    async def turn_costs(self, tx: Transaction, turn_ids: Sequence[UUID]) -> Mapping[UUID, TurnCost]:
        """Return what these turns cost; a turn without a call is missing."""
        ...

    async def replays(self, tx: Transaction, session_id: UUID) -> Sequence[SessionReplay]:
        """Return the replays of the session's answers, oldest first."""
        ...

    async def messages(self, tx: Transaction, session_id: UUID, addresses: Sequence[bytes]) -> Mapping[bytes, GraphMessage]:
        """Return what these messages say. Raises UserErased if the session's key is gone, and DataDamaged."""
        ...

    async def calls(self, tx: Transaction, session_id: UUID, responses: Sequence[str]) -> Mapping[str, SampleCall]:
        """Return the calls of these responses, by the response's id. Raises as `messages` does."""
        ...

    async def costs(self, tx: Transaction, session_id: UUID, calls: Sequence[UUID]) -> Mapping[UUID, CallCost]:
        """Return what these calls of the session cost; a call without a row is missing."""
        ...

    async def notes(self, tx: Transaction, session_id: UUID) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what was learned later about responses (rewards, reactions), by the response's id. Raises as `messages` does."""
        ...

    async def chat(self, tx: Transaction, session_id: UUID, number: int) -> AttachedGraph:
        """Return an attached chat. Raises NotFound, and as `messages` does."""
        ...
