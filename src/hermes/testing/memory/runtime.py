"""What a running Hermes stands on, in memory: transactions, the clock, alerts, meters, the job queue, and the leases of chores."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from hermes.ports.errors import LeaseLost
from hermes.ports.runtime import ChoreLease, ChoreRecord, Transaction


class MemoryTransactions:
    """The port Transactions, without any effect: nothing is rolled back."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield self

    once = begin


class WallClock:
    """The port Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(slots=True)
class MemoryAlerts:
    """The port Alerts: keeps them."""

    alerts: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    ended: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def alert(self, event: str, **facts: object) -> None:
        self.alerts.append((event, facts))

    def end(self, event: str, **facts: object) -> None:
        self.ended.append((event, facts))


@dataclass(slots=True)
class MemoryTurnMeter:
    """The port TurnMeter."""

    steps: list[str] = field(default_factory=list)
    turns: list[tuple[str, str]] = field(default_factory=list)

    def count_step(self, step: str, _: float) -> None:
        self.steps.append(step)

    def count_turn(self, outcome: str, intent: str) -> None:
        self.turns.append((outcome, intent))


@dataclass(slots=True)
class MemoryJobQueue:
    """The port JobQueue without workers: a test takes jobs from `jobs` and runs them itself."""

    jobs: list[tuple[str, UUID]] = field(default_factory=list)

    async def defer_turn(self, _: Transaction, turn_id: UUID, __: UUID, *, in_s: float = 0.0) -> None:  # noqa: ARG002  # the port's
        self.jobs.append(("turn", turn_id))

    async def defer_delivery(self, _: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:  # noqa: ARG002  # the port's
        self._add_once("delivery", conversation_id)

    async def defer_proactive(self, _: Transaction, conversation_id: UUID) -> None:
        self._add_once("news", conversation_id)

    async def defer_memory(self, _: Transaction, turn_id: UUID, __: UUID) -> None:
        self.jobs.append(("memory", turn_id))

    def _add_once(self, task: str, conversation_id: UUID) -> None:
        if (task, conversation_id) not in self.jobs:
            self.jobs.append((task, conversation_id))


@dataclass(slots=True)
class ChoreRow:
    """The lease of one chore."""

    epoch: int = 0
    done_slot: int = -1
    held_until: float = 0.0
    holder: UUID | None = None
    taken_at: float = 0.0
    is_ended: bool = True
    done_at: float | None = None
    failed: str | None = None


@dataclass(slots=True)
class MemoryChores:
    """The port Chores, for several workers in one process. A fence holds no lock: nothing here waits within a transaction."""

    clock: Callable[[], float] = time.monotonic
    rows: dict[str, ChoreRow] = field(default_factory=dict)

    async def take(
        self, _: Transaction, chore: str, slot: int, *, lease_s: float, holder: UUID | None = None, even_if_done: bool = False
    ) -> ChoreLease | None:
        row = self.rows.setdefault(chore, ChoreRow(held_until=self.clock()))
        is_held = row.held_until > self.clock() and not (even_if_done and row.is_ended)
        if (row.done_slot >= slot and not even_if_done) or is_held:
            return None
        row.epoch, row.held_until, row.done_slot = row.epoch + 1, self.clock() + lease_s, min(row.done_slot, slot - 1)
        row.holder, row.taken_at, row.is_ended = holder, self.clock(), False
        return ChoreLease(chore, slot, row.epoch)

    async def keep(self, _: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        if (row := self._held(lease)) is None:
            return False
        row.held_until = self.clock() + lease_s
        return True

    async def fence(self, _: Transaction, lease: ChoreLease) -> None:
        if self._held(lease) is None:
            raise LeaseLost

    async def end(self, _: Transaction, lease: ChoreLease) -> None:
        if (row := self._held(lease)) is not None:
            row.done_slot, row.held_until = lease.slot, self.clock()
            row.is_ended, row.done_at, row.failed = True, self.clock(), None

    async def give_back(self, _: Transaction, lease: ChoreLease, *, pause_s: float = 0.0, failed: str | None = None) -> None:
        if (row := self._held(lease)) is not None:
            row.held_until, row.is_ended, row.failed = self.clock() + pause_s, True, failed or row.failed

    async def ask(self, _: Transaction, chore: str) -> bool:
        row = self.rows.get(chore)
        if row is None or (not row.is_ended and row.held_until > self.clock()):
            return False
        row.done_slot, row.held_until = row.done_slot - 1, self.clock()
        return True

    async def all(self, _: Transaction) -> list[ChoreRecord]:
        return [
            ChoreRecord(
                name=name,
                epoch=row.epoch,
                holder=row.holder,
                taken_at=to_time(row.taken_at),
                held_until=to_time(row.held_until),
                is_running=not row.is_ended and row.held_until > self.clock(),
                done_at=None if row.done_at is None else to_time(row.done_at),
                failed=row.failed,
            )
            for name, row in sorted(self.rows.items())
        ]

    def _held(self, lease: ChoreLease) -> ChoreRow | None:
        row = self.rows.get(lease.chore)
        return row if row is not None and row.epoch == lease.epoch and row.done_slot < lease.slot else None


def to_time(seconds: float) -> datetime:
    """Return a reading of a test's own clock as a time."""
    return datetime.fromtimestamp(seconds, UTC)
