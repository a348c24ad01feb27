"""Messages that came in, until they are answered; and the signal that an answer is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction, Transactions
from hermes.turn import Envelope, Platform

if TYPE_CHECKING:
    from hermes.ports.credits import ReserveOutcome
    from hermes.ports.session import Session
    from hermes.ports.users import User

# --- the inbox: each message is accepted once, worked on in order, and never lost


@dataclass(frozen=True, slots=True)
class AcceptedMessage:
    """A message that is in the inbox now."""

    turn_id: UUID
    conversation_id: UUID
    user_id: UUID
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
class TurnStart:
    """What the first steps of a turn need, as of its claim."""

    user: User
    """The sender."""
    session: Session | None
    """The session that the message belongs to; None: a new one must begin."""
    credit: ReserveOutcome | None
    """Whether a credit is reserved; None: that was not tried, because step resolve_user refuses this sender."""


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
    """How long the message has waited; if an operator revived it, since then."""
    recent: int = 1
    """How many messages the same user sent there within the minute before, this one included; counted up to a hundred."""
    traceparent: str | None = None
    """The trace that its accept began (`ports.traces`); None if it was not traced."""
    revived_after: int = 0
    """How many attempts there were before an operator revived the message; 0: it was never given up."""
    start: TurnStart | None = None
    """What the claim has read and reserved for the first steps; None: they ask the stores themselves."""

    @property
    def tries(self) -> int:
        """Which attempt this is since the message came, or since an operator revived it."""
        return self.attempt - self.revived_after


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


MAX_CHANNEL_NAMES = 4


def channel_names(name: str, *, is_own: bool) -> list[str]:
    """The ids under which a conversation of the API may be stored, in the order in which they are tried. Users and channels have names that
    a client chooses, so a user's own conversation and a channel can have the same name; the later of the two gets the next id."""
    prefix = OWN_PREFIX if is_own else CHANNEL_PREFIX
    return [prefix * times + name for times in range(MAX_CHANNEL_NAMES)]


def client_names(channel_id: str) -> set[str]:
    """What a client may have called a conversation that has this id."""
    names = {channel_id}
    for prefix in (OWN_PREFIX, CHANNEL_PREFIX):
        rest = channel_id
        while rest.startswith(prefix):
            rest = rest.removeprefix(prefix)
            names.add(rest)
    return names


OWN_PREFIX, CHANNEL_PREFIX = "user:", "channel:"


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
    user_names: tuple[str, ...] = ()
    """The names of its sender in this account, on this platform; none for a sender who was erased."""
    is_person: bool = False
    """Its sender also writes where people write: from a messenger, or on the chat page."""


class Revival(StrEnum):
    """What became of the wish to revive a message."""

    REVIVED = "revived"
    NOT_BURIED = "not_buried"
    """It waits, was answered, was stopped by its client, or was revived before."""
    UNREADABLE = "unreadable"
    """Its sender was deleted, its key is missing, or its row is damaged."""
    EMPTIED = "emptied"
    """A model or a tool ran for it, and the journal's retention has emptied what they said: another run would pay or act twice."""


class Inbox(Protocol):
    """Accepted messages. Fails closed: a message that is not stored is not acknowledged."""

    async def accept(
        self,
        tx: Transaction,
        envelope: Envelope,
        turn_id: UUID,
        *,
        defer_in_s: float | None = None,
        alias: str | None = None,
        refuses_people: bool = False,
        traceparent: str | None = None,
    ) -> AcceptedMessage | None:
        """Store a message under its account and event key, with the conversation's next number; note when its sender wrote, and add `alias`
        to the sender's ids. With `defer_in_s` its turn is deferred too, and begins after that time. None, and nothing is written, if the
        sender is no user yet.

        All or nothing also without a transaction (`Transactions.once`). A duplicate writes nothing and returns the values of the first
        message. Raises InboxFull over the account's cap. With `refuses_people` it raises KeyForbids if the sender also writes where people
        write.

        A conversation is shared from the first message whose envelope says so; at the API, also as soon as a second user writes in it. It
        never becomes private again, and the `is_shared` of every envelope read back is that of the conversation at that time.

        A private conversation of the API belongs to its user: a message of another user to a channel of that name goes to a channel of its
        own, and a message to the user's own conversation (`is_own`) never goes where another user has written. Then the envelope read back
        has another `channel_id`, one of `channel_names`."""
        ...

    async def accept_now(
        self,
        transactions: Transactions,
        envelope: Envelope,
        turn_id: UUID,
        *,
        defer_in_s: float | None = None,
        alias: str | None = None,
        refuses_people: bool = False,
        traceparent: str | None = None,
    ) -> AcceptedMessage | None:
        """As `accept`, and committed when it returns. A store may accept messages that come at the same time in one transaction; then each
        caller gets its own result or its own error, as if it had been alone."""
        ...

    async def find_channel(self, tx: Transaction, account: str, platform: Platform, user: str, channel: str | None) -> str | None:
        """Return the id of the conversation that a user means by a channel's name, without a name by their own; None if there is none."""
        ...

    async def claim(
        self, tx: Transaction, turn_id: UUID, *, worker: UUID | None = None, per_minute: int | None = None
    ) -> Claim | UnreadableMessage | None:
        """Begin an attempt: count it, raise the conversation's epoch, and return the message. None if the turn has ended already.

        `worker` is the process that will drive the turn. If the attempt before left no trace, the journal gets `attempt_cut_off` for it,
        with its worker and the effect at which it was cut off.

        With `per_minute`, the limit of step resolve_user, a store that can do so in the same statement also does what the first steps do:
        it finds the user and their session, and reserves a credit. The claim has the results as `start`.

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

    async def revive(self, tx: Transaction, turn_id: UUID) -> Revival:
        """Let a message that was given up wait again, with all its tries; the caller defers its turn in the same tx, and withdraws the
        apology from the outbox and the log of turns. Of two concurrent calls, one revives.

        It keeps its number and the results that were paid for, and asks a model with its conversation as it is then. Locks the conversation
        until the transaction ends. NOT_BURIED for an unknown turn."""
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

    @property
    def is_heard(self) -> bool:
        """Whether signals arrive in this process at present, as far as it knows."""
        ...

    async def announce(self, turn_id: UUID) -> None:
        """Signal that the turn's answer is in the outbox. Never raises."""
        ...

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[AnswerSignal]:
        """Receive the signals of a turn from now on; one that came shortly before fires at once. Never raises; while the store is down, no
        signal comes."""
        ...
