"""Carry answers out of the outbox, in the conversation's order, one parcel at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.answer_signals import AnswerSignals
from hermes.ports.inbox import Claim
from hermes.ports.outbox import DeliveryResult, MessageBody, Outbox, OutboxMessage, OutboxState
from hermes.ports.transactions import Transaction, Transactions
from hermes.turn import Envelope, Platform


class OutboxSender(Protocol):
    """Brings parcels to a platform."""

    def render(self, platform: Platform, account: str, text: str) -> Sequence[MessageBody]:
        """An answer as the parts that will be sent, in order. They are stored, so that every try sends the same. Never raises."""
        ...

    async def send(self, parcel: OutboxMessage) -> DeliveryResult:
        """Send it, and say how that went. Never raises for what a platform or a network does; takes less than two minutes."""
        ...

    async def note(self, tx: Transaction, parcel: OutboxMessage, sending: DeliveryResult, became: OutboxState) -> None:
        """Write down what follows from it, in the transaction that settles it."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxDelivery:
    """Empties the outbox of a conversation. On a platform without a sender people fetch their answers from us, and are only told."""

    transactions: Transactions
    outbox: Outbox
    replies: AnswerSignals
    senders: Mapping[Platform, OutboxSender]

    def render(self, envelope: Envelope, text: str) -> Sequence[MessageBody]:
        """What is promised to whoever sent this: the text as it is, or as the messages of their platform."""
        sender = self.senders.get(envelope.event.platform)
        return [text] if sender is None else sender.render(envelope.event.platform, envelope.account, text)

    async def put_answer(self, tx: Transaction, claim: Claim, texts: Sequence[str]) -> OutboxMessage | None:
        """Put an answer into the outbox, as part of the turn's last transaction; return what is to be sent once that is committed."""
        parts = [part for text in texts for part in self.render(claim.envelope, text)]
        if claim.envelope.event.platform not in self.senders:
            await self.outbox.put(tx, claim, parts, OutboxState.SENT)
            return None
        await self.outbox.put(tx, claim, parts)
        return await self.outbox.take(tx, claim.conversation_id)

    async def hand_over(self, claim: Claim, parcel: OutboxMessage | None) -> None:
        """Bring out what was promised: tell whoever waits for the turn, or send what is due."""
        if claim.envelope.event.platform not in self.senders:
            await self.replies.announce(claim.turn_id)
        else:
            await self.deliver(claim.conversation_id, parcel)

    async def deliver(self, conversation_id: UUID, parcel: OutboxMessage | None = None) -> None:
        """Send what is due, oldest first; `parcel` is one that was taken already. Stops at the first that must wait."""
        if parcel is None:
            async with self.transactions.begin() as tx:
                parcel = await self.outbox.take(tx, conversation_id)
        while parcel is not None:
            sender = self.senders[parcel.platform]
            sending = await sender.send(parcel)
            async with self.transactions.begin() as tx:
                if sending.moved_to is not None:
                    where = (parcel.account, parcel.platform, parcel.channel_id, sending.moved_to)
                    await self.outbox.tracking.move(tx, *where)
                became = await self.outbox.settle(tx, parcel, sending)
                if became is not None:
                    await sender.note(tx, parcel, sending, became)
                parcel = await self.outbox.take(tx, conversation_id)
