"""The soul: who the agent is, and what it knows about whom it talks to.

In two parts, because they change at different speeds. `system` is the same from turn to turn, so that prompts extend each other and a
provider's cache stays warm; what changes with every message is the `note`, which goes into that turn's user message and stays there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.agents import Agent
from hermes.ports.transactions import Transaction
from hermes.ports.users import User


@dataclass(frozen=True, slots=True)
class Soul:
    """What a turn's prompt is made with."""

    system: str
    """Personality, user facts, fitness context, cross-session context, deep-dream synthesis. User-editable text stands in a data block."""
    note: str | None
    """Time of day in the user's zone, relative times, RELEVANT CONTEXT: for this turn's user message."""
    is_recall_used: bool
    """Whether facts were searched for, found or not."""
    load_ms: int
    timezone: str | None = None
    """The user's own, where they told it: an IANA name."""


class Souls(Protocol):
    """Where souls come from. Fails open: what cannot be had is left out, down to the personality alone."""

    async def load(self, user: User, agent: Agent, text: str, *, now: datetime, conversation_id: UUID) -> Soul:
        """Return the soul for one message. Never raises, whatever store is down."""
        ...

    def for_room(self, agent: Agent, *, now: datetime) -> Soul:
        """Return the soul for a message in a room that several people share: who answers, and what time it is.

        Takes no user, so that it can know nothing of one: no facts, no recall, no earlier sessions, no dreams, no time zone."""
        ...

    async def invalidate(self, user_id: UUID) -> None:
        """Let the next load see what was just written; call it after the commit. Three tries, then an alert. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class CachedSoul:
    """What a cache of bases said: the value, and a mark to put a newer one with."""

    value: bytes | None
    mark: bytes | None
    """None where the cache cannot be reached; nothing is put then."""


class SoulCache(Protocol):
    """The cached part of souls by user, sealed, for an hour."""

    async def get(self, user_id: UUID) -> CachedSoul:
        """Return what is there. Never raises: what cannot be read is not there."""
        ...

    async def put(self, user_id: UUID, value: bytes, mark: bytes | None) -> None:
        """Keep a value, unless something was dropped since `mark` was given: it may be older than that. Never raises."""
        ...

    async def drop(self, user_id: UUID) -> None:
        """Forget the value, and refuse those that were made before. Raises StoreUnavailable."""
        ...

    @property
    def ttl_s(self) -> int:
        """How long a value is believed: the exposure when it could not be dropped."""
        ...


@dataclass(frozen=True, slots=True)
class PastMessage:
    """Something the user wrote in a session that is over."""

    text: str
    at: datetime


class PastMessages(Protocol):
    """What users wrote before. Fails closed."""

    async def last(self, tx: Transaction, user_id: UUID, *, limit: int = 5) -> Sequence[PastMessage]:
        """Return the user's last messages of sessions that are over, oldest first. Raises Forgotten."""
        ...

    async def recent(self, tx: Transaction, user_id: UUID, *, besides: UUID | None, limit: int = 100) -> Sequence[PastMessage]:
        """Return the user's last messages that a model may still be shown, of whatever session, without that of one turn; newest first."""
        ...
