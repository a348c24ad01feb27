"""One call down a chain of backends under one deadline: the first backend that answers ends the run. Each attempt is made once and listed.

While a further link remains, one attempt gets at most 60 % of the time that is left, so that another link can follow one that hangs.
Another backend may take over until the first delta of a stream, and none after it: half an answer is never passed off as a whole one.

An attempt holds a slot of its backend; a call that waits for a slot holds nothing. The wait does not count against the deadline. It has a
limit of its own for the whole chain. While a link of another backend remains, a link may use at most 60 % of what is left of that limit;
if it gets no slot, it is passed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hermes.gateway.prices import answer_tokens, prompt_tokens
from hermes.gateway.slots import Slots
from hermes.ports.backends import (
    Backend,
    BackendError,
    Completion,
    CutShort,
    Delta,
    Garbled,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unreachable,
    Usage,
)
from hermes.ports.models import CallAttempt, Caller, ChainFailed, NoAnswer, NoCapacity
from hermes.ports.traces import NO_SPAN, ChatSpan, Tracer

ATTEMPT_SHARE = 0.6
"""The share of the time left that one attempt may use: for an answer while further links remain, for a slot while another backend does."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One model of a chain: its logical name, where it is, and how long its answers may be."""

    name: str
    backend: Backend
    model: str
    max_tokens: int

    @property
    def answers_as(self) -> str:
        """The model that really answers; it may differ from the model in the request."""
        return self.backend.answers_as(self.model)


@dataclass(frozen=True, slots=True)
class ChainAnswer:
    """A completion, the link that gave it, and all attempts on the way."""

    completion: Completion
    link: ChainLink
    attempts: tuple[CallAttempt, ...]
    ms: int
    first_delta_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallTrace:
    """How the attempts of one call are traced."""

    tracer: Tracer
    caller: Caller
    price: Callable[[ChainLink, Usage], int]
    """In micro-dollars."""

    def begin(self, link: ChainLink, ask: ModelRequest) -> AbstractContextManager[ChatSpan]:
        return self.tracer.chat(link.backend.name, link.model, ask, self.caller)


class ChainRun:
    """One run down a chain, for one call."""

    def __init__(
        self, ask: ModelRequest, links: Sequence[ChainLink], *, deadline_s: float, slots: Slots, user: str, trace: CallTrace | None = None
    ) -> None:
        self._trace = trace
        self._ask, self._links, self._deadline_s, self._slots, self._user = ask, links, deadline_s, slots, user
        self._may_wait_s, self._waited_s = slots.wait_s, 0.0
        self._began = self._attempt_began = self._deadline = 0.0
        self._attempts: list[CallAttempt] = []
        self._last_error: BackendError | None = None
        self._no_capacity: NoCapacity | None = None
        self.called: ChainLink | None = None
        """The link that has the request now. None: no backend has it yet, or each that had it failed or timed out. Then the call counts as
        unpaid, although a vendor may bill an attempt that timed out."""
        self.partial = PartialAnswer()
        """What that link has streamed so far."""

    @property
    def attempts(self) -> tuple[CallAttempt, ...]:
        """All attempts that have ended so far."""
        return tuple(self._attempts)

    @property
    def ms(self) -> int:
        """Milliseconds since the run began, without the waits for slots; 0 before it begins."""
        return round((time.monotonic() - self._began) * 1e3) if self._began else 0

    @property
    def waited_ms(self) -> int:
        """Milliseconds that the run has waited for slots."""
        return round(self._waited_s * 1e3)

    async def complete(self) -> ChainAnswer:
        """Return the first answer. Raises ChainFailed, with the last error as its cause, and NoCapacity if no backend had a free slot."""
        for link, share, wait_s in self._links_to_try():
            try:
                async with self._slot(link, wait_s) as span:
                    timeout_s = self._left_s * share
                    try:
                        async with asyncio.timeout(timeout_s):
                            completion = await link.backend.complete(self._ask_for(link), link.model, timeout_s=timeout_s)
                    except TimeoutError:
                        span.fail(self._add_failure(link, timeout_error(link, timeout_s)))
                    except BackendError as error:
                        span.fail(self._add_failure(link, error))
                    else:
                        self._note_answer(span, link, completion)
                        return self._make_answer(link, completion)
            except NoCapacity as error:
                self._pass_over(link, error)
        raise self._failure()

    async def stream(self) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
        """Yield the first link that gives a delta, its deltas, and last of all the whole answer. Raises as `complete` does before the first
        delta, and CutShort after it."""
        for link, share, wait_s in self._links_to_try():
            self.partial, first_delta, answered, timeout_s = PartialAnswer(), None, None, 0.0
            try:
                async with self._slot(link, wait_s) as span:
                    # The first delta must come within the attempt's share; after it this link may use the rest of the deadline.
                    timeout_s, ask = self._left_s * share, self._ask_for(link)
                    until = self._attempt_began + timeout_s
                    async with aclosing(link.backend.stream(ask, link.model, timeout_s=self._left_s)) as pieces:
                        while answered is None:
                            async with asyncio.timeout(until - time.monotonic()):
                                piece = await anext(pieces, None)
                            if piece is None:
                                raise early_end_error(link)
                            if isinstance(piece, Completion):
                                self._note_answer(span, link, piece)
                                answered = self._make_answer(link, piece, first_delta)
                                break
                            if first_delta is None:
                                first_delta, until = time.monotonic(), self._deadline
                                yield link
                            self.partial.add(piece)
                            yield piece
            except NoCapacity as error:
                self._pass_over(link, error)
            except CutShort:
                raise
            except (BackendError, TimeoutError) as error:
                if first_delta is not None:
                    raise self._cut_short_error(link, error) from error
                self._add_failure(link, error if isinstance(error, BackendError) else timeout_error(link, timeout_s))
            if answered is not None:
                yield answered  # the slot is free by now: the backend has nothing more to do
                return
        raise self._failure()

    def _links_to_try(self) -> Iterator[tuple[ChainLink, float, float]]:
        """Yield the links to try until a failure is final or the time is over: each with its share of the time left, and how long it may
        wait for a slot."""
        self._began = time.monotonic()
        self._deadline = self._began + self._deadline_s
        able = []
        for link in self._links:
            reason = missing_capability(self._ask, link)
            if reason:
                self._attempts.append(CallAttempt(link.name, link.backend.name, link.answers_as, f"skipped: {reason}", 0))
            else:
                able.append(link)
        for at, link in enumerate(able, start=1):
            if self._is_over():
                return
            has_other = any(further.backend.name != link.backend.name for further in able[at:])
            yield link, 1.0 if at == len(able) else ATTEMPT_SHARE, self._may_wait_s * (ATTEMPT_SHARE if has_other else 1.0)

    @asynccontextmanager
    async def _slot(self, link: ChainLink, wait_s: float) -> AsyncIterator[ChatSpan]:
        """Hold a slot of a link's backend, and trace the attempt; the wait does not count against the deadline. Raises NoCapacity."""
        async with AsyncExitStack() as stack:
            self._attempt_began = time.monotonic()
            try:
                await stack.enter_async_context(self._slots.hold(self._user, link.backend.name, wait_s=wait_s))
            finally:
                waited_s = time.monotonic() - self._attempt_began
                self._waited_s += waited_s
                self._began += waited_s
                self._deadline += waited_s
                self._may_wait_s = max(0.0, self._may_wait_s - waited_s)
            self._attempt_began = time.monotonic()
            self.called = link
            with NO_SPAN if self._trace is None else self._trace.begin(link, self._ask_for(link)) as span:
                yield span

    @property
    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _ask_for(self, link: ChainLink) -> ModelRequest:
        return replace(self._ask, max_tokens=min(self._ask.max_tokens, link.max_tokens))

    def _add_failure(self, link: ChainLink, error: BackendError) -> BackendError:
        self._last_error, self.called = error, None
        self._add(link, type(error).__name__, error.status)
        return error

    def _note_answer(self, span: ChatSpan, link: ChainLink, completion: Completion) -> None:
        if self._trace is not None:
            span.note_answer(completion, partial(self._trace.price, link))

    def _cut_short_error(self, link: ChainLink, error: BackendError | TimeoutError) -> CutShort:
        """The error with the partial answer. The vendor bills that too and its count is lost, so our estimate must not be too low."""
        ask, message = self._ask_for(link), self.partial.message
        usage = Usage(tokens_in=prompt_tokens(ask), tokens_out=answer_tokens(message, ask.max_tokens), is_estimated=True)
        what = f"the answer broke off: {error}" if isinstance(error, BackendError) else "the answer did not end in time"
        return CutShort(what, backend=link.backend.name, model=link.model, partial=message, usage=usage)

    def _pass_over(self, link: ChainLink, error: NoCapacity) -> None:
        self._no_capacity = error
        self._add(link, type(error).__name__)

    def _make_answer(self, link: ChainLink, completion: Completion, first_delta: float | None = None) -> ChainAnswer:
        self._add(link, "answered")
        first_ms = None if first_delta is None else round((first_delta - self._began) * 1e3)
        return ChainAnswer(completion, link, self.attempts, self.ms, first_ms)

    def _add(self, link: ChainLink, outcome: str, status: int | None = None) -> None:
        ms = round((time.monotonic() - self._attempt_began) * 1e3)
        self._attempts.append(CallAttempt(link.name, link.backend.name, link.answers_as, outcome, ms, status))

    def _is_over(self) -> bool:
        return (self._last_error is not None and not self._last_error.fails_over) or self._left_s <= 0

    def _failure(self) -> NoAnswer:
        if self._last_error is None and self._no_capacity is not None:
            return self._no_capacity
        failed = ChainFailed(self._attempts, self._last_error)
        failed.__cause__ = self._last_error
        return failed


def missing_capability(ask: ModelRequest, link: ChainLink) -> str:
    """Why a link cannot take a request; empty if it can."""
    if ask.needs_tools and not link.backend.supports_tools(link.model):
        return "no tools"
    if ask.needs_vision and not link.backend.capabilities(link.model).vision:
        return "no vision"
    return ""


def timeout_error(link: ChainLink, timeout_s: float) -> Unreachable:
    return Unreachable(f"{link.backend.name} gave no answer within {timeout_s:.1f} s", backend=link.backend.name, model=link.model)


def early_end_error(link: ChainLink) -> Garbled:
    return Garbled(f"the stream of {link.backend.name} ended without an answer", backend=link.backend.name, model=link.model)


class PartialAnswer:
    """An answer put together from the deltas so far, for streams that break off.

    Adding is cheap: the texts are joined only when `message` is read."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}

    def add(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text):
                self._text.append(text)
            case ReasoningDelta(text):
                self._reasoning.append(text)
            case ToolCallDelta(index, call_id, name, arguments):
                call = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
                call["id"] = call_id or call["id"]
                call["name"] = name or call["name"]
                call["arguments"].append(arguments)

    def __bool__(self) -> bool:
        return bool(self._text or self._reasoning or self._calls)

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message so far. A tool call may break off in the middle of its arguments."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._reasoning:
            message["reasoning"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": "".join(call["arguments"])}}
                for _, call in sorted(self._calls.items())
            ]
        return message
