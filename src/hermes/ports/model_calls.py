"""A row for every model call of every source: its cost, the model that answered, how it ended. All budgets are counted from these rows.
They have no message text."""

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
    """Which part of Hermes asked for the answer."""

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
    """One backend that was asked, or skipped."""

    name: str
    """The model's name in the chain."""
    backend: str
    model: str
    """The model that answers there, by its own name."""
    outcome: str
    """`answered`, the name of the error, or `skipped: …`."""
    ms: int
    status: int | None = None
    """The HTTP status, if there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One call with all of its attempts, as it is recorded when it has ended."""

    id: UUID
    """The id of its budget hold, if it had one."""
    day: date
    """The UTC day that pays: the hold's day, also for a call that ended after midnight."""
    account_id: str
    source: CallSource
    tier: str
    model: str
    """The model that was requested."""
    outcome: CallOutcome
    latency_ms: int
    user_id: UUID | None = None
    """None: the call counts for no user's budget, only for the global one."""
    turn_id: UUID | None = None
    session_id: UUID | None = None
    response_id: str | None = None
    """The sample in the session's message graph."""
    backend: str | None = None
    """The backend that answered; None if none did."""
    answered_by: str | None = None
    """The model that answered, as it named itself."""
    attempts: Sequence[CallAttempt] = ()
    usage: Usage = field(default_factory=Usage)
    micro_usd: int = 0
    rate: Mapping[str, Any] = field(default_factory=dict)
    """The prices that were used, so that the cost can be computed again."""
    cache_hit: bool = False
    """The answer came from the answer cache: it costs nothing and uses no budget; `usage` is that of the answer it copies."""
    first_token_ms: int | None = None

    @property
    def tokens(self) -> int:
        """The tokens that it takes from the budget, and with which its hold is settled."""
        return 0 if self.cache_hit else self.usage.tokens_in + self.usage.tokens_out


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Sums over calls."""

    calls: int
    tokens: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The sums of one day, and the ids of those of its calls that the caller asked for."""

    day: date
    totals: CallTotals
    ids: Sequence[UUID]


class ModelCalls(Protocol):
    """The rows of model calls. They are only added, never changed."""

    async def add(self, tx: Transaction, call: ModelCall) -> bool:
        """Record a call; False if its id was recorded before: then the first row stands."""
        ...

    async def totals(self, tx: Transaction, *, since: date, until: date, user_id: UUID | None = None) -> CallTotals:
        """Sum up the days from `since` to before `until`, of one user or of all."""
        ...

    async def by_day(self, tx: Transaction, user_id: UUID, *, since: date, until: date, ids_since: date) -> Sequence[DayTotals]:
        """Return a user's days that have calls, oldest first, as of one moment; from `ids_since` on with the ids of their calls."""
        ...

    async def on_day(self, tx: Transaction, day: date, *, recent_s: float) -> DayTotals:
        """Return the totals of all users on a day as of one moment, with the ids of the calls recorded within the last `recent_s`."""
        ...

    async def note_alert(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        """Note that the operator is alerted of a threshold (`2026-11` or `2026-11-15` of a subject); False if that was noted before."""
        ...
