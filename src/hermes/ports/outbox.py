"""What goes out: answers in parts, in order, each with its own state; and what Hermes says by itself, later than it was asked to."""

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
"""One part of what is said: a text where people fetch it, a platform's own message where it is sent; the words of that are its `text`."""


class OutboxState(StrEnum):
    """Where a parcel is on its way."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    """Being sent. Found in this state after a crash, nobody knows whether it arrived."""
    SENT = "sent"
    DEAD = "dead"
    """Given up: it lies among the dead letters. One whose last outcome is `ambiguous` may have arrived."""


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
    """How often it was given out, with this time."""
    doubts: int = 0
    """Tries that were cut off in the middle: each of them may have arrived."""
    news: str = ""
    """What it is of, where it is no part of the turn's answer: `reminder/7KQ2`. Nobody was charged for it."""
    failures: int = 0
    """How often it was put back because sending failed. Waiting for a breaker is no failure."""
    thread: str | None = None
    """Where in the channel, as the platform names it."""
    reply_to: str | None = None
    """The message that it answers, where several people talk."""
    is_late: bool = False
    """It was among the dead letters, and was sent on its way again behind all others."""
    is_reachable: bool = True
    """False: the platform said that they left, and they have not written since."""
    taken_at: datetime | None = None
    last_inbound_at: datetime | None = None
    """When somebody wrote in this conversation last."""
    confirmed_by: str | None = None
    """Of one in doubt: the platform's id of the message that a receipt told of. It arrived."""

    @property
    def reference(self) -> str:
        """What we call it at platforms: the same for all of its tries, and for no other parcel anywhere."""
        return f"{self.turn_id}/{self.part}/{self.news}"

    @property
    def is_ambiguous(self) -> bool:
        """An earlier try was cut off in the middle: it may have arrived."""
        return self.doubts > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """How it went to bring a parcel to its platform."""

    state: OutboxState
    """SENT and DEAD end it; PENDING: to be tried again."""
    outcome: SendOutcome | None = None
    reason: str = ""
    """For people, without a word of what was sent."""
    retry_in_s: float = 0.0
    is_failure: bool = False
    """Of one that is put back: whether that uses up one of its tries."""
    is_doubtful: bool = False
    """Of one that is put back or dead: its last try may have arrived."""
    message_id: str | None = None
    """What the platform calls it."""
    moved_to: str | None = None
    """The channel's id from now on."""
    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """What else happened on the way, for the turn's journal."""


@dataclass(frozen=True, slots=True)
class OutboxAnswer:
    """What a turn said, as far as it has been put into the outbox."""

    turn_id: UUID
    text: str
    meta: dict[str, object]
    """The interaction's provenance: tokens, cost, backend…"""


@dataclass(frozen=True, slots=True)
class ProactiveMessage:
    """Something that Hermes said by itself: a reminder, a price that came down."""

    id: int
    """Grows within a conversation: what has a larger one was said later."""
    turn_id: UUID
    """The turn in which the user asked for it."""
    user_id: UUID
    name: str
    """What it is of: `reminder/7KQ2`."""
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class OutboxLengths:
    """How much lies in the outbox that has not simply been sent."""

    failed_sends: int
    """Put back, to be tried again."""
    dead_letters: int


class Outbox(Protocol):
    """Answers that were promised, and news. Fails closed."""

    @property
    def dead_letters(self) -> DeadLetters:
        """What was given up."""
        ...

    @property
    def tracking(self) -> DeliveryTracking:
        """What became of what was sent."""
        ...

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        """Promise an answer, in parts. Part of the turn's last transaction; repeated, it adds nothing.

        For a platform that fetches its answers from us the promise is the delivery: `state` is then SENT."""
        ...

    async def put_proactive(
        self, tx: Transaction, message: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        """Promise something that a message of the past asked for, behind all that is promised in its conversation; the turn's answer stays
        what it is. Repeated with the same name, it adds nothing. Holds the conversation until the transaction ends. `state` as in `put`."""
        ...

    async def take_proactive(self, tx: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        """Return the news of a conversation that its history does not have yet, in order; each once, to whoever commits first. Those of
        users who were deleted are dropped."""
        ...

    async def proactive_messages(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        """Return what was said by ourselves in a channel after the news with the id `after`, in order: for those who fetch their answers
        from us. Those of users who were deleted are left out."""
        ...

    async def take(self, tx: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        """Take the conversation's oldest parcel that is not settled, and mark it as being sent.

        None when there is none, when it is not due yet, or when somebody is sending it right now. A later parcel is never given out
        while an earlier one waits. A try that was cut off long ago is given out again, with one more doubt. What nobody can read any
        more, because its user was deleted, is given up on the way."""
        ...

    async def settle(self, tx: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        """Say how sending went, and return what has become of the parcel.

        That is DEAD for one to be put back where too many of its line wait already: it goes to the dead letters, never nowhere. A
        recipient who cannot be reached is remembered as that until they write again. Whoever comes late, after the parcel was given to
        another, changes nothing: None. Unless it was sent, this holds the conversation until the transaction ends."""
        ...

    async def stranded_conversations(self, tx: Transaction, older_than_s: float, *, limit: int = 500) -> Sequence[UUID]:
        """Conversations whose oldest parcel is due and was touched by nobody for so long, the longest waiting first: its sender died
        between commit and send, or it was put back and its time has come."""
        ...

    async def answer(self, tx: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        """What the turn answered, as people read it; None while it has not."""
        ...

    async def waiting(self, tx: Transaction) -> int:
        """How many parcels are not settled."""
        ...

    async def lengths(self, tx: Transaction) -> OutboxLengths:
        """Count what was put back, and what was given up."""
        ...


def readable_text(bodies: Sequence[MessageBody]) -> str:
    """What people read in these parts, one after the other."""
    texts = [body if isinstance(body, str) else str(body.get("text", "")) for body in bodies]
    # Messages of a platform were cut at white space, which was left out; parts of a text were not.
    return ("" if all(isinstance(body, str) for body in bodies) else "\n").join(texts)
