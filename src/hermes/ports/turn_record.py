"""Everything of one turn, for operators: what is known of it without a key, and what only a key opens.

The two have ports of their own, so that a reader that has only the first cannot show a word that a user or a model wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction
from hermes.turn import Platform

if TYPE_CHECKING:
    from hermes.graph import MessageGraph
    from hermes.ports.channels import ReceiptRank
    from hermes.ports.models import ModelCall

# --- without a key


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A model call, and when it was recorded."""

    call: ModelCall
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRecord:
    """One outbox message of a turn, without its body."""

    id: int
    part: int
    news: str
    """The name of its proactive message; empty for a part of the answer."""
    state: str
    """An OutboxState."""
    tries: int
    failures: int
    doubts: int
    outcome: str | None
    """How the last try ended; None: it was not tried, or the client fetches it."""
    reason: str
    message_id: str | None
    rank: ReceiptRank | None
    ranked_at: datetime | None
    put_at: datetime
    touched_at: datetime
    not_before: datetime
    died_at: datetime | None
    is_late: bool


@dataclass(frozen=True, slots=True)
class CreditRecord:
    """A line of the ledger of credits that belongs to a turn."""

    kind: str
    """reserve, post, void, refund."""
    amount: int
    attempt: int
    """Which hold of the turn it belongs to: the ledger counts its holds, not the attempts at the turn."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ProcessName:
    """A process that drove a turn: where it runs, and whether it still does."""

    id: UUID
    host: str
    pid: int
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord:
    """What is known of a turn without a key."""

    turn_id: UUID
    account_id: str
    platform: Platform
    channel_id: str
    """An identifier of a person or a group at the platform: masked for viewers."""
    sender_id: str | None
    """The sender's identifier at the platform; None if the sender was erased."""
    conversation_id: UUID
    session_id: UUID | None
    """The session that has the answer; before that, the conversation's newest one. None if there is none."""
    user_id: UUID
    is_shared: bool
    is_erased: bool
    """The sender was forgotten: no content of the turn can be read by any operator."""
    seq: int
    state: str
    """`waiting`, `done` or `dead`."""
    attempts: int
    reason: str | None
    """Why it was given up or stopped."""
    received_at: datetime
    ended_at: datetime | None
    stopped_at: datetime | None
    now: datetime
    """The store's clock when this was read."""
    revived_at: datetime | None = None
    """When an operator revived it; it waits since then, behind the messages that came meanwhile."""
    api_key_id: UUID | None = None
    api_key_name: str | None = None
    trace_id: str | None = None
    joined_to: UUID | None = None
    """The turn that this message became a part of."""
    joined: Sequence[UUID] = ()
    """The messages that became a part of this turn."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """The provenance that the turn's end recorded; empty before that."""
    replays: int = 0
    previous_id: UUID | None = None
    """The turn before this one in the conversation."""
    next_id: UUID | None = None
    behind: UUID | None = None
    """The first turn of the conversation that has not ended and runs before this one."""
    live_workers: int = 0
    workers: Sequence[ProcessName] = ()
    """The processes that drove its attempts, as far as their rows are still there."""
    calls: Sequence[RecordedCall] = ()
    deliveries: Sequence[DeliveryRecord] = ()
    credits: Sequence[CreditRecord] = ()

    @property
    def micro_usd(self) -> int:
        """What the turn cost: the sum over all calls that it caused."""
        return sum(recorded.call.micro_usd for recorded in self.calls)

    @property
    def tokens(self) -> int:
        return sum(recorded.call.tokens for recorded in self.calls)

    @property
    def outcome(self) -> str | None:
        """How it ended: `answered`, the kind of a fallback, `apologised`; None if nothing was recorded of an end."""
        outcome = self.meta.get("outcome")
        return outcome if isinstance(outcome, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LooseCall:
    """A call that belongs to no turn: of the completions API, a batch, a dream."""

    recorded: RecordedCall
    conversation_id: UUID | None
    """The conversation of its session; None if it was recorded in none."""
    is_erased: bool
    api_key_name: str | None


class TurnRecords(Protocol):
    """Reads turns and calls without any key. Fails closed, with StoreUnavailable.

    `accounts` narrows to what an operator sees: a turn of another account counts as unknown. None: all accounts."""

    async def find(self, tx: Transaction, turn_id: UUID, accounts: frozenset[str] | None, *, live_s: float) -> TurnRecord | None:
        """Return the turn; None for an unknown one. A process is live if its last beat is at most `live_s` old."""
        ...

    async def find_call(self, tx: Transaction, call_id: UUID, accounts: frozenset[str] | None) -> LooseCall | None:
        """Return a call, whether a turn caused it or not; None for an unknown one."""
        ...


# --- with a key


class WhyHidden(StrEnum):
    """Why a stored text cannot be shown."""

    ERASED = "erased"
    """Its user was forgotten."""
    EXPIRED = "expired"
    """The journal's retention has emptied it."""
    UNREADABLE = "unreadable"
    """Its key is missing, or its bytes are not those that were sealed."""
    RUNNING = "running"
    """There is none yet."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """Bytes that were sealed, or why they cannot be shown."""

    body: bytes | None
    hidden: WhyHidden | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """What the user wrote, or why it cannot be shown."""

    turn_id: UUID
    text: str | None
    media: Sequence[str] = ()
    """What else it had, by kind: `image/jpeg`, `attachment`."""
    hidden: WhyHidden | None = None


@dataclass(frozen=True, slots=True)
class StoredEffect:
    """The request and the result of a model call or a tool, as the journal has them."""

    step: str
    """The journal's name of the effect: call_model, run_tools, compact."""
    index: int
    request: StoredText
    result: StoredText


@dataclass(frozen=True, slots=True)
class StoredPart:
    """One outbox message, as it was sent."""

    id: int
    part: int
    news: str
    is_message: bool
    """The body is a platform's message as JSON; else a text."""
    body: StoredText


@dataclass(frozen=True, slots=True)
class StoredWords:
    """Everything of a turn that a user or a model wrote."""

    messages: Sequence[StoredMessage]
    """The turn's own message, then those that were joined to it."""
    effects: Sequence[StoredEffect]
    parts: Sequence[StoredPart]


class TurnWords(Protocol):
    """Opens the content of turns. The caller has checked that an operator may read it. Fails closed; a text that cannot be opened is told
    apart from a store that cannot be reached."""

    async def read(self, tx: Transaction, turn_id: UUID) -> StoredWords:
        """Return the content of a turn; empty for an unknown turn."""
        ...

    async def read_prompt(self, tx: Transaction, turn_id: UUID) -> StoredText:
        """Return the request of the turn's first model call alone."""
        ...

    async def load_graph(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        """Return the message graph of a session. Raises NotFound, UserErased, and DataDamaged also if a key is missing."""
        ...
