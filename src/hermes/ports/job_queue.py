"""Work that outlives the process that asked for it."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


class JobQueue(Protocol):
    """Durable jobs; their arguments are ids only. A job is there exactly when the transaction that deferred it committed.

    Turns of one conversation run one at a time, in the order in which they were deferred; so do its deliveries, and so does what is
    learnt from one user."""

    async def defer_turn(self, tx: Transaction, turn_id: UUID, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Have the turn worked on, after all earlier ones of its conversation; those that come later wait behind it."""
        ...

    async def defer_delivery(self, tx: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Have the conversation's outbox looked at. One such job waits at most; a second call changes nothing."""
        ...

    async def defer_proactive(self, tx: Transaction, conversation_id: UUID) -> None:
        """Have what Hermes said by itself written into the conversation's history, between its turns: after those that were deferred
        before, and before those that come. One such job waits at most; a second call changes nothing."""
        ...

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        """Have the message of a turn learnt from, after all earlier ones of its user. No turn ever waits for it.

        Unlike the others it is given up after a few tries: it is worth some minutes, and no more."""
        ...


class JobHandlers(Protocol):
    """What a worker does with its jobs. Each may be called again for the same id at any time; they raise to be called again later."""

    async def turn(self, turn_id: UUID) -> None:
        """Drive a turn to its end."""
        ...

    async def delivery(self, conversation_id: UUID) -> None:
        """Send what is due in a conversation."""
        ...

    async def proactive(self, conversation_id: UUID) -> None:
        """Write what Hermes said by itself into a conversation's history. No turn of it is under way meanwhile."""
        ...

    async def memory(self, turn_id: UUID) -> None:
        """Learn from the message of a turn."""
        ...
