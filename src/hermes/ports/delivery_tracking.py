"""What became of messages after they were sent: receipts, and which users can still be reached."""

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
    """How far one outbox message has come."""

    part: int
    news: str
    """The name of its proactive message; empty for a part of the turn's answer."""
    state: str
    """An OutboxState."""
    rank: ReceiptRank | None
    """None: no platform has taken it yet."""
    ranked_at: datetime | None
    """When the platform reported the rank."""
    outcome: SendOutcome | None
    """How the last try ended; None: it was not tried yet, or the client fetches it."""
    reason: str
    tries: int
    doubts: int
    is_late: bool
    promised_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSource:
    """The turn that a message of ours answers."""

    turn_id: UUID
    session_id: UUID
    """The session whose graph has the answer."""
    calls: Sequence[str]
    """The model's calls of that turn, in their order: the sample ids of its responses. Empty if no model answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message of ours on a platform, and how far it came; without its text."""

    turn_id: UUID
    account: str
    platform: Platform
    channel_id: str
    status: DeliveryStatus


class DeliveryTracking(Protocol):
    """What platforms report about our messages. Fails closed."""

    async def receive(self, tx: Transaction, account: str, platform: Platform, receipt: DeliveryReceipt) -> DeadLetter | None:
        """Note how far a message of ours came. Only a higher rank counts, so receipts may come in any order and more than once.

        A message that failed without ever having been delivered becomes a dead letter, which is returned, once. A receipt that comes
        before its message is known to be sent is kept for it. A receipt with a text confirms no message of ours if no message with that
        text is on its way to the channel or was given up in doubt: a person wrote it. Nor does a receipt with an unknown reference. Locks
        the conversation of a message that failed."""
        ...

    async def take_arrived(self, tx: Transaction, account: str, platform: Platform, message_id: str) -> DeadLetter | None:
        """Take a dead letter in doubt off the list, if the receipt of this message, kept just now, shows that it arrived.

        Return it as it was, once; from now on it counts as sent, with the rank of the receipt. None for a receipt that shows no such thing.
        A refund stays. Locks the conversation of the letter."""
        ...

    async def take_left_in_doubt(self, tx: Transaction) -> DeadLetter | None:
        """Make a dead letter of a message that an earlier version of Hermes left in doubt, neither confirmed nor listed, and return it.
        None if there is no more. Locks its conversation."""
        ...

    async def take_early_receipt(self, tx: Transaction) -> tuple[str, Platform, DeliveryReceipt] | None:
        """Take a kept receipt whose message is known by now, with its account and platform; None if there is none. The caller passes it to
        `receive` in the same transaction.

        Most kept receipts are found when their message is settled; such a one came at that very moment. A receipt whose message does not
        turn up within a day is deleted."""
        ...

    async def set_reachable(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, is_reachable: bool, since: datetime | None = None
    ) -> None:
        """Note that a user left, or can be reached again. No change for an unknown channel.

        A user who left is reachable again as soon as they write after `since`; without it, after now."""
        ...

    async def move(self, tx: Transaction, account: str, platform: Platform, old: str, new: str) -> None:
        """Give a sender or a channel a new id: the user, the conversation and the waiting messages get it. Repeating it changes nothing.

        If the new id is known already, both users and conversations stay as they are, and only the waiting messages go to the new id."""
        ...

    async def answer_source(
        self, tx: Transaction, account: str, platform: Platform, message_id: str, *, channel_id: str | None = None
    ) -> AnswerSource | None:
        """Return the turn that a message of ours answers, in whole or in part; None for an unknown message, and for a proactive message.

        `channel_id` is the channel it was sent to, for platforms that number the messages of each channel separately."""
        ...

    async def newest(self, tx: Transaction, *, account: str | None = None, limit: int = 20) -> Sequence[SentMessage]:
        """Return the newest outbox messages of all accounts or of one, the newest first. Without those that clients fetch."""
        ...

    async def statuses(self, tx: Transaction, turn_id: UUID) -> Sequence[DeliveryStatus]:
        """Return the status of each outbox message of a turn, in order."""
        ...
