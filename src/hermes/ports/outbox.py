"""Answers on their way out: the outbox, the breakers of platforms, what became of messages after they were sent, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.ports.channels import DeliveryReceipt, ReceiptRank, SendOutcome
    from hermes.ports.inbox import Claim, InboxMessage

# --- the outbox: answers in parts, in order, each with its own state; and proactive messages, which Hermes sends later by itself

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
    traceparent: str | None = None
    """The trace of the message that it answers."""

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

    @property
    def is_simply_sent(self) -> bool:
        """Whether the message was sent and nothing else happened."""
        return self.state is OutboxState.SENT and not (self.is_failure or self.is_doubtful or self.moved_to or self.events)


@dataclass(frozen=True, slots=True)
class OutboxAnswer:
    """The answer of a turn, as it is in the outbox."""

    turn_id: UUID
    text: str
    meta: dict[str, object]
    """The interaction's provenance: tokens, cost, backend…"""
    offers: Sequence[Mapping[str, Any]] = ()
    """The offers behind the answer, where clients fetch it: `code`, `tool`, `text`, `expires_at` and `buttons` of each."""


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

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        """Add an answer, in parts. Part of the turn's last transaction. Repeating it adds nothing.

        An answer that its client fetches is delivered when it is in the outbox: `state` is then SENT."""
        ...

    async def withdraw(self, tx: Transaction, turn_id: UUID) -> int:
        """Take the answer of a turn back, so that it can get another one; return how many parts had been sent. What waits is not sent any
        more; what the platform has is kept under another name, for its receipts. The caller holds the conversation."""
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
        lost. A recipient who cannot be reached is noted as unreachable until they write again. A channel that moved gets its new id, as by
        `DeliveryTracking.move`. A late call, after another worker took the message, changes nothing else and returns None. Unless
        the message was sent, this locks the conversation until the transaction ends."""
        ...

    async def settle_sent(
        self, tx: Transaction, message: OutboxMessage, result: DeliveryResult, facts: Mapping[str, Any]
    ) -> OutboxMessage | None:
        """As `settle` for a message that was sent, with `response_delivered` and these facts in the journal of its turn; then return the
        next message, as `take`. A late call notes nothing. All or nothing also without a transaction (`Transactions.once`)."""
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


def offers_in(bodies: Sequence[MessageBody]) -> tuple[Mapping[str, Any], ...]:
    """Return the offers that these parts show to clients which fetch their answers."""
    return tuple(body["offer"] for body in bodies if not isinstance(body, str) and "offer" in body)


def readable_text(bodies: Sequence[MessageBody]) -> str:
    """Return the text of these parts, one after the other."""
    texts = [body if isinstance(body, str) else str(body.get("text", "")) for body in bodies]
    # A platform's messages were cut at white space, which was dropped; so it is put back. Text parts lost nothing.
    return ("" if all(isinstance(body, str) for body in bodies) else "\n").join(texts)


# --- breakers of channel accounts
#
# While sends through a channel account keep failing, Hermes stops sending for a while, and then tries one message as a probe.


@dataclass(frozen=True, slots=True)
class ChannelName:
    """One account at one platform. Failures of one account say nothing about another."""

    platform: Platform
    account: str

    def __str__(self) -> str:
        return f"{self.platform}:{self.account}"


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether to send now."""

    wait_s: float | None = None
    """None: send now. Otherwise nothing may be sent for so long."""
    is_probe: bool = False
    """This send finds out whether the account works again; all other sends wait. The sender must report how it ended."""


class BreakerTransition(StrEnum):
    """What a result did to a breaker."""

    OPENED = "opened"
    STAYED_OPEN = "stayed_open"
    """The probe failed too."""
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """How a breaker changed, and its state now."""

    change: BreakerTransition
    failures: int = 0
    wait_s: float = 0.0
    """Until the next probe."""


class Breakers(Protocol):
    """The breakers of all channel accounts, shared by all processes. Fails open: without the store everything may be sent, and nothing is
    counted.

    No method raises."""

    async def admit(self, channel_name: ChannelName) -> Admission:
        """Ask before every send. While the breaker is open, and while a probe is under way, the answer is to wait."""
        ...

    async def record_success(self, channel_name: ChannelName) -> BreakerChange | None:
        """Note that a message was sent: the breaker closes, and its failures are forgotten. None if the breaker was not open."""
        ...

    async def record_failure(self, channel_name: ChannelName, admission: Admission) -> BreakerChange | None:
        """Note that a send failed in a way that counts. None if the breaker neither opened nor stayed open after its probe."""
        ...

    async def release_probe(self, channel_name: ChannelName, admission: Admission) -> None:
        """Note that a send ended in a way that says nothing about the account, such as a recipient who left. If it was the probe, another
        send may be the probe now."""
        ...

    async def stop(self, channel_name: ChannelName) -> BreakerChange | None:
        """Note that the platform rejects the account's credentials: nothing is sent for a while. None if the state is
        unknown. Returns STAYED_OPEN if the breaker was open already, perhaps for another reason."""
        ...


# --- receipts: what became of messages after they were sent, and which users can still be reached


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


# --- dead letters: messages that could not be delivered, kept for a while, for the operator to requeue or to drop


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """An outbox message that was given up, and why."""

    id: int
    turn_id: UUID
    conversation_id: UUID
    account: str
    platform: Platform
    channel_id: str
    part: int
    news: str
    """The name of its proactive message: `reminder/7KQ2`. Empty for a part of the turn's answer."""
    outcome: SendOutcome | None
    reason: str
    """For the operator, without a word of the message."""
    tries: int
    doubts: int
    """Tries that may have arrived."""
    is_late: bool
    """It was requeued before."""
    promised_at: datetime
    died_at: datetime

    @property
    def facts(self) -> dict[str, Any]:
        """What the turn's journal has of it: names and numbers, no text."""
        facts: dict[str, Any] = {"platform": str(self.platform), "account": self.account, "part": self.part, "tries": self.tries}
        facts |= {"outcome": str(self.outcome), "doubts": self.doubts, "reason": self.reason}
        return {**facts, "news": self.news} if self.news else facts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterQuery:
    """Which dead letters: those that match every field that is set."""

    ids: Sequence[int] | None = None
    platform: Platform | None = None
    account: str | None = None
    outcome: SendOutcome | None = None


ALL_DEAD_LETTERS = DeadLetterQuery()


class DeadLetters(Protocol):
    """Outbox messages that were given up. Fails closed."""

    async def list(self, tx: Transaction, query: DeadLetterQuery = ALL_DEAD_LETTERS, *, limit: int = 100) -> Sequence[DeadLetter]:
        """Return dead letters, the newest first."""
        ...

    async def text(self, tx: Transaction, letter_id: int) -> str:
        """Return the text of a dead letter. Raises NotFound, and UserErased if its user was deleted."""
        ...

    async def requeue(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Put dead letters back into the outbox, in the order in which they were first put there, each with a full set of tries: behind all
        messages of their conversations, and marked as late. Return them as they were; the caller defers the deliveries of their
        conversations. A refund stays. Locks the conversations until the transaction ends."""
        ...

    async def drop(self, tx: Transaction, query: DeadLetterQuery) -> Sequence[DeadLetter]:
        """Delete dead letters, and return them."""
        ...

    async def purge(self, tx: Transaction) -> int:
        """Delete the dead letters that were kept long enough; return how many."""
        ...
