"""Replays: a recorded request to a model, asked again with something changed, and what came of it.

A replay is a dry run. Nothing of it is sent, charged to the user, learned or written into the conversation: what it may use is declared
here, and it gets nothing else. It is stored sealed with the key of the user whose turn it repeats, so that forgetting the user forgets
it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from hermes.ports.backends import Completion, ModelRequest
from hermes.ports.models import Answer, Caller, ModelCall
from hermes.ports.runtime import Transaction
from hermes.ports.users import UserChannel
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.graph import MessageGraph
    from hermes.ports.sessions import Effect
    from hermes.ports.tools import ToolCall, ToolResult, ToolUser

REPLAY_PAYER = UserChannel("console", Platform.COMPLETIONS, "replay")
"""How the user is found who pays for replays. No client of the completions API has this sender id: theirs begin with the id of a key."""
MAX_ANSWERS = 8
"""Answers of one model to one request."""
MAX_BATCH_TURNS, MAX_BATCH_MODELS = 500, 4


class ReplayState(StrEnum):
    """How far a replay got."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """No model answered."""
    REFUSED = "refused"
    """No model was asked: the turn cannot be replayed, the money is spent, the kill switch is on, or an operator stopped the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySource:
    """A turn, or a call of the completions API, as far as it is known without a key."""

    turn_id: UUID | None
    call_id: UUID | None
    """Of a call of the completions API, which has no turn."""
    session_id: UUID | None
    conversation_id: UUID
    user_id: UUID
    """The user whose key seals it."""
    account: str
    at: datetime
    context_id: str
    """What the model was shown; empty if no answer was recorded under it."""
    outcome: str
    model: str
    language: str
    why_not: str
    """Why it cannot be replayed; empty if it can."""
    tokens_in: int
    tokens_out: int
    micro_usd: int
    latency_ms: int
    """Of the calls that answered it, together."""
    request_bytes: int = 0
    """How long the sealed request of a turn is, for an estimate if no model answered it."""

    @property
    def id(self) -> UUID:
        """The turn, or the call."""
        found = self.turn_id or self.call_id
        assert found is not None  # noqa: S101  # the store's rows have one of the two
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayChange:
    """What a replay changes in the recorded request; by default nothing but the model."""

    system: str | None = None
    """Another system text; None leaves it."""
    tools: tuple[str, ...] | None = None
    """The names of the recorded tools to send; None sends all of them."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    run_tools: tuple[str, ...] = ()
    """Tools that only read and may run for real, if the model calls them with other arguments than were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewReplay:
    """A replay to be added. `why_not`: it is refused at once, for the record of a batch."""

    id: UUID
    source: ReplaySource
    by: str
    model: str
    change: ReplayChange = field(default_factory=ReplayChange)
    batch_id: UUID | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A replay as it is stored, without its content."""

    id: UUID
    batch_id: UUID | None
    turn_id: UUID | None
    call_id: UUID | None
    session_id: UUID | None
    conversation_id: UUID | None
    user_id: UUID
    account_id: str
    context_id: str
    by: str
    model: str
    state: ReplayState
    attempt: int
    is_diverged: bool | None
    same_tools: bool | None
    same_text: bool | None
    likeness: float | None
    """From 0, no word in common, to 1, the same words."""
    error: str | None
    """Names and reasons; no text of a message."""
    tokens_in: int | None
    tokens_out: int | None
    micro_usd: int | None
    latency_ms: int | None
    kept_as: str | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def source_id(self) -> UUID:
        """The turn or the call that it repeats."""
        found = self.turn_id or self.call_id
        assert found is not None  # noqa: S101  # the store's rows have one of the two
        return found

    @property
    def is_open(self) -> bool:
        return self.state in {ReplayState.WAITING, ReplayState.RUNNING}


@dataclass(frozen=True, slots=True)
class ReplayContent:
    """What is sealed of a replay."""

    change: ReplayChange
    progress: bytes | None
    """The answers and tool results so far, in the form of `console.replay_progress`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """How a replay ended."""

    state: ReplayState
    error: str | None = None
    is_diverged: bool | None = None
    same_tools: bool | None = None
    same_text: bool | None = None
    likeness: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    micro_usd: int | None = None
    latency_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayBatch:
    """Many replays that were asked for together."""

    id: UUID
    by: str
    models: tuple[str, ...]
    title: str
    """The filter in words."""
    state: str
    """running, done or stopped."""
    total: int
    ended: int
    micro_usd: int
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """Which turns a batch repeats: the newest that match every field that is set. The names are those of the list of turns."""

    status: str | None = None
    """`failed`: turns without an answer; `answered`."""
    agent: str | None = None
    model: str | None = None
    platform: str | None = None
    tier: str | None = None
    tool: str | None = None
    user: UUID | None = None
    since: datetime | None = None
    until: datetime | None = None
    accounts: frozenset[str] | None = None
    """The accounts that the operator sees; None: all."""


class Replays(Protocol):
    """The replays and their batches. Content is sealed. Fails closed."""

    async def sources(self, tx: Transaction, ids: Sequence[UUID]) -> Sequence[ReplaySource]:
        """Return turns and calls of the completions API by their ids, in the order of the ids; unknown ones are left out."""
        ...

    async def newest_turns(self, tx: Transaction, wanted: ReplayFilter, limit: int) -> Sequence[UUID]:
        """Return the newest turns that match, newest first."""
        ...

    async def add_batch(self, tx: Transaction, batch_id: UUID, *, by: str, models: Sequence[str], title: str) -> None:
        """Add a batch, before its replays."""
        ...

    async def add(self, tx: Transaction, new: NewReplay) -> None:
        """Add a replay that waits, or one that is refused at once. Raises UserErased."""
        ...

    async def claim(self, tx: Transaction, *, stale_s: float, at_once: int, ids: Sequence[UUID] | None = None) -> Replay | None:
        """Take the oldest replay that waits, or whose worker has not renewed its claim for `stale_s`; None if there is none. Of one batch
        at most `at_once` run at a time, in all processes together. A replay that was cut off three times fails."""
        ...

    async def has_waiting(self, tx: Transaction, *, stale_s: float) -> bool:
        """Whether `claim` may find one."""
        ...

    async def renew(self, tx: Transaction, claimed: Replay) -> bool:
        """Renew a claim; False if it does not stand any more."""
        ...

    async def give_back(self, tx: Transaction, claimed: Replay) -> None:
        """Let another process take it, or refuse it, if its batch was stopped. What was noted of it stays."""
        ...

    async def note(self, tx: Transaction, claimed: Replay, progress: bytes) -> None:
        """Store the answers so far. No change if the claim does not stand any more, or the replay is gone. Raises UserErased."""
        ...

    async def finish(self, tx: Transaction, claimed: Replay, outcome: ReplayOutcome) -> None:
        """End a replay, and its batch with the last one of it. No change if the claim does not stand any more."""
        ...

    async def end_if_done(self, tx: Transaction, batch_id: UUID) -> None:
        """End a batch of which no replay waits or runs: all of its turns were refused."""
        ...

    async def get(self, tx: Transaction, replay_id: UUID) -> Replay:
        """Return a replay; raise NotFound."""
        ...

    async def open(self, tx: Transaction, replay: Replay) -> ReplayContent:
        """Return what is sealed of it. Raises UserErased."""
        ...

    async def list(
        self, tx: Transaction, *, accounts: frozenset[str] | None, before: tuple[datetime, UUID] | None = None, limit: int = 50
    ) -> Sequence[Replay]:
        """Return the replays that belong to no batch, newest first."""
        ...

    async def of_source(self, tx: Transaction, source: ReplaySource, *, limit: int = 50) -> Sequence[Replay]:
        """Return the replays of one turn or call, newest first."""
        ...

    async def of_batch(self, tx: Transaction, batch_id: UUID, *, accounts: frozenset[str] | None) -> Sequence[Replay]:
        """Return the replays of a batch, in the order in which they were added."""
        ...

    async def get_batch(self, tx: Transaction, batch_id: UUID, *, accounts: frozenset[str] | None) -> ReplayBatch:
        """Return a batch, with the sums of its replays of these accounts; raise NotFound, also if it has none."""
        ...

    async def batches(self, tx: Transaction, *, accounts: frozenset[str] | None, limit: int = 50) -> Sequence[ReplayBatch]:
        """Return the batches that have replays of these accounts, newest first."""
        ...

    async def stop(self, tx: Transaction, batch_id: UUID) -> int:
        """Refuse the replays of a batch that still wait; return how many. Those that run end by themselves."""
        ...

    async def resume(self, tx: Transaction, batch_id: UUID) -> int:
        """Let the replays of a batch wait again that failed, or were refused although their turns can be replayed; return how many."""
        ...

    async def note_kept(self, tx: Transaction, replay_id: UUID, response_id: str) -> None:
        """Note the response under which a replay is kept as a sample."""
        ...


# --- what a dry run is made of: readers, models, and tools that only read


class EffectReader(Protocol):
    """Reads what a turn asked and got."""

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        """As `Journal.effect`."""
        ...


class GraphReader(Protocol):
    """Reads the graph of a session."""

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        """As `Graphs.load`."""
        ...


class CallRows(Protocol):
    """Writes the rows of model calls."""

    async def add(self, tx: Transaction, call: ModelCall) -> bool:
        """As `ModelCalls.add`."""
        ...


RecordCall = Callable[[ModelCall, Completion], Awaitable[UUID]]
"""Writes a call's row and its answer in one transaction: so an answer that was paid is never asked for again."""


class ReplayModels(Protocol):
    """The models that a replay may ask, and who pays: the operator of Hermes, under a cap of its own."""

    def names(self) -> Sequence[str]:
        """The models of the catalogue that this process can ask, first those that tiers use."""
        ...

    def estimate(self, model: str, tokens_in: int, tokens_out: int) -> int:
        """What a call of so many tokens would cost today, in micro-dollars. Raises NotFound for an unknown model, and UnknownPrice."""
        ...

    async def payer(self) -> UUID:
        """The user `replay`, who pays for all replays."""
        ...

    async def left_today(self) -> int | None:
        """Micro-dollars that replays may still spend today; None for no limit."""
        ...

    async def complete(self, request: ModelRequest, caller: Caller, recorder: RecordCall) -> Answer:
        """As `Models.complete`, with a recorder."""
        ...


class ReadingTools(Protocol):
    """Tools that change nothing."""

    def effect_of(self, name: str) -> str | None:
        """What a tool changes: reads, writes or spends; None for an unknown one."""
        ...

    async def run(self, call: ToolCall, user: ToolUser) -> ToolResult:
        """Run a call of a tool that only reads. Raises ToolRefused for any other tool; nothing is done then."""
        ...


class ToolRefused(Exception):
    """The tool does more than read, or is unknown."""
