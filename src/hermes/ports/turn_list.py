"""Turns as a list, newest first: those that have ended, those that wait or run, and model calls that belong to no turn.

Holds ids, names and numbers, never what a user or a model wrote. A page never needs a count of a table: it is read by a cursor, and a
filter that no index serves looks through a bounded number of rows and says where it stopped."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Protocol, Self
from uuid import UUID

from hermes.ports.runtime import Transaction

CURSOR = re.compile(r"(\d{1,17})\.([0-9a-f]{32})")
MAX_ID = UUID(int=2**128 - 1)
SLOW_S = 10.0
"""A turn counts as slow if its answer was written later than this after its message arrived."""
FAILED_OUTCOMES = ("retry_later", "busy", "apologised", "buried")
"""Outcomes that are faults of Hermes or its models. Other turns without an answer, such as one without credit, ended as they should."""

ANY_PURPOSE = "any"
"""In a filter: calls of all purposes."""


class TurnStatus(StrEnum):
    """Which turns a list shows."""

    ALL = "all"
    FAILED = "failed"
    """No model answered, or the message was given up."""
    UNANSWERED = "unanswered"
    """Every end but an answer: failed, out of credit, not signed up …"""
    FELL_OVER = "fell_over"
    """A model was asked after another one had failed."""
    RETRIED = "retried"
    """It took more than one attempt."""
    TOOL_ERROR = "tool_error"
    UNDELIVERED = "undelivered"
    """The answer is not sent yet, or was given up."""
    SLOW = "slow"
    WAITING = "waiting"
    """It has not ended: it waits, or a worker is at it."""
    COMPLETIONS = "completions"
    """A call of the completions API, which makes no turn."""


class ListedKind(StrEnum):
    """What a row of the list is."""

    TURN = "turn"
    CALL = "call"
    """A model call that belongs to no turn: of the completions API, a batch, a dream."""


@dataclass(frozen=True, slots=True, order=True)
class TurnListCursor:
    """A place in the list: the rows after it are older."""

    at: datetime
    id: UUID

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor as `str` writes it. Raises ValueError for a text that is none."""
        found = CURSOR.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:60]!r} is not a cursor; pass `next` of the page before")
        return cls(datetime.fromtimestamp(0, UTC) + timedelta(microseconds=int(found[1])), UUID(found[2]))

    def __str__(self) -> str:
        return f"{(self.at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)}.{self.id.hex}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """Which rows: those that match every field that is set."""

    status: TurnStatus = TurnStatus.ALL
    agent: str | None = None
    model: str | None = None
    """The model that answered one of its calls, or was asked for if none answered."""
    key: UUID | None = None
    user: UUID | None = None
    platform: str | None = None
    tier: str | None = None
    tool: str | None = None
    purpose: str | None = None
    """What one of its calls was for. Also shows calls of this purpose that belong to no turn; ANY_PURPOSE: all of those, and all turns.
    None: of calls without a turn only those of the completions API."""
    account: str | None = None
    since: datetime
    until: datetime | None = None
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees; None: all."""

    @property
    def only_purpose(self) -> str | None:
        """The single purpose that is wanted; None: any."""
        return None if self.purpose == ANY_PURPOSE else self.purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTurn:
    """A turn that has ended, or a call without a turn."""

    kind: ListedKind
    id: UUID
    at: datetime
    """When it ended."""
    account: str
    user_id: UUID | None
    sender: str | None = None
    """The user's identifier at the platform: mask it for viewers."""
    platform: str | None = None
    conversation_id: UUID | None = None
    session_id: UUID | None = None
    agent: str | None = None
    tier: str | None = None
    model: str | None = None
    outcome: str
    error: str | None = None
    step: str | None = None
    """The step at which it fell back."""
    attempts: int = 1
    tools: Sequence[Mapping[str, object]] = ()
    """Each tool run: name, is_error, ms."""
    purpose: str | None = None
    """Of a call."""
    api_key_id: UUID | None = None
    ms: int | None = None
    """From the arrival of the message to the record of its answer; of a call, its latency."""
    micro_usd: int = 0
    tokens: int = 0
    calls: int = 0
    fell_over: bool = False
    delivery: str | None = None
    """The states of its outbox messages, each once."""
    steps: Mapping[str, int] = field(default_factory=dict)
    """Microseconds of each step of the last attempt that reached it."""

    @property
    def cursor(self) -> TurnListCursor:
        return TurnListCursor(self.at, self.id)

    @property
    def tool_errors(self) -> int:
        return sum(bool(tool.get("is_error")) for tool in self.tools)


@dataclass(frozen=True, slots=True)
class TurnScan:
    """The rows that a reader found, newest first."""

    rows: Sequence[ListedTurn]
    cut: TurnListCursor | None = None
    """Where the reader stopped to look, although there are older rows that may match; None: it saw all that it had to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A turn that has not ended."""

    turn_id: UUID
    received_at: datetime
    age_s: float
    """Since it was received, or since an operator revived it."""
    account: str
    user_id: UUID
    sender: str | None
    platform: str
    conversation_id: UUID
    attempts: int
    is_running: bool
    """A worker has claimed it, its attempt has not ended, and the worker gives beats."""
    worker: UUID | None
    running_s: float | None
    """Since its newest claim."""
    step: str | None
    """The step that a running attempt has reached for certain: a step is known by its effects. None: one of those before the model."""


class TurnList(Protocol):
    """Reads the list. Fails with StoreUnavailable."""

    async def turns(self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, limit: int, max_scanned: int) -> TurnScan:
        """Return turns that have ended before the cursor, without their steps. Looks through at most `max_scanned` turns."""
        ...

    async def buried(self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, limit: int) -> TurnScan:
        """Return messages that were given up without a turn's record, because they could not be opened. `wanted` has no field set that
        such a message cannot match."""
        ...

    async def calls(
        self, tx: Transaction, wanted: TurnFilter, before: TurnListCursor, *, purpose: str | None, limit: int, max_scanned: int
    ) -> TurnScan:
        """Return calls of a purpose, None for all, that belong to no turn. Looks through at most `max_scanned` calls."""
        ...

    async def find(self, tx: Transaction, wanted: TurnFilter, turn_ids: Sequence[UUID]) -> Sequence[ListedTurn]:
        """Return those of these turns that have ended and match, newest first, without their steps."""
        ...

    async def open(self, tx: Transaction, wanted: TurnFilter, *, limit: int) -> Sequence[OpenTurn]:
        """Return turns that have not ended, the oldest first. Of `wanted`, user, platform, account and accounts count."""
        ...

    async def steps(self, tx: Transaction, turn_ids: Sequence[UUID]) -> Mapping[UUID, Mapping[str, int]]:
        """Return how long each step of each turn took, in microseconds, as of the last attempt that reached it."""
        ...
