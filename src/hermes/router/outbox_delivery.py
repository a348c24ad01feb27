"""Send the messages of the outbox, in the order of their conversation, one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.inbox import AnswerSignals, Claim
from hermes.ports.outbox import DeliveryResult, MessageBody, Outbox, OutboxMessage, OutboxState
from hermes.ports.runtime import Transaction, Transactions
from hermes.turn import Envelope, Platform


class OutboxSender(Protocol):
    """Sends outbox messages to a platform."""

    def render(self, platform: Platform, account: str, text: str) -> Sequence[MessageBody]:
        """Render an answer as the parts to send, in order. The outbox stores them, so that every try sends the same. Never raises."""
        ...

    async def send(self, message: OutboxMessage) -> DeliveryResult:
        """Send a message and return how that went. Never raises for what a platform or a network does; takes less than two minutes."""
        ...

    async def note(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult, state: OutboxState) -> None:
        """Store what follows from the result, in the transaction that settles the message. `state` is its new state."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxDelivery:
    """Empties the outbox of a conversation. On a platform without a sender clients fetch their answers, and we only announce them."""

    transactions: Transactions
    outbox: Outbox
    answer_signals: AnswerSignals
    senders: Mapping[Platform, OutboxSender]

    def render(self, envelope: Envelope, text: str) -> Sequence[MessageBody]:
        """Render a text for the sender's platform: as that platform's messages, or unchanged where clients fetch it."""
        sender = self.senders.get(envelope.event.platform)
        return [text] if sender is None else sender.render(envelope.event.platform, envelope.account, text)

    async def put_answer(self, tx: Transaction, claim: Claim, texts: Sequence[str]) -> OutboxMessage | None:
        """Put an answer into the outbox, as part of the turn's last transaction; return the message to send once that is committed."""
        parts = [part for text in texts for part in self.render(claim.envelope, text)]
        if claim.envelope.event.platform not in self.senders:
            await self.outbox.put(tx, claim, parts, OutboxState.SENT)
            return None
        await self.outbox.put(tx, claim, parts)
        return await self.outbox.take(tx, claim.conversation_id)

    async def hand_over(self, claim: Claim, message: OutboxMessage | None) -> None:
        """After the commit: announce the answer to clients that wait for it, or send what is due. `message` comes from put_answer."""
        if claim.envelope.event.platform not in self.senders:
            await self.answer_signals.announce(claim.turn_id)
        else:
            await self.deliver(claim.conversation_id, message)

    async def deliver(self, conversation_id: UUID, message: OutboxMessage | None = None) -> None:
        """Send the messages that are due, oldest first; `message` is one that was taken already. Stops at the first that must wait."""
        if message is None:
            async with self.transactions.begin() as tx:
                message = await self.outbox.take(tx, conversation_id)
        while message is not None:
            sender = self.senders[message.platform]
            result = await sender.send(message)
            async with self.transactions.begin() as tx:
                state = await self.outbox.settle(tx, message, result)
                if state is not None:
                    await sender.note(tx, message, result, state)
                message = await self.outbox.take(tx, conversation_id)
