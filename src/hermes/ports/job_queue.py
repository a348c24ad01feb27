"""Jobs that outlive the process that deferred them."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


class JobQueue(Protocol):
    """Durable jobs; their arguments are ids only. A job exists exactly if the transaction that deferred it committed.

    Turns of one conversation run one at a time, in the order in which they were deferred; so do its deliveries, and so do the memory jobs
    of one user."""

    async def defer_turn(self, tx: Transaction, turn_id: UUID, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Run the turn later, after all earlier turns of its conversation; later turns wait behind it."""
        ...

    async def defer_delivery(self, tx: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Send what is due in the conversation's outbox later. At most one such job waits; a second call changes nothing."""
        ...

    async def defer_proactive(self, tx: Transaction, conversation_id: UUID) -> None:
        """Write the conversation's proactive messages into its history later, between its turns: after the turns that were deferred before,
        and before those that come. At most one such job waits; a second call changes nothing."""
        ...

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        """Learn from the message of a turn later, after all earlier messages of its user. No turn ever waits for it.

        Unlike a turn or a delivery, it is given up after a few tries: it is worth some minutes, and no more."""
        ...


class JobHandlers(Protocol):
    """What a worker does with its jobs. Each method may be called again for the same id at any time; if it raises, it is called again
    later."""

    async def turn(self, turn_id: UUID) -> None:
        """Run a turn to its end."""
        ...

    async def delivery(self, conversation_id: UUID) -> None:
        """Send what is due in a conversation."""
        ...

    async def proactive(self, conversation_id: UUID) -> None:
        """Write the proactive messages of a conversation into its history. No turn of the conversation is under way meanwhile."""
        ...

    async def memory(self, turn_id: UUID) -> None:
        """Learn from the message of a turn."""
        ...
