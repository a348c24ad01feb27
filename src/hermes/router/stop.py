"""Stop a turn whose client no longer wants the answer.

A turn that waits is withdrawn. A turn under way ends at once for its client; its worker finishes the model call or tool that runs, begins
nothing more, and cannot end the turn any more. The user's credit is charged if a model's answer was paid for until then, and else returned;
calls themselves are recorded and priced as always."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.credits import Credits
from hermes.ports.errors import NotFound
from hermes.ports.events import EFFECT_NAMES
from hermes.ports.inbox import AnswerSignals, Inbox
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import Journal


@dataclass(frozen=True, slots=True)
class TurnStopper:
    """Stops turns."""

    transactions: Transactions
    inbox: Inbox
    credits: Credits
    journal: Journal
    answer_signals: AnswerSignals

    async def stop(self, turn_id: UUID) -> bool:
        """End a turn without an answer, once; False, and no change, if it has ended already. Raises StoreUnavailable."""
        async with self.transactions.begin() as tx:
            is_stopped = await self.inbox.stop(tx, turn_id)
            if is_stopped:
                is_charged = await self._settle_credit(tx, turn_id)
                await self.journal.add(tx, turn_id, "turn_stopped", {"is_charged": is_charged})
        if is_stopped:
            await self.answer_signals.announce(turn_id)
        return is_stopped

    async def _settle_credit(self, tx: Transaction, turn_id: UUID) -> bool:
        """Charge the credit if a model has answered, from no cache; else give it back. Returns whether it is charged."""
        answers = [event for event in await self.journal.read(tx, turn_id) if event.type == EFFECT_NAMES["call_model"] and event.done_at]
        if any(event.facts.get("copy_of") is None for event in answers):
            with suppress(NotFound):  # the reserve has expired, and was given back
                await self.credits.post(tx, turn_id)
                return True
        await self.credits.void(tx, turn_id)
        return False
