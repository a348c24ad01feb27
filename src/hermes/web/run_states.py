"""What a client learns of a run: its state, its answer with usage and cost, and its events as they come.

A run is a turn: the same intake, the same ten steps. Its state follows from the inbox and the outbox, so a web process that restarts knows
all of it, and so does every other one. The router gives an answer whole; it comes as one `message.delta` before the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from uuid import UUID

import anyio

from hermes.ports.errors import NotFound, StoreUnavailable
from hermes.ports.events import STREAM_START, EventCursor, OperationsEvent, OperationsEvents
from hermes.ports.inbox import AnswerSignals, Inbox, TurnOrigin
from hermes.ports.models import ModelCalls
from hermes.ports.outbox import Outbox, OutboxAnswer
from hermes.ports.runtime import Transaction, Transactions
from hermes.router.effects import MICRO_PER_USD
from hermes.router.pipeline import ANSWERED
from hermes.web.answers import sse_event

MAX_LOOK_S = 1.0
"""The longest pause between two looks at a run. Its end is signalled; its other events are not."""
DELTA_ID, END_ID = "answer", "end"
"""The ids of the last two events. All others are cursors."""


class RunStatus(StrEnum):
    """How far a run is."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self not in {RunStatus.QUEUED, RunStatus.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """A run as its client sees it."""

    run_id: UUID
    status: RunStatus
    session: str
    output: str = ""
    error: str = ""
    error_code: str = ""
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The fields by the names that clients of such an API expect; only those that are known."""
        body: dict[str, Any] = {"object": "hermes.run", "run_id": str(self.run_id), "status": str(self.status), "session_id": self.session}
        if not self.status.has_ended:
            return body
        total = self.tokens_in + self.tokens_out
        usage = {"input_tokens": self.tokens_in, "output_tokens": self.tokens_out, "total_tokens": total}
        texts = {"output": self.output, "error": self.error, "error_code": self.error_code, "model": self.model}
        known = {name: text for name, text in texts.items() if text}
        return {**body, **known, "usage": usage, "cost_usd": self.cost_usd, "last_event": f"run.{self.status}"}


@dataclass(slots=True)
class RunReader:
    """Reads runs."""

    transactions: Transactions
    inbox: Inbox
    outbox: Outbox
    events: OperationsEvents
    answer_signals: AnswerSignals
    calls: ModelCalls
    ping_s: float
    closing: asyncio.Event
    """Set when the server is about to stop: a stream ends, and its client connects again."""

    async def state(self, run_id: UUID) -> RunState:
        """Return a run's state. Raises NotFound and StoreUnavailable."""
        async with self.transactions.begin() as tx:
            return await self._state(tx, run_id)

    async def frames(self, run_id: UUID, last_event_id: str) -> AsyncIterator[bytes]:
        """Yield the events of a run after the last one that its client saw, and pings, until the run has ended: then `message.delta` with
        the answer, and `run.completed`, `run.failed` or `run.cancelled`."""
        cursor, is_answer_seen = cursor_after(last_event_id), last_event_id == DELTA_ID
        pinged = time.monotonic()
        async with self.answer_signals.listen(run_id) as signal:
            while True:
                state, events = await self._look_if_up(run_id, cursor)
                for event in () if is_answer_seen else events:  # all of them came before the answer
                    yield sse_event(event.name, run_event_json(run_id, event), identity=str(event.cursor))
                    cursor = event.cursor
                if state is not None and state.status.has_ended:
                    break
                if self.closing.is_set():
                    return
                now = time.monotonic()
                if now - pinged >= self.ping_s:
                    yield b": ping\n\n"
                    pinged = now
                await signal.wait(min(MAX_LOOK_S, pinged + self.ping_s - now))
        if state.output and not is_answer_seen:
            delta = {"event": "message.delta", "run_id": str(run_id), "timestamp": time.time(), "delta": state.output}
            yield sse_event("message.delta", delta, identity=DELTA_ID)
        name = f"run.{state.status}"
        yield sse_event(name, {"event": name, "timestamp": time.time(), **state.to_json()}, identity=END_ID)

    async def _look_if_up(self, run_id: UUID, cursor: EventCursor) -> tuple[RunState | None, Sequence[OperationsEvent]]:
        """Look at a run; nothing while the database is away. The run is stored, so it goes on."""
        state, events = None, list[OperationsEvent]()
        # When a client disconnects, Starlette cancels its stream. A query that is cancelled costs its database connection.
        with suppress(StoreUnavailable), anyio.CancelScope(shield=True):
            async with self.transactions.begin() as tx:
                # The state first: the transaction that ended the run wrote its last events too, so they are there if the end is.
                state = await self._state(tx, run_id)
                events += await self.events.read_turn(tx, run_id, cursor, only_settled=not state.status.has_ended)
        return state, events

    async def _state(self, tx: Transaction, run_id: UUID) -> RunState:
        """Return a run's state with the usage of all that it caused: compaction, attempts that failed, learning."""
        state = await self._state_without_usage(tx, run_id)
        used = await self.calls.usage_of_turn(tx, run_id) if state.status.has_ended else None
        if used is None:
            return state
        cost_usd = used.micro_usd / MICRO_PER_USD
        return replace(state, tokens_in=used.tokens_in, tokens_out=used.tokens_out, cost_usd=cost_usd)

    async def _state_without_usage(self, tx: Transaction, run_id: UUID) -> RunState:
        origin = await self.inbox.origin(tx, run_id)
        if origin is None:
            raise NotFound
        answer = await self.outbox.answer(tx, run_id)
        if answer is not None:
            return answered_state(run_id, origin, answer)
        if not origin.has_ended:
            return RunState(run_id=run_id, status=RunStatus.RUNNING if origin.is_started else RunStatus.QUEUED, session=origin.channel_id)
        if not origin.is_stopped:
            return given_up_state(run_id, origin)
        return stopped_state(run_id, origin, await self.events.read_turn(tx, run_id, STREAM_START))


def answered_state(run_id: UUID, origin: TurnOrigin, answer: OutboxAnswer) -> RunState:
    """A run with an answer. Only a model's answer is its output; any other reply, such as that the credit is used up, is its error."""
    meta: Mapping[str, Any] = answer.meta
    outcome = str(meta.get("outcome", ANSWERED))
    facts = {
        "model": meta.get("llm_model", ""),
        "tokens_in": meta.get("tokens_in", 0),
        "tokens_out": meta.get("tokens_out", 0),
        "cost_usd": meta.get("cost_usd", 0.0),
    }
    if outcome == ANSWERED:
        return RunState(run_id=run_id, status=RunStatus.COMPLETED, session=origin.channel_id, output=answer.text, **facts)
    return RunState(run_id=run_id, status=RunStatus.FAILED, session=origin.channel_id, error=answer.text, error_code=outcome, **facts)


def given_up_state(run_id: UUID, origin: TurnOrigin) -> RunState:
    code = "user_erased" if origin.is_sender_erased else "given_up"
    error = "The run's user was deleted." if origin.is_sender_erased else "Hermes could not read this run's input, and gave it up."
    return RunState(run_id=run_id, status=RunStatus.FAILED, session=origin.channel_id, error=error, error_code=code)


def stopped_state(run_id: UUID, origin: TurnOrigin, events: Sequence[OperationsEvent]) -> RunState:
    """A run that was stopped, with what its model calls had cost until then."""
    calls = [event.facts for event in events if event.type == "llm_called"]
    return RunState(
        run_id=run_id,
        status=RunStatus.CANCELLED,
        session=origin.channel_id,
        error="The client stopped this run.",
        error_code="stopped",
        model=str(calls[-1].get("model", "")) if calls else "",
        tokens_in=sum(int(call.get("tokens_in", 0)) for call in calls),
        tokens_out=sum(int(call.get("tokens_out", 0)) for call in calls),
        cost_usd=sum(int(call.get("micro_usd", 0)) for call in calls) / MICRO_PER_USD,
    )


def cursor_after(last_event_id: str) -> EventCursor:
    """Return where a stream goes on. After an id that is of another stream, all events come again."""
    try:
        return EventCursor.parse(last_event_id)
    except ValueError:
        return STREAM_START


def run_event_json(run_id: UUID, event: OperationsEvent) -> dict[str, Any]:
    """Write an event of a run. Its facts are in a field of their own: a client takes a `status` beside the name for that of the run."""
    return {"event": event.name, "run_id": str(run_id), "timestamp": event.at.timestamp(), "facts": event.public_facts}
