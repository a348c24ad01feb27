"""Models as the rest of Hermes sees them: the call and its answer, the cache of answers, the record of each call, and the meters.

    NoAnswer
    ├── ChainFailed      every model of the chain was asked, or skipped
    ├── NoCapacity       no backend of the chain had a free slot for as long as a caller waits
    └── UnknownPrice     a call without a known price cannot be budgeted

A call can also raise BudgetSpent and CallsPaused (`ports.credits`), CutShort (`ports.backends`) and StoreUnavailable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from hermes.ports.backends import BackendError, Completion, ModelRequest, Usage
from hermes.ports.runtime import Transaction
from hermes.turn import Platform

# --- a call: the caller, the answer, and why there may be none


class CallSource(StrEnum):
    """Which part of Hermes asked for the answer."""

    ROUTER = "router"
    COMPLETIONS = "completions"
    BATCH = "batch"
    MEMORY = "memory"
    REPLAY = "replay"
    CANARY = "canary"


class CallPurpose(StrEnum):
    """What the answer is for."""

    ANSWER = "answer"
    """The first call of a turn."""
    CONCLUDE = "conclude"
    """The call after the tools of a turn have run."""
    COMPACT = "compact"
    """The summary of a history that has grown too long for the model."""
    REMEMBER = "remember"
    """What a message says about its writer."""
    DREAM = "dream"
    COMPLETIONS = "completions"
    EMBEDDINGS = "embeddings"
    """The vectors of a client's texts."""
    BATCH = "batch"
    CANARY = "canary"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Which user a model is called for, and who pays."""

    user_id: UUID
    account: str
    tier: str
    source: CallSource
    purpose: CallPurpose | None = None
    """None: the source alone says what the call is for."""
    platform: Platform | None = None
    """Where the user wrote; None for calls that no message caused."""
    api_key_id: UUID | None = None
    """The API key of the program that caused the call."""
    turn_id: UUID | None = None
    """The turn that caused the call, also if the turn has ended: what is learned from a message is part of the turn's cost."""
    session_id: UUID | None = None
    may_use_cache: bool = True
    """Whether an earlier answer from the cache will do. False where samples must be independent: completions clients, and batches."""
    models: Sequence[str] | None = None
    """The chain to try in place of the tier's own."""
    plan: int | None = None
    """The model plan that chose `models`."""
    chat: str = ""
    """What tells chats apart, for a plan that is on trial; empty: the session, or else the user."""
    agent: str | None = None
    """The agent that the call is made for. The call counts in the agent's spend, and its cap applies."""
    uses_adapter: bool = True
    """Whether the agent's own adapter is tried before the chain."""
    deadline_s: float | None = None
    """In place of the gateway's own deadline: an agent's long answer may take minutes, but a person does not wait for minutes."""
    traceparent: str | None = None
    """The parent of the call's spans (`ports.traces`); None: the span that is current."""


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
    without_tools: bool = False
    """The model takes no tools: it was asked without them, and without the tool calls of the history."""
    saved_micro_usd: int = 0
    """What the copy would have cost as a sample, at today's price."""


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


# --- breakers: models whose last calls failed


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """A model at a backend, by its own name: what a breaker is for."""

    backend: str
    model: str


WHOLE_BACKEND = ""
"""In place of a model's name: the breaker of all models of a backend. A wrong key opens it."""


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A failed call, as a breaker counts it."""

    error: str
    """The name of the error."""
    opens_at_once: bool = False
    """The next calls would fail too. Otherwise it takes several failures in a row."""
    retry_after_s: float | None = None
    """How long the vendor wants not to be asked, if it says so."""


@dataclass(frozen=True, slots=True)
class ModelCondition:
    """A model whose last call failed."""

    error: str
    """The name of the last error."""
    wait_s: float | None
    """None: it may be asked. Otherwise its breaker is open for so long; at 0 one call may find out whether it answers again."""
    is_stated: bool = False
    """The vendor itself said how long."""


class ModelBreakers(Protocol):
    """The breakers of all models, shared by all processes. Fails open: without the store every model may be asked, and nothing is counted.

    No method raises."""

    async def find_unwell(self, models: Sequence[ModelAddress]) -> Mapping[ModelAddress, ModelCondition]:
        """Return those of the models whose last call failed. Asked once for each call, for its whole chain."""
        ...

    async def claim_probe(self, model: ModelAddress) -> bool:
        """Whether this call is the one that finds out whether a model answers again. Ask it when `wait_s` is 0."""
        ...

    async def record_success(self, model: ModelAddress) -> bool:
        """Note that an unwell model answered: its breaker closes, and its failures are forgotten. Return whether the breaker was open."""
        ...

    async def record_failure(self, model: ModelAddress, failure: ModelFailure) -> ModelCondition | None:
        """Note that a call failed. None unless the breaker opened, or stayed open after its probe."""
        ...


# --- plans: chains that stand in place of those of the settings


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """A plan of the models. Rows are only added; the newest one holds."""

    version: int
    chains: Mapping[str, tuple[str, ...]]
    """By tier, the names of its models in their order. A tier that is left out has the chain of the settings."""
    percent: int
    """The share of the chats that use it; below 100 it is on trial."""
    base: int | None
    """The plan before it, which the other chats use; None: the settings."""
    base_chains: Mapping[str, tuple[str, ...]]
    by: str
    reason: str
    at: datetime


class ModelPlans(Protocol):
    """The stored plans."""

    async def newest(self, tx: Transaction, *, limit: int = 1) -> Sequence[ModelPlan]:
        """Return the newest plans, the newest first."""
        ...

    async def add(self, tx: Transaction, plan: ModelPlan) -> bool:
        """Store a plan; False if there is one of this version already: another operator came first."""
        ...


# --- the cache of answers


@dataclass(frozen=True, slots=True)
class CachedValue:
    """What the cache says of one key."""

    value: bytes | None
    is_claimed: bool = False
    """The caller makes the value: until its `put` or `release`, others who look are told neither a value nor a claim."""


class AnswerCache(Protocol):
    """Values by user and key, sealed, for a limited time. Fails open: a value that cannot be read counts as missing, a value that cannot be
    written is left out, and without the store every caller makes its own.

    Each value belongs to one user, so that no user is ever answered with another user's words."""

    async def get_or_claim(self, user_id: UUID, key: str, *, lease_s: float) -> CachedValue:
        """Return the stored value. If there is none, claim the key, unless another caller has done so within the last `lease_s`."""
        ...

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        """Store a value for a limited time; ends a claim. Never raises."""
        ...

    async def release(self, user_id: UUID, key: str) -> None:
        """End a claim without a value. Never raises."""
        ...


# --- a row for every model call of every source: its cost, the model that answered, how it ended
#
# All budgets are counted from these rows. They have no message text.


class CallOutcome(StrEnum):
    """How a call ended, after all of its attempts."""

    ANSWERED = "answered"
    CUT_SHORT = "cut_short"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    """No backend was asked: the kill switch, a cap, the user's budget, no free slot, no price, no model, or a store that is away."""


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
    """The model that was requested; empty for a refused call that had none."""
    outcome: CallOutcome
    latency_ms: int
    """From the first attempt to the answer or the failure, without the waits for slots."""
    purpose: CallPurpose | None = None
    agent: str | None = None
    platform: Platform | None = None
    api_key_id: UUID | None = None
    error: str | None = None
    """Why there is no whole answer, by the error's name and its reason: `ChainFailed: Overloaded`, `CallsPaused: cap`. Never a text from
    outside."""
    waited_ms: int | None = None
    """For slots, over the whole chain."""
    times: int = 1
    """Above 1 only for refused calls: one row stands for many of them, and then names neither user nor turn."""
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
    plan: int | None = None
    """The version of the model plan that chose its models; None: the settings, or the caller."""

    @property
    def tokens(self) -> int:
        """The tokens that it takes from the budget, and with which its hold is settled."""
        return 0 if self.cache_hit else self.usage.tokens_in + self.usage.tokens_out


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Sums over calls."""

    calls: int
    """Sums over days count the rows of refused calls too; the sum of a turn does not."""
    tokens: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class TurnUsage:
    """What the calls of one turn used."""

    tokens_in: int
    tokens_out: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a call's answer is recorded, and whose it is."""

    session_id: UUID
    user_id: UUID


@dataclass(frozen=True, slots=True)
class DayTotals:
    """The sums of one day, and the ids of those of its calls that the caller asked for."""

    day: date
    totals: CallTotals
    ids: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class AgentTotals:
    """The money of one day by agent, and the ids of those of the calls that the caller asked for."""

    micro_usd: Mapping[str, int]
    ids: Sequence[UUID]


AnswerKeeper = Callable[[ModelCall, Answer], Awaitable[bool]]
"""Writes the row of a call together with what its caller keeps of the answer. False: nothing was written, and the row is written alone."""


@runtime_checkable
class KeepingModels(Models, Protocol):
    """Models whose caller may write the row of a call."""

    async def complete_and_keep(self, request: ModelRequest, caller: Caller, keep: AnswerKeeper) -> Answer:
        """As `complete`; a model's answer is first given to `keep`, to the end, although the caller is cancelled meanwhile. If `keep`
        raises an error, the caller gets the answer all the same."""
        ...


class ModelCalls(Protocol):
    """The rows of model calls. They are only added, never changed. Rows of refused calls have no tokens and no cost."""

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

    async def of_key(self, tx: Transaction, key_id: UUID, *, since: date, until: date, recent_s: float) -> Sequence[DayTotals]:
        """Return the days of an API key that have calls, as of one moment; with the ids of those recorded within the last `recent_s`."""
        ...

    async def of_agents(self, tx: Transaction, day: date, *, recent_s: float) -> AgentTotals:
        """Return the money of each agent's calls on a day as of one moment, with the ids of those recorded within the last `recent_s`."""
        ...

    async def cost_of_turn(self, tx: Transaction, turn_id: UUID) -> CallTotals:
        """Sum up every call that a turn caused, as far as it is recorded by now: all attempts of the turn, the compaction of its history,
        the call after tools, and what was learned from its message afterwards."""
        ...

    async def usage_of_turn(self, tx: Transaction, turn_id: UUID) -> TurnUsage | None:
        """Return what the calls of `cost_of_turn` used, as far as they are recorded by now; None if none is."""
        ...

    async def place(self, tx: Transaction, call_id: UUID, api_key_id: UUID) -> CallPlace | None:
        """Return where the answer of an API key's call is recorded; None if the key has no such call, or its answer is in no session."""
        ...

    async def note_alert(self, tx: Transaction, subject: str, period: str, percent: int) -> bool:
        """Note that the operator is alerted of a threshold (`2026-11` or `2026-11-15` of a subject); False if that was noted before."""
        ...


# --- numbers about turns, model calls, webhooks and sends, for the operator's metrics


class CallMeter(Protocol):
    """Counts calls. Never on the message path: it neither raises nor waits."""

    def count(self, call: ModelCall) -> None:
        """Count a call that has ended, with its attempts, tokens and cost."""
        ...

    def count_saved(self, call: ModelCall, micro_usd: int) -> None:
        """Count what an answer from the cache would have cost."""
        ...


class TurnMeter(Protocol):
    """Counts turns and times their steps. Never on the message path: it neither raises nor waits."""

    def count_step(self, step: str, seconds: float) -> None:
        """Note how long a step took."""
        ...

    def count_turn(self, outcome: str, intent: str) -> None:
        """Count a turn that has ended, by its outcome and the user's intent."""
        ...


class PlatformMeter(Protocol):
    """Counts webhook events that were ignored, and sends. Never on the message path: it neither raises nor waits."""

    def count_ignored(self, platform: str, reason: str) -> None:
        """Count an authentic event for which there was nothing to do, by its reason."""
        ...

    def count_send(self, platform: str, outcome: str) -> None:
        """Count a try to send, by its outcome."""
        ...

    def show_breaker(self, platform: str, account: str, open_s: float) -> None:
        """Show that a breaker is open for so long from now on; 0: it is closed."""
        ...
