"""Carry answers out of the outbox, in the conversation's order, one parcel at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.inbox import Claim
from hermes.ports.outbox import Outbox, Parcel, ParcelState
from hermes.ports.replies import Replies
from hermes.ports.transactions import Transaction, Transactions
from hermes.turn import Platform


class Sender(Protocol):
    """Brings one parcel to its platform."""

    async def send(self, parcel: Parcel) -> ParcelState:
        """Send it, and say how that went: SENT, AMBIGUOUS, DEAD, or PENDING to try again later. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Courier:
    """Empties the outbox of a conversation. On a platform without a sender people fetch their answers from us, and are only told."""

    transactions: Transactions
    outbox: Outbox
    replies: Replies
    senders: Mapping[Platform, Sender]
    retry_in_s: float = 60.0

    async def promise(self, tx: Transaction, claim: Claim, parts: Sequence[str]) -> Parcel | None:
        """Put an answer into the outbox, as part of the turn's last transaction; return what is to be sent once that is committed."""
        if claim.envelope.event.platform not in self.senders:
            await self.outbox.put(tx, claim, parts, ParcelState.SENT)
            return None
        await self.outbox.put(tx, claim, parts)
        return await self.outbox.take(tx, claim.conversation_id)

    async def hand_over(self, claim: Claim, parcel: Parcel | None) -> None:
        """Bring out what was promised: tell whoever waits for the turn, or send what is due."""
        if claim.envelope.event.platform not in self.senders:
            await self.replies.announce(claim.turn_id)
        else:
            await self.deliver(claim.conversation_id, parcel)

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
