"""What could not be delivered: kept for a while, for a person to send it again or to drop it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.channels import SendOutcome
from hermes.ports.transactions import Transaction
from hermes.turn import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A part of an answer that was given up, and why."""

    id: int
    turn_id: UUID
    conversation_id: UUID
    account: str
    platform: Platform
    channel_id: str
    part: int
    news: str
    """What it is of, where it is no part of the turn's answer: `reminder/7KQ2`."""
    outcome: SendOutcome | None
    reason: str
    """For people, without a word of what was to be said."""
    tries: int
    doubts: int
    """Tries that may have arrived."""
    is_late: bool
    """It was sent again once before."""
    promised_at: datetime
    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Which dead letters: those that fit everything that is given."""

    ids: Sequence[int] | None = None
    platform: Platform | None = None
    account: str | None = None
    outcome: SendOutcome | None = None


ALL_DEAD_LETTERS = DeadLetterQuery()


class DeadLetters(Protocol):
    """What was given up. Fails closed."""

    async def list(self, tx: Transaction, query: DeadLetterQuery = ALL_DEAD_LETTERS, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return dead letters, the newest first."""
        ...

    async def text(self, tx: Transaction, letter_id: int) -> str:
        """Return what was to be said. Raises NotThere, and Forgotten for a user who was deleted."""
        ...

    async def requeue(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Send dead letters on their way again, in the order in which they were promised, with all their tries: behind all that is promised
        in their conversations, and marked as late. Return them as they were; their conversations' deliveries are for the caller to
        defer. What was refunded stays refunded. Holds the conversations until the transaction ends."""
        ...

    async def drop(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Throw dead letters away, and return them."""
        ...

    async def purge(self, tx: Transaction) -> int:
        """Throw away those that were kept long enough; return how many."""
        ...
