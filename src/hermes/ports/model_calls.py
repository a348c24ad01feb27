"""Every call of a model, whoever made it: what it cost, who answered, how it went. The truth behind all budgets; no message text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.backends import Usage
from hermes.ports.transactions import Transaction


class CallSource(StrEnum):
    """Who wanted the answer."""

    ROUTER = "router"
    COMPLETIONS = "completions"
    BATCH = "batch"
    MEMORY = "memory"
    REPLAY = "replay"
    CANARY = "canary"


class CallOutcome(StrEnum):
    """How a call ended, after all of its attempts."""

    ANSWERED = "answered"
    CUT_SHORT = "cut_short"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One backend that was asked, or passed over."""

    name: str
    """The model's name in the chain."""
    backend: str
    model: str
    """What is there to answer, by its own name."""
    outcome: str
    """`answered`, the name of the error, or `skipped: …`."""
    ms: int
    status: int | None = None
    """What its HTTP said, where it said something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call with all of its attempts, as it is recorded when it has ended."""

    id: UUID
    """That of its hold, where it had one."""
    day: date
    """The UTC day that pays: the hold's day, also for a call that ended after midnight."""
    account_id: str
    source: CallSource
    tier: str
    model: str
    """What was asked for."""
    outcome: CallOutcome
    latency_ms: int
    user_id: UUID | None = None
    """None: nobody's budget, the platform's money."""
    turn_id: UUID | None = None
    session_id: UUID | None = None
    response_id: str | None = None
    """The sample in the session's message graph."""
    backend: str | None = None
    """Who answered; None if nobody did."""
    answered_by: str | None = None
    """The model that answered, as it named itself."""
    attempts: Sequence[CallAttempt] = ()
    usage: Usage = field(default_factory=Usage)
    micro_usd: int = 0
    rate: Mapping[str, Any] = field(default_factory=dict)
    """The prices that were used, so that the sum can be done again."""
    cache_hit: bool = False
    """Out of our own cache: costs nothing and uses no budget; `usage` is that of the answer it copies."""
    first_token_ms: int | None = None

    @property
    def tokens(self) -> int:
        """What it takes from the budget, and what its hold is settled with."""
        return 0 if self.cache_hit else self.usage.tokens_in + self.usage.tokens_out


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Sums over calls."""

    calls: int
    tokens: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The sums of one day, and the calls in them as far as they were asked for."""

    day: date
    spent: CallTotals
    ids: Sequence[UUID]


class ModelCalls(Protocol):
    """The calls, as rows that are only ever added."""

    async def add(self, tx: Transaction, call: ModelCall) -> bool:
        """Record a call; False when its id was recorded before, and then that one stands."""
        ...

    async def spent(self, tx: Transaction, *, since: date, until: date, user_id: UUID | None = None) -> CallTotals:
        """Sum up the days from `since` to before `until`, of one user or of the platform."""
        ...

    async def by_day(self, tx: Transaction, user_id: UUID, *, since: date, until: date, ids_since: date) -> Sequence[DayTotals]:
        """Return a user's days that have calls, oldest first, as of one moment; from `ids_since` on with the ids of their calls."""
        ...

    async def on_day(self, tx: Transaction, day: date, *, recent_s: float) -> DayTotals:
        """Return the platform's day as of one moment, with the ids of the calls that were recorded within the last `recent_s`."""
        ...

    async def alerted(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        """Note that a person is told of a threshold (`2026-11` or `2026-11-15` of a subject); False when that was noted before."""
        ...
