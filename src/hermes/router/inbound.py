"""Route the happenings of one webhook: messages to the intake, receipts and changed ids to delivery, reactions to the feedback.

One webhook may hold many things. They are taken in their order, each in a transaction of its own; where the store is away in the middle,
the platform sends all of it again, and what was taken is only found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from hermes.ports.channels import Channel, DeliveryReceipt, IdChanged, Ignored, InboundEvent, InboundMessage, ReachabilityChanged, Reaction
from hermes.ports.meter import WebhookMeter
from hermes.ports.users import UserState
from hermes.router.feedback import Feedback
from hermes.router.intake import Intake
from hermes.turn import Platform

log = structlog.get_logger()


class DeliveryUpdates(Protocol):
    """Keeps account of what platforms tell after a send."""

    async def heard(self, platform: Platform, account: str, happening: DeliveryReceipt | ReachabilityChanged | IdChanged) -> None:
        """Apply one thing. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class InboundRouter:
    """Takes in what platforms send."""

    intake: Intake
    reporter: DeliveryUpdates
    feedback: Feedback
    meter: WebhookMeter

    async def hear(self, channel: Channel, happenings: Sequence[InboundEvent], *, newcomer: UserState) -> int:
        """Take everything in; return how many messages were new. Raises InboxFull and StoreUnavailable: then it is to be sent again.

        `newcomer` is the state of a sender whom nobody knows yet."""
        new = 0
        for happening in happenings:
            match happening:
                case InboundMessage():
                    new += (await self.intake.accept(happening.kept, newcomer=newcomer, alias=happening.alias)).is_new
                case DeliveryReceipt() | ReachabilityChanged() | IdChanged():
                    await self.reporter.heard(channel.platform, channel.account, happening)
                case Reaction():
                    await self.feedback.heard(channel.platform, channel.account, happening)
                case Ignored():
                    self._pass(channel, happening)
        return new

    def _pass(self, channel: Channel, passed: Ignored) -> None:
        facts = {"platform": str(channel.platform), "account": channel.account, "reason": passed.reason}
        self.meter.count_ignored(facts["platform"], passed.reason)
        if passed.meant_for:
            # Its sender waits for an answer that never comes: a person has to add that account, or to unsubscribe it.
            log.warning("webhook_passed", **facts, meant_for=passed.meant_for)
        else:
            log.info("webhook_passed", **facts)
