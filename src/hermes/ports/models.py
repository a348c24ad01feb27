"""How the rest of Hermes calls a model: the caller, the answer, and why there may be none.

    NoAnswer
    ├── ChainFailed      every model of the chain was asked, or skipped
    ├── NoCapacity       no backend of the chain had a free slot for as long as a caller waits
    └── UnknownPrice     a call without a known price cannot be budgeted

A call can also raise BudgetSpent and CallsPaused (`ports.budgets`), CutShort (`ports.backends`) and StoreUnavailable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.backends import BackendError, Completion, ModelRequest
from hermes.ports.model_calls import CallAttempt, CallSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Which user a model is called for, and who pays."""

    user_id: UUID
    account: str
    tier: str
    source: CallSource
    turn_id: UUID | None = None
    session_id: UUID | None = None
    may_use_cache: bool = True
    """Whether an earlier answer from the cache will do. False where samples must be independent: completions clients, and batches."""
    models: Sequence[str] | None = None
    """The chain to try in place of the tier's own."""
    agent: str | None = None
    """The agent that answers: its own adapter is tried before the chain."""
    deadline_s: float | None = None
    """In place of the gateway's own deadline: an agent's long answer may take minutes, but a person does not wait for minutes."""


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """A model has begun to answer, and no other will: the call's id, and the answering model by its own name."""

    call_id: UUID
    model: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer, its cost, and how it was made."""

    call_id: UUID
    completion: Completion
    backend: str
    model: str
    """The model of the chain that was requested and answered."""
    micro_usd: int
    rate: Mapping[str, Any]
    attempts: Sequence[CallAttempt]
    latency_ms: int
    copy_of: UUID | None = None
    """The call that sampled it, if it came from the cache; then it cost nothing."""
    session_id: UUID | None = None
    """The session in which it was recorded, if it was."""


class NoAnswer(Exception):
    """No model answered, and none was paid."""


class ChainFailed(NoAnswer):
    """No backend of the chain answered. `last` is the error of the last one."""

    def __init__(self, attempts: Sequence[CallAttempt], last: BackendError | None) -> None:
        tried = ", ".join(f"{attempt.name}: {attempt.outcome}" for attempt in attempts) or "the chain is empty"
        super().__init__(f"no model answered ({tried})" + (f"; last: {last}" if last is not None else ""))
        self.attempts, self.last = tuple(attempts), last


class NoCapacity(NoAnswer):
    """No backend of the chain had a free slot for as long as a caller waits."""


class UnknownPrice(NoAnswer):
    """There is no price for this model on this day."""


class Models(Protocol):
    """Every model call goes through this port: admission, budget, cache, chain, slots, row."""

    async def complete(self, request: ModelRequest, caller: Caller) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises NoAnswer, BudgetSpent, CallsPaused, and StoreUnavailable if the budget cannot be read."""
        ...
