"""Traces: what Hermes did for one message, as a tree of spans that all processes write to. An operator may send them to a tracing tool.

    accept  ┬─ turn ─┬─ step ─┬─ chat, one for each model that is asked
            │        │        ├─ tool
            │        │        └─ retrieval
            │        └─ step …
            └─ delivery, also a later one by another worker

A span is a context manager: it lasts as long as its block, and an error that leaves the block is its error. Spans that begin inside the
block are its children. Between processes the parent is a *traceparent*: a short text (W3C Trace Context) that is stored with the message.

Fails open and never waits: nothing that a tracer or its collector does changes a turn. Texts of users and models are kept out, unless the
operator asks for them; so a caller passes them in `show_texts` and the `note_` methods that say so, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, Self
from uuid import UUID

from hermes.ports.backends import Completion, ModelRequest, Usage
from hermes.ports.inbox import Claim
from hermes.ports.models import Caller
from hermes.ports.outbox import OutboxMessage
from hermes.ports.tools import ToolCall, ToolResult
from hermes.turn import Envelope

SpanFact = str | int | float | bool | UUID | None


class TraceSpan(Protocol):
    """One piece of work in a trace."""

    @property
    def traceparent(self) -> str | None:
        """This span as the parent of spans elsewhere; None if nothing is traced."""
        ...

    def note(self, **facts: SpanFact) -> None:
        """Add names and numbers, by Hermes' own names; no texts of users or models. None is left out."""
        ...

    def fail(self, error: BaseException) -> None:
        """Mark the span as failed, by the error's name: for an error that does not leave the block."""
        ...

    def link(self, traceparent: str | None) -> None:
        """Refer to a span of another trace, which belongs to this work and is not its parent."""
        ...

    def show_texts(self, *, question: str, answer: str) -> None:
        """Add what was asked and answered, if the operator captures content."""
        ...


class ChatSpan(TraceSpan, Protocol):
    """One request to one model."""

    def note_answer(self, completion: Completion, price: Callable[[Usage], int]) -> None:
        """Add the answer: tokens, finish reason, its cost in micro-dollars by `price`, and its text if content is captured."""
        ...


class ToolSpan(TraceSpan, Protocol):
    """One tool call."""

    def note_result(self, result: ToolResult) -> None:
        """Add how it ended, and its text if content is captured."""
        ...


class Tracer(Protocol):
    """Begins spans. Each method may be called anywhere, and costs next to nothing if nothing is traced."""

    def accept(self, envelope: Envelope) -> AbstractContextManager[TraceSpan]:
        """The root: a message is stored. Its `traceparent` is stored with the message."""
        ...

    def turn(self, claim: Claim) -> AbstractContextManager[TraceSpan]:
        """One attempt to answer a message, in the trace of its accept. Messages that are joined to it are linked."""
        ...

    def step(self, name: str) -> AbstractContextManager[TraceSpan]:
        """One of the ten steps."""
        ...

    def request(self, caller: Caller) -> AbstractContextManager[TraceSpan]:
        """The root: a client asks for completions. Safe in an async generator: its children name it as their parent (`Caller.traceparent`),
        and no other span becomes its child."""
        ...

    def chat(self, backend: str, model: str, request: ModelRequest, caller: Caller) -> AbstractContextManager[ChatSpan]:
        """One request to a model. Safe in an async generator: it is never the parent of other spans."""
        ...

    def tool(self, call: ToolCall) -> AbstractContextManager[ToolSpan]:
        """One tool call."""
        ...

    def retrieval(self, source: str, query: str) -> AbstractContextManager[TraceSpan]:
        """One search in what Hermes remembers. The query is shown only if content is captured."""
        ...

    def delivery(self, message: OutboxMessage) -> AbstractContextManager[TraceSpan]:
        """One round of sending an answer, in the trace of the message that it answers. A proactive message begins a trace of its own, which
        is linked to that of the message that asked for it."""
        ...

    def job(self, name: str, turn_id: UUID, traceparent: str | None) -> AbstractContextManager[TraceSpan]:
        """Work after a turn, such as learning from it: a trace of its own, linked to the turn's."""
        ...


class NoSpan:
    """A span of nothing, and its own context manager: one object serves all."""

    __slots__ = ()
    traceparent: str | None = None

    def note(self, *_: object, **__: object) -> None:
        """Keep nothing."""

    fail = link = show_texts = note_answer = note_result = __exit__ = note

    def __enter__(self) -> Self:
        return self


NO_SPAN = NoSpan()


class NoTracer:
    """The port Tracer when nothing is traced."""

    __slots__ = ()

    def accept(self, *_: object, **__: object) -> NoSpan:
        return NO_SPAN

    turn = step = request = chat = tool = retrieval = delivery = job = accept


NO_TRACER: Tracer = NoTracer()
