"""Deliver the messages of the outbox, in the order of their conversation, one at a time.

    claim  →  send  →  settle, and claim the next

A message is claimed and settled in transactions, and sent between them. The transaction that settles a message also records what follows
from it: in the turn's journal, and with a credit that is given back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.credits import Credits
from hermes.ports.outbox import DeadLetter, DeliveryResult, Outbox, OutboxMessage, OutboxState
from hermes.ports.runtime import Alerts, Transaction, Transactions
from hermes.ports.sessions import Journal
from hermes.ports.traces import NO_TRACER, Tracer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OutboxDelivery:
    """Empties the outbox of a conversation."""

    transactions: Transactions
    outbox: Outbox
    send: Callable[[OutboxMessage], Awaitable[DeliveryResult]]
    """Send a message and return how that went. Never raises for what a platform or a network does; takes less than two minutes."""
    settlement: SettlementWriter
    tracer: Tracer = NO_TRACER

    async def deliver(self, conversation_id: UUID) -> None:
        """Send the messages that are due, oldest first. Stops at the first that must wait. Raises StoreUnavailable."""
        async with self.transactions.begin() as tx:
            message = await self.outbox.take(tx, conversation_id)
        while message is not None:
            with self.tracer.delivery(message) as span:
                result = await self.send(message)
                span.note(outcome=result.outcome and str(result.outcome), state=str(result.state), is_failure=result.is_failure)
            message = await self._settle(message, result)

    async def _settle(self, message: OutboxMessage, result: DeliveryResult) -> OutboxMessage | None:
        """Settle a message, with all that follows from how it was delivered, and return the next one."""
        if result.is_simply_sent:
            async with self.transactions.once() as tx:
                return await self.outbox.settle_sent(tx, message, result, delivery_facts(message, result))
        async with self.transactions.begin() as tx:
            state = await self.outbox.settle(tx, message, result)
            if state is not None:
                await self.settlement.note(tx, message, result, state)
            return await self.outbox.take(tx, message.conversation_id)


@dataclass(frozen=True, slots=True)
class SettlementWriter:
    """Records deliveries. All calls may be repeated; a credit is given back once."""

    credits: Credits
    journal: Journal
    alerts: Alerts

    async def note(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult, became: OutboxState) -> None:
        """Record how a message was settled. If it was given up, the caller's transaction must hold the lock of its conversation."""
        for type_, facts in result.events:
            await self.journal.add(tx, message.turn_id, type_, facts)
        facts = delivery_facts(message, result)
        match became:
            case OutboxState.SENT:
                await self.journal.add(tx, message.turn_id, "response_delivered", facts)
            case OutboxState.DEAD:
                if result.state is OutboxState.PENDING:
                    where = {"platform": str(message.platform), "account": message.account}
                    self.alerts.alert("failed_sends_overflowed", **where, outcome=str(result.outcome))
                await self._note_dead(tx, message.turn_id, message.news, facts)
            case _ if result.is_failure or result.is_doubtful:
                tried_again = {"state": str(became), "retry_in_s": round(result.retry_in_s)}
                await self.journal.add(tx, message.turn_id, "delivery_failed", {**facts, **tried_again})

    async def note_death(self, tx: Transaction, letter: DeadLetter) -> None:
        """Record that a message became a dead letter after it was settled: its platform accepted it and gave it up afterwards."""
        await self._note_dead(tx, letter.turn_id, letter.news, letter.facts)

    async def note_arrival(self, tx: Transaction, letter: DeadLetter) -> None:
        """Record that a dead letter, which was in doubt, has arrived after all. Its credit was given back, and stays given back."""
        facts = {**letter.facts, "is_refunded": not letter.news}
        log.info("dead_letter_arrived", turn_id=str(letter.turn_id), **facts)
        await self.journal.add(tx, letter.turn_id, "response_delivered", facts)

    async def _note_dead(self, tx: Transaction, turn_id: UUID, news: str, facts: dict[str, Any]) -> None:
        # A proactive message cost no credit; and the turn that asked for it has had its answer.
        is_refunded = not news and await self.credits.refund(tx, turn_id)
        log.warning("outbox_message_died", turn_id=str(turn_id), is_refunded=is_refunded, **facts)
        death_facts = {**facts, "state": str(OutboxState.DEAD), "is_refunded": is_refunded}
        await self.journal.add(tx, turn_id, "delivery_failed", death_facts)


def delivery_facts(message: OutboxMessage, result: DeliveryResult) -> dict[str, Any]:
    """Return names and numbers, no text."""
    facts: dict[str, Any] = {"platform": str(message.platform), "account": message.account, "part": message.part, "tries": message.tries}
    facts |= {"outcome": str(result.outcome), "doubts": message.doubts + result.is_doubtful, "is_late": message.is_late}
    if message.news:
        facts["news"] = message.news
    return {**facts, "reason": result.reason} if result.reason else facts
