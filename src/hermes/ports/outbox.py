"""What goes out: answers in parts, in order, each with its own state; and what Hermes says by itself, later than it was asked to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.inbox import Claim, Said
from hermes.ports.transactions import Transaction
from hermes.turn import Platform


class ParcelState(StrEnum):
    """Where a parcel is on its way."""

    PENDING = "pending"
    ATTEMPTING = "attempting"
    """Being sent. Found in this state after a crash, nobody knows whether it arrived."""
    SENT = "sent"
    AMBIGUOUS = "ambiguous"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Parcel:
    """One part of an answer on its way to one channel."""

    id: int
    turn_id: UUID
    conversation_id: UUID
    seq: int
    part: int
    account: str
    platform: Platform
    channel_id: str
    body: str
    tries: int
    """With this one."""
    is_ambiguous: bool
    """An earlier try was cut off in the middle: it may have arrived."""
    news: str = ""
    """What it is of, where it is no part of the turn's answer: `reminder/7KQ2`. Nobody was charged for it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn said, as far as it has been put into the outbox."""

    turn_id: UUID
    text: str
    meta: dict[str, object]
    """The interaction's provenance: tokens, cost, backend…"""


@dataclass(frozen=True, slots=True)
class News:
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


class Outbox(Protocol):
    """Answers that were promised, and news. Fails closed."""

    async def put(self, tx: Transaction, claim: Claim, parts: Sequence[str], state: ParcelState = ParcelState.PENDING) -> None:
        """Promise an answer, in parts. Part of the turn's last transaction; repeated, it adds nothing.

        For a platform that fetches its answers from us the promise is the delivery: `state` is then SENT."""
        ...

    async def put_news(self, tx: Transaction, said: Said, name: str, text: str, state: ParcelState = ParcelState.PENDING) -> None:
        """Promise something that a message of the past asked for, behind all that is promised in its conversation; the turn's answer stays
        what it is. Repeated with the same name, it adds nothing. Holds the conversation until the transaction ends. `state` as in `put`."""
        ...

    async def take_news(self, tx: Transaction, conversation_id: UUID) -> Sequence[News]:
        """Return the news of a conversation that its history does not have yet, in order; each once, to whoever commits first. Those of
        users who were deleted are dropped."""
        ...

    async def news(
        self, tx: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[News]:
        """Return what was said by ourselves in a channel after the news with the id `after`, in order: for those who fetch their answers
        from us. Those of users who were deleted are left out."""
        ...

    async def take(self, tx: Transaction, conversation_id: UUID) -> Parcel | None:
        """Take the conversation's oldest parcel that is not settled, and mark it as being sent.

        None when there is none, when it is not due yet, or when somebody is sending it right now. A later parcel is never given out
        while an earlier one waits. A try that was cut off long ago is given out again, marked as ambiguous."""
        ...

    async def settle(self, tx: Transaction, parcel: Parcel, state: ParcelState, *, retry_in_s: float | None = None) -> None:
        """Say how sending went: SENT, AMBIGUOUS or DEAD end it; PENDING with a delay puts it back.

        Whoever comes late, after the parcel was given to another, changes nothing."""
        ...

    async def stranded(self, tx: Transaction, older_than_s: float) -> Sequence[UUID]:
        """Conversations with a due parcel that nobody has touched for so long: their sender died between commit and send."""
        ...

    async def answer(self, tx: Transaction, turn_id: UUID) -> Answer | None:
        """What the turn answered; None while it has not."""
        ...

    async def waiting(self, tx: Transaction) -> int:
        """How many parcels are not settled."""
        ...
