"""Apply what platforms report after a message was sent: how far it came, which users left, which ids changed."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from hermes.delivery.outbox_delivery import SettlementWriter
from hermes.ports.channels import DeliveryReceipt, IdChanged, ReachabilityChanged, SendOutcome
from hermes.ports.models import PlatformMeter
from hermes.ports.outbox import DeadLetters, DeliveryTracking
from hermes.ports.runtime import Transaction, Transactions
from hermes.turn import Platform

log = structlog.get_logger()

MAX_PER_TIDY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptHandler:
    """Applies receipts and other reports of platforms. Each may come twice, and in any order."""

    transactions: Transactions
    tracking: DeliveryTracking
    dead_letters: DeadLetters
    settlement: SettlementWriter
    meter: PlatformMeter

    async def apply(self, platform: Platform, account: str, event: DeliveryReceipt | ReachabilityChanged | IdChanged) -> None:
        """Apply one event, in a transaction of its own. Raises StoreUnavailable; then the platform should send the event again."""
        async with self.transactions.begin() as tx:
            match event:
                case DeliveryReceipt():
                    await self._receive(tx, platform, account, event)
                case ReachabilityChanged():
                    await self.tracking.set_reachable(tx, account, platform, event.sender_id, is_reachable=event.is_reachable)
                case IdChanged():
                    await self.tracking.move(tx, account, platform, event.old, event.new)

    async def tidy(self) -> None:
        """Apply receipts that came a moment too early, make dead letters of messages that an earlier version left in doubt, and delete dead
        letters that were kept long enough. Call it now and then; safe to cut off."""
        for _ in range(MAX_PER_TIDY):
            async with self.transactions.begin() as tx:
                found = await self.tracking.take_early_receipt(tx)
                if found is None:
                    break
                account, platform, receipt = found
                await self._receive(tx, platform, account, receipt)
        for _ in range(MAX_PER_TIDY):
            async with self.transactions.begin() as tx:
                letter = await self.tracking.take_left_in_doubt(tx)
                if letter is None:
                    break
                await self.settlement.note_death(tx, letter)
        async with self.transactions.begin() as tx:
            purged = await self.dead_letters.purge(tx)
        if purged:
            log.info("dead_letters_purged", letters=purged)

    async def _receive(self, tx: Transaction, platform: Platform, account: str, receipt: DeliveryReceipt) -> None:
        letter = await self.tracking.receive(tx, account, platform, receipt)
        if letter is None:
            arrived = await self.tracking.take_arrived(tx, account, platform, receipt.message_id)
            if arrived is not None:
                await self.settlement.note_arrival(tx, arrived)
            return
        self.meter.count_send(str(platform), str(letter.outcome))
        await self.settlement.note_death(tx, letter)
        if letter.outcome is SendOutcome.INVALID_RECIPIENT:
            await self.tracking.set_reachable(tx, account, platform, letter.channel_id, is_reachable=False, since=letter.promised_at)
