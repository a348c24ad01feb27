"""What is written down about a delivery, in the transaction that settles it: the turn's journal, and the credit that is given back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from hermes.ports.alerts import Alerts
from hermes.ports.credits import Credits
from hermes.ports.dead_letters import DeadLetter
from hermes.ports.journal import Journal
from hermes.ports.outbox import DeliveryResult, OutboxMessage, OutboxState
from hermes.ports.transactions import Transaction

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SettlementWriter:
    """Keeps account of deliveries. All of it may be repeated; a credit is given back once."""

    credits: Credits
    journal: Journal
    alerts: Alerts

    async def note(self, tx: Transaction, parcel: OutboxMessage, sending: DeliveryResult, became: OutboxState) -> None:
        """Write down how a parcel was settled. Who holds its conversation, and only they, may have given it up."""
        for type_, facts in sending.events:
            await self.journal.add(tx, parcel.turn_id, type_, facts)
        facts = delivery_facts(parcel, sending)
        match became:
            case OutboxState.SENT:
                await self.journal.add(tx, parcel.turn_id, "response_delivered", facts)
            case OutboxState.DEAD:
                if sending.state is OutboxState.PENDING:
                    line = {"platform": str(parcel.platform), "account": parcel.account}
                    self.alerts.alert("failed_sends_overflowed", **line, outcome=str(sending.outcome))
                await self._died(tx, parcel.turn_id, parcel.news, facts)
            case _ if sending.is_failure or sending.is_doubtful:
                tried_again = {"state": str(became), "retry_in_s": round(sending.retry_in_s)}
                await self.journal.add(tx, parcel.turn_id, "delivery_failed", {**facts, **tried_again})

    async def note_death(self, tx: Transaction, letter: DeadLetter) -> None:
        """Write down that a message became a dead letter after it was settled: its platform took it and gave it up afterwards."""
        await self._died(tx, letter.turn_id, letter.news, dead_letter_facts(letter))

    async def note_arrival(self, tx: Transaction, letter: DeadLetter) -> None:
        """Write down that a dead letter, which was in doubt, has arrived after all. Its credit was given back, and stays given back."""
        facts = {**dead_letter_facts(letter), "is_refunded": not letter.news}
        log.info("dead_letter_arrived", turn_id=str(letter.turn_id), **facts)
        await self.journal.add(tx, letter.turn_id, "response_delivered", facts)

    async def _died(self, tx: Transaction, turn_id: UUID, news: str, facts: dict[str, Any]) -> None:
        # Nobody was charged for news; and the turn that asked for them has had its answer.
        is_refunded = not news and await self.credits.refund(tx, turn_id)
        log.warning("outbox_message_died", turn_id=str(turn_id), is_refunded=is_refunded, **facts)
        told = {**facts, "state": str(OutboxState.DEAD), "is_refunded": is_refunded}
        await self.journal.add(tx, turn_id, "delivery_failed", told)


def dead_letter_facts(letter: DeadLetter) -> dict[str, Any]:
    """Names and numbers, no text."""
    facts: dict[str, Any] = {"platform": str(letter.platform), "account": letter.account, "part": letter.part, "tries": letter.tries}
    facts |= {"outcome": str(letter.outcome), "doubts": letter.doubts, "reason": letter.reason}
    return {**facts, "news": letter.news} if letter.news else facts


def delivery_facts(parcel: OutboxMessage, sending: DeliveryResult) -> dict[str, Any]:
    """Names and numbers, no text."""
    facts: dict[str, Any] = {"platform": str(parcel.platform), "account": parcel.account, "part": parcel.part, "tries": parcel.tries}
    facts |= {"outcome": str(sending.outcome), "doubts": parcel.doubts + sending.is_doubtful, "is_late": parcel.is_late}
    if parcel.news:
        facts["news"] = parcel.news
    return {**facts, "reason": sending.reason} if sending.reason else facts
