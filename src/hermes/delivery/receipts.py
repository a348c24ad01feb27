"""What platforms tell after a message was sent: how far it came, who left, who has another id now."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from hermes.delivery.books import Books
from hermes.ports.arrivals import Arrivals
from hermes.ports.channels import Outcome, Reach, Receipt, Renamed
from hermes.ports.dead_letters import DeadLetters
from hermes.ports.meter import SendMeter
from hermes.ports.transactions import Transaction, Transactions
from hermes.turn import Platform

log = structlog.get_logger()

MOST_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """Applies what was heard. Everything may come twice, and in any order."""

    transactions: Transactions
    arrivals: Arrivals
    dead_letters: DeadLetters
    books: Books
    meter: SendMeter

    async def heard(self, platform: Platform, account: str, happening: Receipt | Reach | Renamed) -> None:
        """Apply one thing, in a transaction of its own. Raises StoreUnavailable; then the platform is to tell it again."""
        async with self.transactions.begin() as tx:
            match happening:
                case Receipt():
                    await self._receive(tx, platform, account, happening)
                case Reach():
                    await self.arrivals.reach(tx, account, platform, happening.sender_id, is_reachable=happening.is_reachable)
                case Renamed():
                    await self.arrivals.move(tx, account, platform, happening.old, happening.new)

    async def tidy(self) -> None:
        """Apply what came a moment too early, list what an earlier version left in doubt, and throw away dead letters that were kept long
        enough. For now and then; safe to cut off."""
        for _ in range(MOST_AT_ONCE):
            async with self.transactions.begin() as tx:
                found = await self.arrivals.take_found(tx)
                if found is None:
                    break
                account, platform, receipt = found
                await self._receive(tx, platform, account, receipt)
        for _ in range(MOST_AT_ONCE):
            async with self.transactions.begin() as tx:
                letter = await self.arrivals.take_left_in_doubt(tx)
                if letter is None:
                    break
                await self.books.note_death(tx, letter)
        async with self.transactions.begin() as tx:
            purged = await self.dead_letters.purge(tx)
        if purged:
            log.info("dead_letters_purged", letters=purged)

    async def _receive(self, tx: Transaction, platform: Platform, account: str, receipt: Receipt) -> None:
        letter = await self.arrivals.receive(tx, account, platform, receipt)
        if letter is None:
            arrived = await self.arrivals.take_arrived(tx, account, platform, receipt.message_id)
            if arrived is not None:
                await self.books.note_arrival(tx, arrived)
            return
        self.meter.count_send(str(platform), str(letter.outcome))
        await self.books.note_death(tx, letter)
        if letter.outcome is Outcome.INVALID_RECIPIENT:
            await self.arrivals.reach(tx, account, platform, letter.channel_id, is_reachable=False, since=letter.promised_at)
