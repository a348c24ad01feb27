"""What was seen in a storm: what people sent and received, and what the books say of it. Times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message, as the person who sent it knows it."""

    mark: str
    chat: str
    at: float
    tried_at: float | None = None
    """When its platform began to hand it to us for the first time."""
    taken_at: float | None = None
    """When we said that we have it. None: nobody ever did, so nobody owes an answer."""
    pieces: int = 0
    """How many numbered words its answer has; 0: it is one message."""
    has_tool: bool = False
    """Its answer may be a tool's result as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A message on somebody's phone, or an answer that somebody fetched."""

    chat: str
    text: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What Hermes reports of one part of an answer."""

    state: str
    """`sent`, `dead` (listed among the dead letters), or not settled yet."""
    doubts: int = 0
    """Tries that may have arrived, beside the one that ended it."""
    reason: str = ""
    """Of a dead one: what the list of dead letters says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message, as the books have it."""

    id: str
    chat: str
    marks: tuple[str, ...]
    """The messages that it answers; several where they were joined."""
    seq: int
    """Its place in its conversation."""
    entries: tuple[str, ...] = ()
    """The money ledger's: reserve, post, void, refund, in order."""
    parcels: tuple[Parcel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Purse:
    """The credits of one person."""

    granted: int
    available: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything that the checker knows."""

    sent: Sequence[Sent]
    received: Sequence[Received]
    turns: Sequence[Turn]
    purses: Mapping[str, Purse] = field(default_factory=dict)
    """By chat."""
    left: Mapping[str, int] = field(default_factory=dict)
    """What still waits after the storm, by queue."""
    own_words: Sequence[str] = ()
    """How everything begins that Hermes says for itself."""
    raw_words: Sequence[str] = ()
    """How a tool's result begins that is given as it came."""
    poor_words: Sequence[str] = ()
    """How somebody is told that their credits are used up; they are among `own_words` too."""
    fetched: frozenset[str] = frozenset()
    """Chats whose people fetch their answers by the message, and so see each once and in no order."""
