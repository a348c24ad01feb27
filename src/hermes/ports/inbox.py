"""Messages that came in, until they are answered; and the signal that an answer is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction
from hermes.ports.users import User
from hermes.turn import Envelope, Platform

# --- the inbox: each message is accepted once, worked on in order, and never lost


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that is in the inbox now."""

    turn_id: UUID
    conversation_id: UUID
    seq: int
    """Its place in the conversation; order means this number."""
    is_new: bool
    """False: the same event key was accepted before, and these are the values of that message."""


class ClaimedTurn(Protocol):
    """What a Claim and an UnreadableMessage share: which attempt at which turn it is."""

    @property
    def turn_id(self) -> UUID: ...

    @property
    def conversation_id(self) -> UUID: ...

    @property
    def epoch(self) -> int: ...

    @property
    def attempt(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on a turn, until another worker claims a turn of the same conversation."""

    turn_id: UUID
    conversation_id: UUID
    user_id: UUID
    seq: int
    epoch: int
    """The conversation's epoch when this claim was made; a newer epoch ends this claim."""
    attempt: int
    """1 for the first. Raised before the attempt, so that a message which kills its worker is counted."""
    envelope: Envelope
    age_s: float
    """How long the message has waited."""
    recent: int = 1
    """How many messages the same user sent there within the minute before, this one included; counted up to a hundred."""
    traceparent: str | None = None
    """The trace that its accept began (`ports.traces`); None if it was not traced."""


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """A message that was claimed and cannot be opened. The attempt counts."""

    turn_id: UUID
    conversation_id: UUID
    epoch: int
    attempt: int
    age_s: float
    reason: str
    is_erased: bool
    """Its sender was deleted: it can never be read again."""
    is_damaged: bool
    """The bytes are not those that were sealed. If neither is true, a key is missing, and may come back."""


@dataclass(frozen=True, slots=True)
class InboxMessage:
    """A message as it came in, for steps that read it outside of its turn."""

    turn_id: UUID
    conversation_id: UUID
    user_id: UUID
    envelope: Envelope
    received_at: datetime
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class TurnOrigin:
    """Where a turn belongs, without its text: enough to decide which client may see its answer."""

    account: str
    platform: Platform
    channel_id: str
    has_ended: bool
    """The turn will add nothing more to the outbox."""
    is_sender_erased: bool = False
    is_started: bool = False
    """A worker has claimed the turn at least once."""
    is_stopped: bool = False
    """Its client withdrew it: there will be no answer."""


class Inbox(Protocol):
    """Accepted messages. Fails closed: a message that is not stored is not acknowledged."""

    async def accept(
        self, tx: Transaction, envelope: Envelope, user: User, turn_id: UUID, *, traceparent: str | None = None
    ) -> AcceptedMessage:
        """Store a message under its account and event key, with the conversation's next number; the caller defers its turn in the same tx.

        A duplicate stores nothing and returns the values of the first message. Raises InboxFull over the account's cap.

        A conversation is shared from the first message whose envelope says so; at the API, also as soon as a second user writes in it. It
        never becomes private again, and the `is_shared` of every envelope read back is that of the conversation at that time."""
        ...

    async def claim(self, tx: Transaction, turn_id: UUID, *, worker: UUID | None = None) -> Claim | UnreadableMessage | None:
        """Begin an attempt: count it, raise the conversation's epoch, and return the message. None if the turn has ended already.

        `worker` is the process that will drive the turn. If the attempt before left no trace, the journal gets `attempt_cut_off` for it,
        with its worker and the effect at which it was cut off.

        Call it in a transaction of its own: a later failure must not take the count back."""
        ...

    async def waiting_behind(self, tx: Transaction, claim: Claim, limit: int) -> Sequence[InboxMessage]:
        """Return the messages that wait behind a claimed one in its conversation, in order, without those that cannot be opened."""
        ...

    async def join(self, tx: Transaction, claim: Claim, others: Sequence[InboxMessage]) -> Claim:
        """Join waiting messages to a claimed one: they have no turn of their own any more, and every later claim of this turn has all of
        them. Returns the claim with their texts added. Raises ClaimLost."""
        ...

    async def uncount_attempt(self, tx: Transaction, claim: Claim) -> None:
        """Take the count of this attempt back, if the claim still stands: the attempt failed because a store was down."""
        ...

    async def hold(self, tx: Transaction, claim: Claim) -> None:
        """Check that the claim still stands, and lock it until the transaction ends; raise ClaimLost otherwise."""
        ...

    async def finish(self, tx: Transaction, claim: Claim) -> None:
        """Note that the turn has ended well. Part of the turn's last transaction."""
        ...

    async def bury(self, tx: Transaction, claim: Claim, reason: str) -> None:
        """Give up on the message: it is kept as an inbound dead letter with the reason."""
        ...

    async def bury_unread(self, tx: Transaction, turn_id: UUID, reason: str) -> None:
        """Give up on a message that cannot be read any more, because its sender's key is gone."""
        ...

    async def stop(self, tx: Transaction, turn_id: UUID) -> bool:
        """End a turn without an answer, because its client withdrew it; False, and no change, if it has ended already.

        A worker that drives the turn loses its claim: it begins no further effect and cannot end the turn. Other turns of the conversation
        go on. Locks the conversation until the transaction ends."""
        ...

    async def origin(self, tx: Transaction, turn_id: UUID) -> TurnOrigin | None:
        """Return where a turn belongs; None for an unknown turn."""
        ...

    async def message_of(self, tx: Transaction, turn_id: UUID) -> InboxMessage | None:
        """Return the message of a turn, whatever became of it; None for an unknown turn, and for a message that cannot be read any more:
        its sender was deleted, or it is damaged."""
        ...

    async def last_private(self, tx: Transaction, user_id: UUID, account: str) -> InboxMessage | None:
        """Return the last message that a user sent to an account in a conversation that is not shared; None if there is none that can be
        opened."""
        ...

    async def newest(self, tx: Transaction, account: str, platform: Platform) -> InboxMessage | None:
        """Return the last message that was sent to an account, for the operator who adds it; None if there is none that can be opened."""
        ...

    async def waiting(self, tx: Transaction) -> int:
        """How many messages wait for their turn, over all accounts."""
        ...


# --- signals that wake the process that waits for a turn's answer: they only save time, the answer itself is in the outbox


class AnswerSignal:
    """The signals of one turn, for one listener. Several signals between two waits count as one."""

    def __init__(self) -> None:
        self._signalled = asyncio.Event()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next signal; False if none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._signalled.wait()
        except TimeoutError:
            return False
        self._signalled.clear()
        return True

    def fire(self) -> None:
        """Wake the waiting task."""
        self._signalled.set()


class AnswerSignals(Protocol):
    """Signals between processes. Fails open: without them, the waiting process looks into the outbox now and then."""

    async def announce(self, turn_id: UUID) -> None:
        """Signal that the turn's answer is in the outbox. Never raises."""
        ...

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[AnswerSignal]:
        """Receive the signals of a turn from now on. Never raises; while the store is down, no signal comes."""
        ...
