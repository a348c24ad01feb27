"""The outbox: answers in parts, in order, each part with its own state; and proactive messages, which Hermes sends later by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.channels import SendOutcome
from hermes.ports.dead_letters import DeadLetters
from hermes.ports.delivery_tracking import DeliveryTracking
from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.transactions import Transaction
from hermes.turn import Platform

MessageBody = str | Mapping[str, Any]
"""One part of an answer: a text where the client fetches it, a message in the platform's form where it is sent. `text` has its words."""


class OutboxState(StrEnum):
    """How far an outbox message is."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    """Being sent. If it is in this state after a crash, it may have arrived."""
    SENT = "sent"
    DEAD = "dead"
    """Given up: it is a dead letter. If its last outcome is `ambiguous`, it may have arrived."""


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One part of an answer on its way to one channel."""

    id: int
    turn_id: UUID
    conversation_id: UUID
    seq: int
    part: int
    account: str
    platform: Platform
    channel_id: str
    body: MessageBody
    tries: int
    """How often it was taken, this time included."""
    doubts: int = 0
    """Tries that were cut off in the middle: each of them may have arrived."""
    news: str = ""
    """The name of its proactive message: `reminder/7KQ2`. Empty for a part of the turn's answer. A proactive message costs no credit."""
    failures: int = 0
    """How often it was put back because sending failed. Waiting for a breaker is no failure."""
    thread: str | None = None
    """The platform's id of the thread in the channel."""
    reply_to: str | None = None
    """The message that it answers, in a channel where several people write."""
    is_late: bool = False
    """It was a dead letter, and was requeued behind all others."""
    is_reachable: bool = True
    """False: the platform reported that the user left, and they have not written since."""
    taken_at: datetime | None = None
    last_inbound_at: datetime | None = None
    """When a user last wrote in this conversation."""
    confirmed_by: str | None = None
    """For a message in doubt: the platform's message id of a receipt which shows that it arrived."""

    @property
    def reference(self) -> str:
        """Our reference of the message at platforms: the same for all of its tries, and different from every other outbox message."""
        return f"{self.turn_id}/{self.part}/{self.news}"

    @property
    def is_ambiguous(self) -> bool:
        """An earlier try was cut off in the middle: it may have arrived."""
        return self.doubts > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """How the delivery of an outbox message ended."""

    state: OutboxState
    """SENT and DEAD are final; PENDING: to be tried again."""
    outcome: SendOutcome | None = None
    reason: str = ""
    """For the operator, without a word of the message."""
    retry_in_s: float = 0.0
    is_failure: bool = False
    """If it is put back: whether that uses up one of its tries."""
    is_doubtful: bool = False
    """If it is put back or dead: its last try may have arrived."""
    message_id: str | None = None
    """The platform's id of the message."""
    moved_to: str | None = None
    """The channel's new id, if the platform reported one."""
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """What else happened during the delivery, for the turn's journal."""


@dataclass(frozen=True, slots=True)
class OutboxAnswer:
    """The answer of a turn, as it is in the outbox."""

    turn_id: UUID
    text: str
    meta: dict[str, object]
    """The interaction's provenance: tokens, cost, backend…"""


@dataclass(frozen=True, slots=True)
class ProactiveMessage:
    """A message that Hermes sends by itself: a reminder, a price that fell."""

    id: int
    """Grows within a conversation: a later message has a larger id."""
    turn_id: UUID
    """The turn in which the user asked for it."""
    user_id: UUID
    name: str
    """What it is about: `reminder/7KQ2`."""
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OutboxLengths:
    """How many outbox messages were put back after a failed try, and how many were given up, some without any try."""

    failed_sends: int
    """Put back, to be tried again."""
    dead_letters: int


class Outbox(Protocol):
    """Answers and proactive messages on their way. Fails closed."""

    @property
    def dead_letters(self) -> DeadLetters:
        """The messages that were given up."""
        ...

    @property
    def tracking(self) -> DeliveryTracking:
        """What became of the messages that were sent."""
        ...

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        """Add an answer, in parts. Part of the turn's last transaction. Repeating it adds nothing.

        An answer that its client fetches is delivered when it is in the outbox: `state` is then SENT."""
        ...

    async def put_proactive(
        self, tx: Transaction, message: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        """Add a proactive message that the user asked for in an earlier `message`, behind all others of its conversation. The answer of
        that turn stays as it is. Repeating it with the same name adds nothing. Locks the conversation until the transaction ends. `state`
        as in `put`."""
        ...

    async def take_proactive(self, tx: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        """Return the proactive messages of a conversation that its history does not have yet, in order; each once, to the first transaction
        that commits. Those of deleted users are dropped."""
        ...

    async def proactive_messages(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        """Return the proactive messages of a channel after the one with the id `after`, in order, for clients that fetch their answers.
        Those of deleted users are left out."""
        ...

    async def take(self, tx: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        """Take the conversation's oldest message that is not settled, and mark it as being sent.

        None if there is none, if it is not due yet, or if another worker is sending it now. A later message is never taken while an earlier
        one waits. A try that was cut off long ago is taken again, with one more doubt. A message that cannot be read any more, because its
        user was deleted, is given up on the way."""
        ...

    async def settle(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        """Note how the delivery ended, and return the message's new state.

        The state is DEAD if the message should be put back but too many of its account wait already: it becomes a dead letter, and is not
        lost. A recipient who cannot be reached is noted as unreachable until they write again. A late call, after another worker took the
        message, changes nothing and returns None. Unless the message was sent, this locks the conversation until the transaction ends."""
        ...

    async def stranded_conversations(self, tx: Transaction, older_than_s: float, *, limit: int = 500) -> Sequence[UUID]:
        """Return conversations whose oldest message is due and was not touched for so long, the longest waiting first: its worker died
        between commit and send, or it was put back and is due again."""
        ...

    async def answer(self, tx: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        """Return the turn's answer as readable text; None while there is none."""
        ...

    async def waiting(self, tx: Transaction) -> int:
        """How many messages are not settled."""
        ...

    async def lengths(self, tx: Transaction) -> OutboxLengths:
        """Count the messages that were put back, and those that were given up."""
        ...


def readable_text(bodies: Sequence[MessageBody]) -> str:
    """Return the text of these parts, one after the other."""
    texts = [body if isinstance(body, str) else str(body.get("text", "")) for body in bodies]
    # A platform's messages were cut at white space, which was dropped; so it is put back. Text parts lost nothing.
    return ("" if all(isinstance(body, str) for body in bodies) else "\n").join(texts)
