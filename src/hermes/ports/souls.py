"""The soul: the agent's personality, and what it knows about the user.

It has two parts, because they change at different speeds. `system` is the same from turn to turn, so that prompts extend each other and
the vendor's prompt cache holds. `note` changes with every message; it goes into that turn's user message and stays there."""

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
    """What Hermes adds to a turn's prompt."""

    system: str
    """Personality, user facts, fitness context, cross-session context, deep-dream synthesis. User-editable text stands in a data block."""
    note: str | None
    """Time of day in the user's zone, relative times, RELEVANT CONTEXT: for this turn's user message."""
    is_recall_used: bool
    """Whether facts were searched for, found or not."""
    load_ms: int
    timezone: str | None = None
    """The user's own, if they told it: an IANA name."""


class Souls(Protocol):
    """Loads souls. Fails open: parts that cannot be loaded are left out, down to the personality alone."""

    async def load(self, user: User, agent: Agent, text: str, *, now: datetime, conversation_id: UUID) -> Soul:
        """Return the soul for one message. Never raises, whatever store is down."""
        ...

    def for_room(self, agent: Agent, *, now: datetime) -> Soul:
        """Return the soul for a message in a room that several people share: the agent's personality, and the time.

        Takes no user, so that it can know nothing about one: no facts, no recall, no earlier sessions, no dreams, no time zone."""
        ...

    async def invalidate(self, user_id: UUID) -> None:
        """Make the next load read what was just written; call it after the commit. Three tries, then an alert. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class CachedSoul:
    """What the soul cache returned: the value, and a mark to pass to `put`."""

    value: bytes | None
    mark: bytes | None
    """None if the cache cannot be reached; then nothing is put."""


class SoulCache(Protocol):
    """The cached part of souls by user, sealed, for an hour."""

    async def get(self, user_id: UUID) -> CachedSoul:
        """Return the cached value. Never raises: a value that cannot be read counts as missing."""
        ...

    async def put(self, user_id: UUID, value: bytes, mark: bytes | None) -> None:
        """Store a value, unless `drop` was called since `mark` was given: the value may be outdated. Never raises."""
        ...

    async def drop(self, user_id: UUID) -> None:
        """Delete the value, and refuse values made before. Raises StoreUnavailable."""
        ...

    @property
    def ttl_s(self) -> int:
        """How long a value is used: so long an outdated value may be shown if `drop` failed."""
        ...


@dataclass(frozen=True, slots=True)
class PastMessage:
    """A message that the user wrote earlier."""

    text: str
    at: datetime


class PastMessages(Protocol):
    """Earlier messages of users. Fails closed."""

    async def last(self, tx: Transaction, user_id: UUID, *, limit: int = 5) -> Sequence[PastMessage]:
        """Return the user's last messages of sessions that are over, oldest first. Raises UserErased."""
        ...

    async def recent(self, tx: Transaction, user_id: UUID, *, besides: UUID | None, limit: int = 100) -> Sequence[PastMessage]:
        """Return the user's last messages of any session that a model may still be shown, except that of one turn; newest first."""
        ...
