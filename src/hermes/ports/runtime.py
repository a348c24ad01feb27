"""What every part of a running Hermes stands on: transactions over several ports, the time, alerts, jobs and chores."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

# --- transactions: all writes happen, or none


class Transaction(Protocol):
    """Writes that happen together. Opaque: the caller passes it to the ports whose writes belong together, and nowhere else."""


class Transactions(Protocol):
    """Opens transactions."""

    def begin(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction that commits when the block ends and rolls back when it raises.

        Fails closed: raises StoreUnavailable if the store cannot be reached. If the connection is lost during the commit itself, it is
        unknown whether the commit happened; so every write behind these ports can be repeated without doing anything twice."""
        ...

    def once(self) -> AbstractAsyncContextManager[Transaction]:
        """For one port call that writes in one statement, or for reads: each statement is committed when it returns. Cheaper than `begin`,
        but not for two writes that belong together."""
        ...


# --- the time, as a port, so that tests can move it


class Clock(Protocol):
    """What time it is."""

    def now(self) -> datetime:
        """The time, with its zone."""
        ...


# --- alerts: facts that the operator should look at now


class Alerts(Protocol):
    """Alerts the operator. Never on the message path: it neither raises nor waits."""

    def alert(self, event: str, **facts: object) -> None:
        """Report a fact in the past tense with its numbers; no message text, no secrets."""
        ...

    def end(self, event: str, **facts: object) -> None:
        """Report that the condition of an earlier alert is over. The facts that tell its alerts apart must be the same."""
        ...


# --- jobs that outlive the process that deferred them


class JobQueue(Protocol):
    """Durable jobs; their arguments are ids only. A job exists exactly if the transaction that deferred it committed.

    Turns of one conversation run one at a time, in the order in which they were deferred; so do its deliveries, and so do the memory jobs
    of one user."""

    async def defer_turn(self, tx: Transaction, turn_id: UUID, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Run the turn later, after all earlier turns of its conversation; later turns wait behind it."""
        ...

    async def defer_delivery(self, tx: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        """Send what is due in the conversation's outbox later. At most one such job waits; a second call changes nothing."""
        ...

    async def defer_proactive(self, tx: Transaction, conversation_id: UUID) -> None:
        """Write the conversation's proactive messages into its history later, between its turns: after the turns that were deferred before,
        and before those that come. At most one such job waits; a second call changes nothing."""
        ...

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        """Learn from the message of a turn later, after all earlier messages of its user. No turn ever waits for it.

        Unlike a turn or a delivery, it is given up after a few tries: it is worth some minutes, and no more."""
        ...


class JobHandlers(Protocol):
    """What a worker does with its jobs. Each method may be called again for the same id at any time; if it raises, it is called again
    later."""

    async def turn(self, turn_id: UUID) -> bool | None:
        """Run a turn to its end. True: the turn's last transaction has ended the job too."""
        ...

    async def delivery(self, conversation_id: UUID) -> None:
        """Send what is due in a conversation."""
        ...

    async def proactive(self, conversation_id: UUID) -> None:
        """Write the proactive messages of a conversation into its history. No turn of the conversation is under way meanwhile."""
        ...

    async def memory(self, turn_id: UUID) -> None:
        """Learn from the message of a turn."""
        ...


# --- chores: work by the clock, done by one of all processes, once in each time slot


@dataclass(frozen=True, slots=True)
class ChoreLease:
    """The right to do a chore, until it is done, or until its process has not renewed the lease in time."""

    chore: str
    slot: int
    epoch: int
    """How often the chore was taken; a lease with a higher epoch ends this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreRecord:
    """What the store knows about a chore."""

    name: str
    epoch: int
    holder: UUID | None
    """The process that took it last; None if a process of an earlier version did."""
    taken_at: datetime | None
    held_until: datetime
    """When the lease ends; if no process does the chore, before when no process takes it again."""
    is_running: bool
    """Whether the holder does the chore now: it took the chore, has not ended it, and its lease lasts."""
    done_at: datetime | None
    failed: str | None
    """Why the last try failed; None after a success."""


class Chores(Protocol):
    """Chores by name. Time is divided into numbered slots, and a chore is done once in each. If no process ran, it is done late, and once
    for all slots that were missed. Leases use the store's clock. Fails closed: while the store is down, no chore begins."""

    async def take(
        self, tx: Transaction, chore: str, slot: int, *, lease_s: float, holder: UUID | None = None, even_if_done: bool = False
    ) -> ChoreLease | None:
        """Take a chore that was not done in this slot or a later one; None if it was done, or if another process is doing it. Does not wait
        for a transaction of the process that is doing it.

        `even_if_done` takes it although it was done in this slot, or pauses after a failure: then it counts as not done until its end, and
        if the process dies, another one does it."""
        ...

    async def keep(self, tx: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        """Renew the lease; False if another process has taken the chore."""
        ...

    async def fence(self, tx: Transaction, lease: ChoreLease) -> None:
        """Check that the lease is still this process's own. Raises LeaseLost; then the caller's transaction must not commit.

        No other process can take the chore until the transaction has ended, so everything that it writes is written under this lease."""
        ...

    async def end(self, tx: Transaction, lease: ChoreLease) -> None:
        """Note that the chore is done in its slot. A call with an old lease changes nothing."""
        ...

    async def give_back(self, tx: Transaction, lease: ChoreLease, *, pause_s: float = 0.0, failed: str | None = None) -> None:
        """Give the chore back undone; after the pause any process may take it again. `failed` says why; None leaves the note of the last
        failure as it is. A call with an old lease changes nothing."""
        ...

    async def ask(self, tx: Transaction, chore: str) -> bool:
        """Let a chore count as not done, and end its pause after a failure, so that a process takes it soon; False, and no change, if a
        process is doing it now, or none ever did: then it is due anyway."""
        ...

    async def all(self, tx: Transaction) -> Sequence[ChoreRecord]:
        """Return every chore that was ever taken, by name."""
        ...


# --- months: the parts in which calls and the journal are stored


class Months(Protocol):
    """The months in which a store keeps the rows that every message adds: calls, and the journal of turns. Each method may raise
    StoreUnavailable because it would have waited too long for a lock; then it did nothing."""

    async def make(self, tx: Transaction, now: datetime) -> Sequence[str]:
        """Make the months from now to two months ahead, and those of rows that came before their month; return their names."""
        ...

    async def drop_calls(self, tx: Transaction, before: date) -> Sequence[str]:
        """Drop the months of calls that ended before this day; return their names."""
        ...

    async def delete_calls(self, tx: Transaction, before: date, *, limit: int) -> int:
        """Delete calls of the days before that are in no month, because an earlier version wrote them; return how many."""
        ...

    async def rewrite_emptied(self, tx: Transaction, before: date) -> str | None:
        """Rewrite one month of the journal that ended before this day and has no content left, so that its file is as small as its rows;
        return its name, or None if there is none. Once for each month."""
        ...

    async def analyze(self, tx: Transaction, now: datetime) -> bool:
        """Once a day, collect the figures by which queries over all months are planned; return whether it was done."""
        ...
