"""What happened, for a program that supervises Hermes: one stream of all turns, adapters and processes, which can be resumed.

Every event has a cursor: the number of the transaction that wrote it, and its own number of one sequence. A transaction may commit later
than one that began after it. So the stream shows an event only when every transaction before its own has ended, and a reader that goes on
after the last cursor it saw misses no event and sees none twice. Events hold ids, names and numbers, never what a user or a model wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, Self
from uuid import UUID

from hermes.ports.runtime import Transaction

EFFECT_NAMES: Mapping[str, str] = {"call_model": "llm_called", "run_tools": "tool_invoked"}
"""The event name that a reader of the journal sees for an effect of this step; `effect` for any other step."""


class EventSource(StrEnum):
    """What an event is about."""

    TURN = "turn"
    FLEET = "fleet"
    PROCESS = "process"


EVENT_NAMES: Mapping[str, str] = {
    "intent_classified": "intent.classified",
    "user_resolved": "user.resolved",
    "credit_reserved": "credit.reserved",
    "credit_posted": "credit.charged",
    "credit_voided": "credit.returned",
    "soul_loaded": "soul.loaded",
    "history_loaded": "history.loaded",
    "messages_built": "messages.built",
    "tools_gated": "tools.gated",
    "model_answered": "model.answered",
    "tools_finished": "tools.finished",
    "turn_recorded": "turn.recorded",
    "attempt_failed": "attempt.failed",
    "attempt_cut_off": "attempt.cut_off",
    "llm_called": "model.called",
    "tool_invoked": "tool.invoked",
    "effect": "effect.made",
    "fallback_used": "fallback.used",
    "turn_stopped": "turn.stopped",
    "message_revived": "message.revived",
    "response_delivered": "delivery.sent",
    "delivery_failed": "delivery.failed",
    "dead_letter_requeued": "dead_letter.requeued",
    "dead_letter_dropped": "dead_letter.dropped",
    "breaker_opened": "breaker.opened",
    "channel_unauthorized": "channel.unauthorized",
    "memory_saved": "memory.saved",
    "offer_made": "offer.made",
    "offer_approved": "offer.approved",
    "offer_refused": "offer.refused",
    "offer_expired": "offer.expired",
    "adapter_swapped": "adapter.swapped",
    "adapter_rolled_back": "adapter.rolled_back",
    "adapter_refused": "adapter.refused",
    "process_started": "process.started",
    "process_stopped": "process.stopped",
    "process_stalled": "process.stalled",
    "process_recovered": "process.recovered",
    "process_silent": "process.silent",
    "process_crash_loop": "process.crash_loop",
    "process_restarted": "process.restarted",
    "chore_taken": "chore.taken",
}
"""The public name of each event that Hermes stores."""
STORED_TYPES = {name: type_ for type_, name in EVENT_NAMES.items()}

SENDS = ("response_delivered", "delivery_failed", "dead_letter_requeued", "dead_letter_dropped")
HIDDEN_FACTS: Mapping[str, frozenset[str]] = {"memory_saved": frozenset({"keys"}), **dict.fromkeys(SENDS, frozenset({"reason"}))}
"""Facts that the journal keeps and the stream leaves out: which kinds of facts were learned about a user says something about the user; and
a platform's own words about a message may repeat words of it, or name its receiver. The outcome says the same by name."""


def event_name(type_: str) -> str:
    """Return the public name of a stored type. A type of a newer Hermes is named by a rule: `process_moved`, `process.moved`."""
    return EVENT_NAMES.get(type_) or type_.replace("_", ".", 1)


def stored_type(name: str) -> str:
    """Return the stored type of a public name."""
    return STORED_TYPES.get(name) or name.replace(".", "_", 1)


CURSOR = re.compile(r"(\d{1,19})-(\d{1,19})")


@dataclass(frozen=True, slots=True, order=True)
class EventCursor:
    """A place in the stream, written `742-1803`: everything up to it was seen."""

    xid: int
    """The transaction that wrote the event."""
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a cursor. Raises ValueError for a text that is none."""
        found = CURSOR.fullmatch(text)
        if found is None or max(map(int, found.groups())) >= 2**63:
            raise ValueError(f"{text[:50]!r} is not a cursor; expected two numbers, such as 742-1803")
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.xid}-{self.number}"


STREAM_START = EventCursor(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsEvent:
    """One event of the stream."""

    cursor: EventCursor
    source: EventSource
    type: str
    """As it is stored: `llm_called`."""
    at: datetime
    facts: Mapping[str, Any] = field(default_factory=dict)
    account: str | None = None
    agent: str | None = None
    """The agent that answers on the turn's account now, or whose adapter was changed."""
    turn_id: UUID | None = None
    process: UUID | None = None

    @property
    def name(self) -> str:
        """The public name: `model.called`."""
        return event_name(self.type)

    @property
    def public_facts(self) -> dict[str, Any]:
        hidden = HIDDEN_FACTS.get(self.type, frozenset())
        return {name: value for name, value in self.facts.items() if name not in hidden}


def stream_event_json(event: OperationsEvent) -> dict[str, Any]:
    """Write an event as HTTP and the command line show it."""
    return {
        "id": str(event.cursor),
        "event": event.name,
        "at": event.at.isoformat(),
        "source": str(event.source),
        "agent": event.agent,
        "account": event.account,
        "turn_id": str(event.turn_id) if event.turn_id else None,
        "process": str(event.process) if event.process else None,
        "facts": event.public_facts,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """Which events: those that match every field that is set."""

    agent: str | None = None
    turn_id: UUID | None = None
    names: frozenset[str] = frozenset()
    """Public names; none: all."""
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees, None: all. Events of no account are for readers of all."""

    def matches(self, event: OperationsEvent) -> bool:
        return (
            (self.agent is None or event.agent == self.agent)
            and (self.turn_id is None or event.turn_id == self.turn_id)
            and (not self.names or event.name in self.names)
            and (self.accounts is None or event.account in self.accounts)
        )


ALL_EVENTS = EventFilter()


@dataclass(frozen=True, slots=True)
class EventPage:
    """Some events in their order, and the cursor after which the next page begins."""

    events: Sequence[OperationsEvent]
    next: EventCursor
    is_last: bool
    """There is nothing more to read now."""


class OperationsEvents(Protocol):
    """The stored events. Read-only; fails with StoreUnavailable."""

    async def read(self, tx: Transaction, after: EventCursor, *, limit: int) -> EventPage:
        """Return the events after a cursor, oldest first, that no open transaction can precede any more.

        If the rows were copied into another database, whose transactions have other numbers, an old cursor goes on by its number."""
        ...

    async def read_turn(
        self, tx: Transaction, turn_id: UUID, after: EventCursor, *, only_settled: bool = False
    ) -> Sequence[OperationsEvent]:
        """Return all events of one turn after a cursor, in their order. Also those that the stream does not show yet, unless
        `only_settled`: the caller reads on after them, and none may come to lie before them."""
        ...

    async def end(self, tx: Transaction) -> EventCursor:
        """Return the cursor behind everything that the stream shows now."""
        ...
