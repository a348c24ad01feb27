"""Route the events of one webhook: messages to the intake, receipts and changed ids to delivery, reactions to the feedback.

One webhook may hold many events. The router takes them in order, each in a transaction of its own. If the store goes away in the middle,
the platform sends the whole webhook again, and the events that were stored already are found and not stored twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from hermes.ports.channels import Channel, DeliveryReceipt, IdChanged, Ignored, InboundEvent, InboundMessage, ReachabilityChanged, Reaction
from hermes.ports.models import PlatformMeter
from hermes.ports.users import UserState
from hermes.router.feedback import Feedback
from hermes.router.intake import Intake
from hermes.turn import Platform

log = structlog.get_logger()


class DeliveryUpdates(Protocol):
    """Applies what a platform reports after a send."""

    async def apply(self, platform: Platform, account: str, event: DeliveryReceipt | ReachabilityChanged | IdChanged) -> None:
        """Apply one event. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class InboundRouter:
    """Gives each inbound event of a platform to the part that handles it."""

    intake: Intake
    delivery_updates: DeliveryUpdates
    feedback: Feedback
    meter: PlatformMeter

    async def route(self, channel: Channel, events: Sequence[InboundEvent], *, newcomer: UserState) -> int:
        """Handle all events; return the number of new messages. Raises InboxFull and StoreUnavailable; then the platform sends it again.

        `newcomer` is the state for a sender who is not a user yet."""
        new = 0
        for event in events:
            match event:
                case InboundMessage():
                    new += (await self.intake.accept(event.stored_envelope, newcomer=newcomer, alias=event.alias)).is_new
                case DeliveryReceipt() | ReachabilityChanged() | IdChanged():
                    await self.delivery_updates.apply(channel.platform, channel.account, event)
                case Reaction():
                    await self.feedback.apply(channel.platform, channel.account, event)
                case Ignored():
                    self._count_ignored(channel, event)
        return new

    def _count_ignored(self, channel: Channel, ignored: Ignored) -> None:
        facts = {"platform": str(channel.platform), "account": channel.account, "reason": ignored.reason}
        self.meter.count_ignored(facts["platform"], ignored.reason)
        if ignored.meant_for:
            # The sender waits for an answer that never comes: the operator has to add that account, or to unsubscribe it.
            log.warning("webhook_ignored", **facts, meant_for=ignored.meant_for)
        else:
            log.info("webhook_ignored", **facts)
