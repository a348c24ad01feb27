"""What a turn leaves behind, in memory: journal, interactions, answers; and the frame of a transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from hermes.ports.inbox import Claim
from hermes.ports.journal import Effect, Progress
from hermes.ports.outbox import ParcelState
from hermes.ports.transactions import Transaction


class MemoryTransactions:
    """The port Transactions: a frame, and nothing behind it."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield self

    once = begin


@dataclass(slots=True)
class MemoryInbox:
    """Of the port Inbox what a turn's end needs."""

    finished: list[UUID] = field(default_factory=list)

    async def hold(self, _: Transaction, __: Claim) -> None:
        """Nobody else is here."""

    async def finish(self, _: Transaction, claim: Claim) -> None:
        self.finished.append(claim.turn_id)


@dataclass(slots=True)
class MemoryJournal:
    """Of the port Journal what a turn needs."""

    requests: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    results: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def begin(self, _: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        place = (claim.turn_id, step, index)
        if place not in self.requests:
            self.requests[place] = request
            return Effect(Progress.NEW, request, None)
        result = self.results.get(place)
        return Effect(Progress.STARTED if result is None else Progress.DONE, self.requests[place], result)

    async def finish(self, _: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        self.notes.append((step, facts))
        return self.results.setdefault((claim.turn_id, step, index), result)

    async def note(self, _: Transaction, __: Claim, type_: str, facts: Mapping[str, Any]) -> None:
        self.notes.append((type_, facts))


@dataclass(slots=True)
class MemoryInteractions:
    """The port Interactions."""

    rows: dict[UUID, Mapping[str, Any]] = field(default_factory=dict)

    async def add(self, _: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        self.rows.setdefault(claim.turn_id, {**meta, "session_id": str(session_id)})


@dataclass(slots=True)
class MemoryOutbox:
    """Of the port Outbox what a promise needs."""

    said: dict[UUID, list[str]] = field(default_factory=dict)

    async def put(self, _: Transaction, claim: Claim, parts: Sequence[str], _state: ParcelState = ParcelState.PENDING) -> None:
        self.said.setdefault(claim.turn_id, [*parts])
