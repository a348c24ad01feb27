"""Dead letters: outbox messages that could not be delivered. They are kept for a while, for the operator to requeue or to drop."""

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
    """An outbox message that was given up, and why."""

    id: int
    turn_id: UUID
    conversation_id: UUID
    account: str
    platform: Platform
    channel_id: str
    part: int
    news: str
    """The name of its proactive message: `reminder/7KQ2`. Empty for a part of the turn's answer."""
    outcome: SendOutcome | None
    reason: str
    """For the operator, without a word of the message."""
    tries: int
    doubts: int
    """Tries that may have arrived."""
    is_late: bool
    """It was requeued before."""
    promised_at: datetime
    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Which dead letters: those that match every field that is set."""

    ids: Sequence[int] | None = None
    platform: Platform | None = None
    account: str | None = None
    outcome: SendOutcome | None = None


ALL_DEAD_LETTERS = DeadLetterQuery()


class DeadLetters(Protocol):
    """Outbox messages that were given up. Fails closed."""

    async def list(self, tx: Transaction, query: DeadLetterQuery = ALL_DEAD_LETTERS, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return dead letters, the newest first."""
        ...

    async def text(self, tx: Transaction, letter_id: int) -> str:
        """Return the text of a dead letter. Raises NotFound, and UserErased if its user was deleted."""
        ...

    async def requeue(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Put dead letters back into the outbox, in the order in which they were first put there, each with a full set of tries: behind all
        messages of their conversations, and marked as late. Return them as they were; the caller defers the deliveries of their
        conversations. A refund stays. Locks the conversations until the transaction ends."""
        ...

    async def drop(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Delete dead letters, and return them."""
        ...

    async def purge(self, tx: Transaction) -> int:
        """Delete the dead letters that were kept long enough; return how many."""
        ...
