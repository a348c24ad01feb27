"""What waits in Hermes, for the operator: messages, answers on their way, messages that were given up, jobs. Names and numbers, no content.

Every list is a page in one order with a place to go on from, and every count ends at `MAX_COUNTED`: no query reads a whole table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction

MAX_COUNTED = 1_000
"""A longer queue counts as this many: shown as "1,000+"."""
MAX_JOBS = 10_000
PAGE_ROWS = 50


class WaitReason(StrEnum):
    """Why a message has no answer yet."""

    RUNNING = "running"
    """A worker is at it."""
    BEHIND = "behind"
    """An earlier turn of its conversation has not ended."""
    RETRY = "retry"
    """An attempt failed; the next one is due at a time."""
    WORKER = "worker"
    """No worker has begun it: all are busy, or none runs."""
    LOST = "lost"
    """It has no job. A worker's sweep gives it one within a minute or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingMessage:
    """A message whose turn has not ended."""

    turn_id: UUID
    account: str
    platform: str
    channel_id: str
    conversation_id: UUID
    user_id: UUID
    since: datetime
    """When it came in, or when an operator revived it."""
    attempts: int
    reason: WaitReason
    worker: UUID | None = None
    """The process that runs it."""
    claimed_at: datetime | None = None
    behind: UUID | None = None
    """The turn that it waits for."""
    retry_at: datetime | None = None
    is_revived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BuriedMessage:
    """A message that was given up."""

    turn_id: UUID
    account: str
    platform: str
    channel_id: str
    conversation_id: UUID
    user_id: UUID
    received_at: datetime
    ended_at: datetime
    attempts: int
    reason: str
    """In words of Hermes: how often and how long it was tried."""
    is_erased: bool
    """Its sender was deleted: it cannot be revived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxEntry:
    """A message on its way to a platform."""

    id: int
    turn_id: UUID
    account: str
    platform: str
    channel_id: str
    conversation_id: UUID
    user_id: UUID
    state: str
    """`pending` or `attempting`."""
    part: int
    news: str
    """The name of a proactive message; empty for an answer."""
    tries: int
    outcome: str | None
    """How the last try ended."""
    put_at: datetime
    next_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadEntry:
    """A message that could not be delivered."""

    id: int
    turn_id: UUID
    account: str
    platform: str
    channel_id: str
    conversation_id: UUID
    user_id: UUID
    part: int
    news: str
    tries: int
    doubts: int
    outcome: str | None
    reason: str
    """In the platform's words; not for viewers."""
    put_at: datetime
    died_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCount:
    """Jobs of one queue in one state."""

    queue: str
    status: str
    """`todo`, `doing` or `failed`."""
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCount:
    """How long a queue is, up to MAX_COUNTED."""

    queue: str
    entries: int
    at: datetime | None
    """Of what waits, since when the oldest entry is there; of what was given up, when the newest entry came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenTurn:
    """A turn that a process drives now."""

    turn_id: UUID
    worker: UUID
    account: str
    attempt: int
    claimed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOwner:
    """To which account and user a turn belongs."""

    account: str
    user_id: UUID
    state: str


Accounts = Sequence[str] | None
"""The accounts that the reader sees; None: all."""


class QueueReader(Protocol):
    """Reads what waits. Fails closed."""

    async def counts(self, tx: Transaction, accounts: Accounts) -> Sequence[QueueCount]:
        """Return the length of every queue: waiting, buried, outbox, retrying, dead, proactive."""
        ...

    async def waiting(
        self, tx: Transaction, accounts: Accounts, *, after: tuple[datetime, UUID] | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[WaitingMessage]:
        """Return the messages that wait, the oldest first, each with the reason."""
        ...

    async def buried(
        self,
        tx: Transaction,
        accounts: Accounts,
        *,
        before: tuple[datetime, UUID] | None = None,
        since: datetime | None = None,
        limit: int = PAGE_ROWS,
    ) -> Sequence[BuriedMessage]:
        """Return the messages that were given up, the newest first."""
        ...

    async def outbox(
        self, tx: Transaction, accounts: Accounts, *, after: int | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[OutboxEntry]:
        """Return what is on its way to a platform, the oldest first."""
        ...

    async def dead(
        self, tx: Transaction, accounts: Accounts, *, before: tuple[datetime, int] | None = None, limit: int = PAGE_ROWS
    ) -> Sequence[DeadEntry]:
        """Return the dead letters, the newest first."""
        ...

    async def jobs(self, tx: Transaction) -> Sequence[JobCount]:
        """Return the jobs by queue and state, of the first MAX_JOBS. An ended job is gone, so there are about as many as there is work."""
        ...

    async def running(self, tx: Transaction) -> Sequence[DrivenTurn]:
        """Return the turns that processes drive now, those of dead processes included, the oldest first; MAX_COUNTED at most."""
        ...

    async def owner(self, tx: Transaction, turn_id: UUID) -> MessageOwner | None:
        """Return to which account and user a turn belongs; None for an unknown one."""
        ...


class JobGiver(Protocol):
    """Takes jobs from a process that does not do them. Fails closed."""

    async def give_away(self, tx: Transaction, process_id: UUID) -> int:
        """Free the turns that a process drives, so that other workers take them at once; return how many.

        Safe also if the process lives after all: the next claim of a turn fences it, so it can neither end the turn nor begin an effect."""
        ...
