"""The way to a model, for whoever wants an answer: who asks, what comes back, and why there may be none.

    NoAnswer
    ├── ChainFailed      every model of the chain was asked, or passed over
    ├── NoCapacity       no backend of the chain had a free slot for as long as a caller waits
    └── UnknownPrice     a call that nobody can price cannot be budgeted

Beside these BudgetSpent and Paused (`ports.budgets`), CutShort (`ports.backends`) and StoreUnavailable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.backends import BackendError, Completion, ModelRequest
from hermes.ports.model_calls import CallAttempt, CallSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who wants an answer, and who pays."""

    user_id: UUID
    account: str
    tier: str
    source: CallSource
    turn_id: UUID | None = None
    session_id: UUID | None = None
    may_use_cache: bool = True
    """Whether an earlier answer will do. Not where samples must be independent: the door, and batches."""
    models: Sequence[str] | None = None
    """The chain to try in place of the tier's own."""
    agent: str | None = None
    """Who answers: an agent's own adapter is tried before the chain."""
    deadline_s: float | None = None
    """In place of the gateway's own: an agent's long answer may take minutes, a person does not wait for one."""


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """A model has begun to answer, and no other will: its call's id, and what answers, by its own name."""

    call_id: UUID
    model: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, what it cost, and how it came about."""

    call_id: UUID
    completion: Completion
    backend: str
    model: str
    """What was asked for, of those that could answer."""
    micro_usd: int
    rate: Mapping[str, Any]
    attempts: Sequence[CallAttempt]
    latency_ms: int
    copy_of: UUID | None = None
    """The call that sampled it, where it came out of the cache; it cost nothing then."""
    session_id: UUID | None = None
    """The session that has it now, where somebody recorded it."""


class NoAnswer(Exception):
    """No model answered, and none was paid."""


class ChainFailed(NoAnswer):
    """No backend of the chain answered. `last` is why the last one did not."""

    def __init__(self, attempts: Sequence[CallAttempt], last: BackendError | None) -> None:
        tried = ", ".join(f"{attempt.name}: {attempt.outcome}" for attempt in attempts) or "the chain is empty"
        super().__init__(f"no model answered ({tried})" + (f"; last: {last}" if last is not None else ""))
        self.attempts, self.last = tuple(attempts), last


class NoCapacity(NoAnswer):
    """No backend of the chain had a free slot for as long as a caller waits."""


class UnknownPrice(NoAnswer):
    """There is no price for this model on this day."""


class Models(Protocol):
    """Every call of a model passes here: admission, budget, cache, chain, slots, row."""

    async def complete(self, ask: ModelRequest, caller: Caller) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises NoAnswer, BudgetSpent, Paused, and StoreUnavailable when the budget cannot be asked."""
        ...
