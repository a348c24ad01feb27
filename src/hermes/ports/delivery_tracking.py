"""What became of messages after they were sent: receipts, and whom they can still reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
from hermes.ports.dead_letters import DeadLetter
from hermes.ports.transactions import Transaction
from hermes.turn import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatus:
    """How far one part of what was said has come."""

    part: int
    news: str
    """What it is of, where it is no part of the turn's answer."""
    state: str
    """A ParcelState."""
    rank: ReceiptRank | None
    """None: no platform has taken it yet."""
    ranked_at: datetime | None
    """When that was heard."""
    outcome: SendOutcome | None
    """How the last try ended; None: it was not tried yet, or people fetch it."""
    reason: str
    tries: int
    doubts: int
    is_late: bool
    promised_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSource:
    """The turn behind a message of ours."""

    turn_id: UUID
    session_id: UUID
    """Whose graph has what was said."""
    calls: Sequence[str]
    """The model's calls of that turn, in their order: the sample ids of its responses. None where no model answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """Something that was said on a platform, and how far it came; without a word of it."""

    turn_id: UUID
    account: str
    platform: Platform
    channel_id: str
    status: DeliveryStatus


class DeliveryTracking(Protocol):
    """What platforms tell of our messages. Fails closed."""

    async def receive(self, tx: Transaction, account: str, platform: Platform, receipt: DeliveryReceipt) -> DeadLetter | None:
        """Note how far a message of ours came. Only a higher rank counts, so receipts may come in any order and more than once.

        A message that failed without ever having been delivered becomes a dead letter, which is returned, once. A receipt that comes
        before its message is known to be sent is kept for it; one with a text that nothing has which is on its way to its channel, or was
        given up in doubt, tells of somebody else's message, and confirms none of ours; nor does one with a reference that is not there.
        Holds the conversation of one that failed."""
        ...

    async def take_arrived(self, tx: Transaction, account: str, platform: Platform, message_id: str) -> DeadLetter | None:
        """Take a dead letter off the list that was in doubt, where the receipt of this message, kept just now, shows that it arrived.

        Return it as it was, once; it is sent from now on, as far as the receipt says. None for a receipt that shows no such thing. What was
        refunded stays refunded. Holds the conversation of the letter."""
        ...

    async def take_left_in_doubt(self, tx: Transaction) -> DeadLetter | None:
        """Make a dead letter of something that a version before this one left in doubt, neither confirmed nor listed, and return it; None
        when there is no more. Holds its conversation."""
        ...

    async def take_early_receipt(self, tx: Transaction) -> tuple[str, Platform, DeliveryReceipt] | None:
        """Take a receipt that was kept and whose message is known by now, with account and platform, to be received again in the same
        transaction; None when there is none.

        Most find their message by themselves; such a one came in the very moment in which that was settled. Those that nobody has
        asked for within a day are thrown away."""
        ...

    async def set_reachable(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, is_reachable: bool, since: datetime | None = None
    ) -> None:
        """Note that somebody left, or can be reached again. No change where nobody knows them.

        Whoever left is reachable again as soon as they have written after `since`; without it, after now."""
        ...

    async def move(self, tx: Transaction, account: str, platform: Platform, old: str, new: str) -> None:
        """A sender or a channel has another id: what they were and what waits for them goes along. Repeating it changes nothing.

        Where the new id is known already, both stay what they are, and only what waits goes there."""
        ...

    async def answer_source(
        self, tx: Transaction, account: str, platform: Platform, message_id: str, *, channel_id: str | None = None
    ) -> AnswerSource | None:
        """Return the turn that a message of ours is an answer of, or a part of one; None for a message that nobody knows, and for news.

        `channel_id` is where it was sent to, for platforms that number the messages of each channel for themselves."""
        ...

    async def newest(self, tx: Transaction, *, account: str | None = None, limit: int = 20) -> Sequence[SentMessage]:
        """Return what was promised last, on whatever account or on one, the newest first. Not what people fetch themselves."""
        ...

    async def statuses(self, tx: Transaction, turn_id: UUID) -> Sequence[DeliveryStatus]:
        """Return how far all that a turn said has come, in its order."""
        ...
