"""The records that a turn writes, in memory: journal, interactions, answers; and a transaction that does nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from hermes.ports.inbox import Claim, InboxMessage
from hermes.ports.outbox import DeliveryResult, MessageBody, OutboxAnswer, OutboxMessage, OutboxState, ProactiveMessage, readable_text
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Effect, EffectProgress
from hermes.turn import Platform


class MemoryTransactions:
    """The port Transactions, without any effect: nothing is rolled back."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield self

    once = begin


@dataclass(slots=True)
class MemoryInbox:
    """The methods of the port Inbox that the end of a turn and the jobs after it need."""

    finished: list[UUID] = field(default_factory=list)
    messages: dict[UUID, InboxMessage] = field(default_factory=dict)
    """The user's messages by turn. A test that makes a claim without the intake puts its message here."""

    async def hold(self, _: Transaction, __: Claim) -> None:
        """Does nothing: no other worker is here."""

    async def finish(self, _: Transaction, claim: Claim) -> None:
        self.finished.append(claim.turn_id)

    async def message_of(self, _: Transaction, turn_id: UUID) -> InboxMessage | None:
        return self.messages.get(turn_id)

    async def last_private(self, _: Transaction, user_id: UUID, account: str) -> InboxMessage | None:
        found = [message for message in self.messages.values() if (message.user_id, message.envelope.account) == (user_id, account)]
        return max((message for message in found if not message.envelope.is_shared), key=lambda message: message.received_at, default=None)


@dataclass(slots=True)
class MemoryJournal:
    """The methods of the port Journal that a turn needs."""

    requests: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    results: dict[tuple[UUID, str, int], bytes] = field(default_factory=dict)
    notes: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    async def begin(self, _: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        place = (claim.turn_id, step, index)
        if place not in self.requests:
            self.requests[place] = request
            return Effect(EffectProgress.NEW, request, None)
        result = self.results.get(place)
        return Effect(EffectProgress.STARTED if result is None else EffectProgress.DONE, self.requests[place], result)

    async def finish(self, _: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        self.notes.append((step, facts))
        return self.results.setdefault((claim.turn_id, step, index), result)

    async def has_result(self, _: Transaction, claim: Claim, step: str, index: int) -> bool:
        return (claim.turn_id, step, index) in self.results

    async def note(self, _: Transaction, __: Claim, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self.notes += events

    async def add(self, _: Transaction, __: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        self.notes.append((type_, facts))

    async def effect(self, _: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        place = (turn_id, step, index)
        if place not in self.requests:
            return None
        result = self.results.get(place)
        return Effect(EffectProgress.STARTED if result is None else EffectProgress.DONE, self.requests[place], result)


@dataclass(slots=True)
class MemoryInteractions:
    """The port Interactions."""

    rows: dict[UUID, Mapping[str, Any]] = field(default_factory=dict)

    async def add(self, _: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        self.rows.setdefault(claim.turn_id, {**meta, "session_id": str(session_id)})


@dataclass(slots=True)
class MemoryOutbox:
    """The methods of the port Outbox that turns, deliveries and proactive messages need. A message that was put back waits until
    `is_due` is set again."""

    answers: dict[UUID, list[MessageBody]] = field(default_factory=dict)
    queued_messages: list[OutboxMessage] = field(default_factory=list)
    """The messages to send, in order."""
    settled: list[tuple[OutboxMessage, DeliveryResult]] = field(default_factory=list)
    proactive: list[tuple[InboxMessage, ProactiveMessage, OutboxState]] = field(default_factory=list)
    """Each with the user's message that asked for it."""
    recorded: set[int] = field(default_factory=set)
    is_due: bool = True
    """False: the first message waits for its time."""

    async def put(self, _: Transaction, claim: Claim, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING) -> None:
        if claim.turn_id in self.answers:
            return
        self.answers[claim.turn_id] = [*parts]
        if state is OutboxState.PENDING:
            envelope = claim.envelope
            where = (envelope.account, envelope.event.platform, envelope.channel_id)
            for part, body in enumerate(parts):
                place = (len(self.queued_messages) + len(self.settled), claim.turn_id, claim.conversation_id, claim.seq, part)
                message = OutboxMessage(*place, *where, body, 0, thread=envelope.thread, last_inbound_at=datetime.now(UTC))
                self.queued_messages.append(message)

    async def take(self, _: Transaction, conversation_id: UUID) -> OutboxMessage | None:
        for place, message in enumerate(self.queued_messages):
            if message.conversation_id == conversation_id:
                if not self.is_due:
                    return None
                self.queued_messages[place] = replace(message, tries=message.tries + 1)
                return self.queued_messages[place]
        return None

    async def settle(self, _: Transaction, message: OutboxMessage, result: DeliveryResult) -> OutboxState | None:
        if message not in self.queued_messages:
            return None
        if result.state is OutboxState.PENDING:
            place = self.queued_messages.index(message)
            failures, doubts = message.failures + result.is_failure, message.doubts + result.is_doubtful
            self.queued_messages[place] = replace(message, failures=failures, doubts=doubts)
            self.is_due = False
        else:
            self.queued_messages.remove(message)
            self.settled.append((message, result))
        return result.state

    async def answer(self, _: Transaction, turn_id: UUID) -> OutboxAnswer | None:
        return OutboxAnswer(turn_id, readable_text(self.answers[turn_id]), {}) if turn_id in self.answers else None

    async def waiting(self, _: Transaction) -> int:
        return len(self.queued_messages)

    async def put_proactive(
        self, _: Transaction, asked: InboxMessage, name: str, parts: Sequence[MessageBody], state: OutboxState = OutboxState.PENDING
    ) -> None:
        if all((message.turn_id, message.name) != (asked.turn_id, name) for _, message, _ in self.proactive):
            message = ProactiveMessage(len(self.proactive) + 1, asked.turn_id, asked.user_id, name, readable_text(parts), datetime.now(UTC))
            self.proactive.append((asked, message, state))

    async def take_proactive(self, _: Transaction, conversation_id: UUID) -> Sequence[ProactiveMessage]:
        found = [
            message for asked, message, _ in self.proactive if asked.conversation_id == conversation_id and message.id not in self.recorded
        ]
        self.recorded |= {message.id for message in found}
        return found

    async def proactive_messages(
        self, _: Transaction, account: str, platform: Platform, channel_id: str, *, after: int = 0, limit: int = 50
    ) -> Sequence[ProactiveMessage]:
        where = (account, platform, channel_id)
        found = [message for asked, message, _ in self.proactive if channel_of(asked) == where and message.id > after]
        return found[:limit]


def channel_of(message: InboxMessage) -> tuple[str, Platform, str]:
    return message.envelope.account, message.envelope.event.platform, message.envelope.channel_id
