"""What comes out of a webhook, each to where it belongs: messages to the intake, the rest to whoever keeps account of what was sent.

One webhook may hold many things. They are taken in their order, each in a transaction of its own; where the store is away in the middle,
the platform sends all of it again, and what was taken is only found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from hermes.ports.channels import Channel, Happening, Heard, Passed, Reach, Reaction, Receipt, Renamed
from hermes.ports.people import UserState
from hermes.router.feedback import Feedback
from hermes.router.intake import Intake
from hermes.turn import Platform

log = structlog.get_logger()


class Reporter(Protocol):
    """Keeps account of what platforms tell after a send."""

    async def heard(self, platform: Platform, account: str, happening: Receipt | Reach | Renamed) -> None:
        """Apply one thing. Raises StoreUnavailable."""
        ...


@dataclass(frozen=True, slots=True)
class Hearing:
    """Takes in what platforms send."""

    intake: Intake
    reporter: Reporter
    feedback: Feedback

    async def hear(self, channel: Channel, happenings: Sequence[Happening], *, newcomer: UserState) -> int:
        """Take everything in; return how many messages were new. Raises InboxFull and StoreUnavailable: then it is to be sent again.

        `newcomer` is the state of a sender whom nobody knows yet."""
        new = 0
        for happening in happenings:
            match happening:
                case Heard():
                    new += (await self.intake.accept(happening.kept, newcomer=newcomer, alias=happening.alias)).is_new
                case Receipt() | Reach() | Renamed():
                    await self.reporter.heard(channel.platform, channel.account, happening)
                case Reaction():
                    await self.feedback.heard(channel.platform, channel.account, happening)
                case Passed():
                    log.info("webhook_passed", platform=str(channel.platform), account=channel.account, reason=happening.reason)
        return new
