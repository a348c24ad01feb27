"""The end of an ordinary turn and of its model calls: everything that they leave, to be written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from hermes.ports.inbox import Claim
from hermes.ports.models import ModelCall
from hermes.ports.outbox import MessageBody, OutboxState
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import AppendResult, GraphEntry, JournalNote


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """What a turn leaves."""

    session_id: UUID
    head: str
    """The head of the list that the model was shown; `entries` are appended there."""
    entries: Sequence[GraphEntry]
    meta: Mapping[str, Any]
    """The interaction's, without what the append adds (`appended_meta`)."""
    parts: Sequence[MessageBody]
    """Of the answer."""
    state: OutboxState
    """In which the answer enters the outbox."""
    notes: Sequence[JournalNote]
    """The last one is that of the turn's end."""
    is_learned: bool
    """Whether a job of its own learns from the message."""


@dataclass(frozen=True, slots=True)
class CallEnd:
    """What a model call of a turn leaves."""

    step: str
    index: int
    """Its place among the effects of the step."""
    result: bytes
    facts: Mapping[str, Any]
    call: ModelCall


def appended_meta(appended: AppendResult | None) -> dict[str, Any]:
    """What `interactions.meta` has of an append to the graph."""
    if appended is None:
        return {}
    return {"head": appended.head, "nodes": list(appended.nodes), "context_ids": list(appended.contexts)}


class TurnEnds(Protocol):
    """Ends ordinary turns, and their model calls."""

    async def end(self, tx: Transaction, claim: Claim, end: TurnEnd) -> AppendResult | None:
        """Write all of it in one statement, and end the turn's job with it; return what was appended.

        It writes what the single ports write: Inbox.hold, Graphs.append, Credits.post, Interactions.add, Outbox.put, Inbox.finish,
        JobQueue.defer_memory and Journal.note. None, and nothing is written, if it cannot: the list has another head by now, a sample is
        known, a chat is attached, a key is gone, or no reserve is open. Raises ClaimLost."""
        ...

    async def end_call(self, tx: Transaction, claim: Claim, end: CallEnd) -> bytes:
        """Write the row of a model call and its result in the journal in one statement: what was paid and what it brought are one commit.

        It does what ModelCalls.add and Journal.finish do, and returns the result that stands."""
        ...
