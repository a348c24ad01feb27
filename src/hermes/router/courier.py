"""Carry answers out of the outbox, in the conversation's order, one parcel at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.outbox import Outbox, Parcel, ParcelState
from hermes.ports.replies import Replies
from hermes.ports.transactions import Transactions
from hermes.turn import Platform


class Sender(Protocol):
    """Brings one parcel to its platform."""

    async def send(self, parcel: Parcel) -> ParcelState:
        """Send it, and say how that went: SENT, AMBIGUOUS, DEAD, or PENDING to try again later. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class PickUp:
    """For platforms that fetch their answers from us: sending is telling whoever waits that the answer is there."""

    replies: Replies

    async def send(self, parcel: Parcel) -> ParcelState:
        await self.replies.announce(parcel.turn_id)
        return ParcelState.SENT


@dataclass(frozen=True, slots=True)
class Courier:
    """Empties the outbox of a conversation."""

    transactions: Transactions
    outbox: Outbox
    senders: Mapping[Platform, Sender]
    retry_in_s: float = 60.0

    async def deliver(self, conversation_id: UUID, parcel: Parcel | None = None) -> None:
        """Send what is due, oldest first; `parcel` is one that was taken already. Stops at the first that must wait."""
        if parcel is None:
            async with self.transactions.begin() as tx:
                parcel = await self.outbox.take(tx, conversation_id)
        while parcel is not None:
            state = await self.senders[parcel.platform].send(parcel)
            async with self.transactions.begin() as tx:
                await self.outbox.settle(tx, parcel, state, retry_in_s=self.retry_in_s if state is ParcelState.PENDING else None)
                parcel = await self.outbox.take(tx, conversation_id)
