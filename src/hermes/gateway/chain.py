"""One call down a chain of backends under one deadline: the first backend that answers ends the run. Each attempt is made once and listed.

While a further link remains, one attempt gets at most 60 % of the time that is left, so that another link can follow one that hangs.
Another backend may take over until the first delta of a stream, and none after it: half an answer is never passed off as a whole one.

A model whose breaker is open is skipped while another model of the chain can be asked. If none can, the call is worth more than the
breaker: they are asked all the same, except where the vendor itself said how long it wants not to be asked.

While a further link remains, the first token must come within the link's `first_token_s`. For that an answer that no caller streams is
streamed from the backend too, where the backend gives the same answer either way. A server that may lose token ids in its streams is asked
for the whole answer; if that takes longer, Hermes looks whether the server is there at all.

An attempt holds a slot of its backend; a call that waits for a slot holds nothing. The wait does not count against the deadline. It has a
limit of its own for the whole chain. While a link of another backend remains, a link may use at most 60 % of what is left of that limit;
if it gets no slot, it is passed over.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from hermes.gateway.prices import answer_tokens, prompt_tokens
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import UnwellModels
from hermes.graph.context import without_tool_blocks
from hermes.ports.backends import (
    TOKEN_MISMATCH,
    UNREACHABLE,
    Backend,
    BackendError,
    Completion,
    CutShort,
    Delta,
    Garbled,
    ModelRequest,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Unreachable,
    Usage,
)
from hermes.ports.models import CallAttempt, Caller, ChainFailed, ModelAddress, ModelCondition, NoAnswer, NoCapacity
from hermes.ports.traces import NO_SPAN, ChatSpan, Tracer

log = structlog.get_logger()

ATTEMPT_SHARE = 0.6
"""The share of the time left that one attempt may use: for an answer while further links remain, for a slot while another backend does."""
TIMED_OUT_SHARE = 0.9
"""An attempt that took so much of its time limit has failed because of it."""
BREAKER_OPEN = "breaker open"
KEY_REFUSED = "key refused"
IS_THERE_S = 2.0
"""How long a server may take to say that it is there."""


@dataclass(frozen=True, slots=True)
class BackendPatience:
    """How long a chain waits for the first token of a backend before it asks the next link."""

    first_token_s: float = math.inf
    is_same_streamed: bool = False
    """Whether its answer is the same if it is streamed, so that its first token can be waited for without a client that streams."""
    is_same_without_tools: bool = False
    """The same for requests without tools alone: with them, some servers lose token ids in a stream."""
    is_checked: bool = False
    """Whether a server whose whole answer takes longer than `first_token_s` is asked if it is there at all."""


EVERY_PATIENCE = BackendPatience()


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One model of a chain: its logical name, where it is, and how long its answers may be."""

    name: str
    backend: Backend
    model: str
    max_tokens: int
    patience: BackendPatience = EVERY_PATIENCE

    @property
    def address(self) -> ModelAddress:
        return ModelAddress(self.backend.name, self.model)

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
        self,
        ask: ModelRequest,
        links: Sequence[ChainLink],
        *,
        deadline_s: float,
        slots: Slots,
        user: str,
        trace: CallTrace | None = None,
        unwell: UnwellModels | None = None,
        lossy_streams: set[ModelAddress] | None = None,
        probe: Callable[[ChainLink], None] | None = None,
    ) -> None:
        """`lossy_streams` are the models whose streams have lost token ids before: they are not streamed for Hermes' own sake. `probe`
        starts a call that finds out whether a model that timed out answers again; without it this call is the one."""
        self._probe = probe
        self._lossy_streams = lossy_streams if lossy_streams is not None else set()
        self._trace, self._unwell = trace, unwell or UnwellModels()
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

    @property
    def likely_link(self) -> ChainLink:
        """The link that is asked first, as far as the breakers are known now."""
        able = [link for link in self._links if not missing_capability(self._ask, link)]
        resting = self._unwell.to_skip([link.address for link in able])
        return next((link for link in able if link.address not in resting), self._links[0])

    async def complete(self) -> ChainAnswer:
        """Return the first answer. Raises ChainFailed, with the last error as its cause, and NoCapacity if no backend had a free slot."""
        for link, share, wait_s in self._links_to_try():
            if not await self._may_ask(link, is_last=share == 1.0):
                continue
            answered, failed, timeout_s = None, None, 0.0
            try:
                async with self._slot(link, wait_s) as span:
                    timeout_s = self._left_s * share
                    try:
                        async with asyncio.timeout(timeout_s):
                            completion = await self._ask_link(link, timeout_s, is_last=share == 1.0)
                    except (BackendError, TimeoutError) as error:
                        failed = self._add_failure(link, error if isinstance(error, BackendError) else timeout_error(link, timeout_s))
                        span.fail(failed)
                    else:
                        self._note_answer(span, link, completion)
                        answered = self._make_answer(link, completion)
            except NoCapacity as error:
                self._pass_over(link, error)
            if answered is not None:
                await self._unwell.note_answer(link.address)
                return answered
            if failed is not None:
                await self._note_failure(link, failed, timeout_s)
        raise self._failure()

    async def stream(self) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
        """Yield the first link that gives a delta, its deltas, and last of all the whole answer. Raises as `complete` does before the first
        delta, and CutShort after it."""
        for link, share, wait_s in self._links_to_try():
            if not await self._may_ask(link, is_last=share == 1.0):
                continue
            self.partial, first_delta, answered, timeout_s = PartialAnswer(), None, None, 0.0
            try:
                async with self._slot(link, wait_s) as span:
                    # The first delta must come within the attempt's share, and soon; after it this link may use the rest of the deadline.
                    timeout_s, ask = self._first_token_s(link, share), self._ask_for(link)
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
                failed = self._add_failure(link, error if isinstance(error, BackendError) else timeout_error(link, timeout_s))
                await self._note_failure(link, failed, timeout_s)
            if answered is not None:
                await self._unwell.note_answer(link.address)
                yield answered  # the slot is free by now: the backend has nothing more to do
                return
        raise self._failure()

    def _links_to_try(self) -> Iterator[tuple[ChainLink, float, float]]:
        """Yield the links to try until a failure is final or the time is over: each with its share of the time left, and how long it may
        wait for a slot."""
        self._began = time.monotonic()
        self._deadline = self._began + self._deadline_s
        able = self._able_links()
        for at, link in enumerate(able, start=1):
            if self._is_over():
                return
            further = able[at:]
            has_other = any(other.backend.name != link.backend.name for other in further)
            yield link, ATTEMPT_SHARE if further else 1.0, self._may_wait_s * (ATTEMPT_SHARE if has_other else 1.0)

    def _able_links(self) -> list[ChainLink]:
        """Return the links that can take the request and whose breaker lets it pass; the others are skipped."""
        able = []
        for link in self._links:
            reason = missing_capability(self._ask, link)
            if reason:
                self._skip(link, reason)
            else:
                able.append(link)
        resting = self._unwell.to_skip([link.address for link in able])
        for link in able:
            if link.address in resting:
                self._skip(link, BREAKER_OPEN)
        if resting and len(resting) == len({link.address for link in able}):
            self._last_error = resting_error(resting)
        return [link for link in able if link.address not in resting]

    async def _may_ask(self, link: ChainLink, *, is_last: bool) -> bool:
        """Whether a link is asked now. The last one is, because the caller has nothing to lose; but no key is tried twice."""
        if link.backend.name in self._unwell.refused:
            self._skip(link, KEY_REFUSED)
            return False
        if is_last:
            return True
        if await self._unwell.may_ask(link.address):
            if self._probe is None or not self._unwell.timed_out(link.address):
                return True
            self._probe(link)
        self._skip(link, BREAKER_OPEN)
        return False

    def _skip(self, link: ChainLink, reason: str) -> None:
        self._attempts.append(CallAttempt(link.name, link.backend.name, link.answers_as, f"skipped: {reason}", 0))

    def _first_token_s(self, link: ChainLink, share: float) -> float:
        """How long a stream may take to its first delta. The last link has all the time that is left."""
        return self._left_s if share == 1.0 else min(self._left_s * share, link.patience.first_token_s)

    async def _ask_link(self, link: ChainLink, timeout_s: float, *, is_last: bool) -> Completion:
        """Return a link's whole answer. While a further link remains, its first token must come soon."""
        ask, patience = self._ask_for(link), link.patience
        if is_last or patience.first_token_s >= timeout_s:
            return await link.backend.complete(ask, link.model, timeout_s=timeout_s)
        if patience.is_same_streamed:
            return await self._ask_as_stream(link, ask, timeout_s)
        if patience.is_same_without_tools and not ask.needs_tools and link.address not in self._lossy_streams:
            completion = await self._ask_as_stream(link, ask, timeout_s)
            if TOKEN_MISMATCH in completion.extra:
                self._lossy_streams.add(link.address)
                log.warning("stream_lost_token_ids", backend=link.backend.name, model=link.model)
            return completion
        if patience.is_checked:
            return await self._ask_if_there(link, ask, timeout_s)
        return await link.backend.complete(ask, link.model, timeout_s=timeout_s)

    async def _ask_if_there(self, link: ChainLink, ask: ModelRequest, timeout_s: float) -> Completion:
        """Return the whole answer. If it is not there after `first_token_s`, look whether the server is; if not, give up."""
        loop, limit, looks = asyncio.get_running_loop(), asyncio.timeout(None), set[asyncio.Task[None]]()

        async def look() -> None:
            findings = await link.backend.health_check(timeout_s=IS_THERE_S)
            if any(finding.code == UNREACHABLE for finding in findings):
                limit.reschedule(loop.time())

        timer = loop.call_later(link.patience.first_token_s, lambda: looks.add(loop.create_task(look())))
        try:
            async with limit:
                return await link.backend.complete(ask, link.model, timeout_s=timeout_s)
        except TimeoutError:
            raise timeout_error(link, link.patience.first_token_s) from None
        finally:
            timer.cancel()
            for task in looks:
                task.cancel()

    async def _ask_as_stream(self, link: ChainLink, ask: ModelRequest, timeout_s: float) -> Completion:
        """Return the whole answer, streamed from the backend so that its first token can be waited for."""
        patience = link.patience
        try:
            async with aclosing(link.backend.stream(ask, link.model, timeout_s=timeout_s)) as pieces:
                try:
                    async with asyncio.timeout(patience.first_token_s):
                        piece = await anext(pieces, None)
                except TimeoutError:
                    raise timeout_error(link, patience.first_token_s) from None
                while not isinstance(piece, Completion):
                    if piece is None:
                        raise early_end_error(link)
                    self.partial.add(piece)
                    piece = await anext(pieces, None)
                return piece
        except CutShort as error:  # no caller saw a part of it, so another link may answer
            raise Unreachable(str(error), backend=error.backend, model=error.model) from error

    async def _note_failure(self, link: ChainLink, error: BackendError, timeout_s: float) -> None:
        elapsed_s = time.monotonic() - self._attempt_began
        is_short = timeout_s < link.patience.first_token_s and elapsed_s > TIMED_OUT_SHARE * timeout_s
        await self._unwell.note_failure(link.address, error, is_short=is_short)

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

    def leaves_out_tools(self, link: ChainLink) -> bool:
        """Whether a link is asked without tools and without the tool calls of the history, because it takes none."""
        return self._ask.may_leave_out_tools and self._ask.needs_tools and not link.backend.supports_tools(link.model)

    def _ask_for(self, link: ChainLink) -> ModelRequest:
        ask = replace(self._ask, max_tokens=min(self._ask.max_tokens, link.max_tokens))
        if not self.leaves_out_tools(link):
            return ask
        return replace(ask, messages=without_tool_blocks(ask.messages), tools=(), tool_choice=None)

    def _add_failure(self, link: ChainLink, error: BackendError) -> BackendError:
        self._last_error, self.called, self.partial = error, None, PartialAnswer()
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
    if ask.needs_tools and not ask.may_leave_out_tools and not link.backend.supports_tools(link.model):
        return "no tools"
    if ask.needs_vision and not link.backend.capabilities(link.model).vision:
        return "no vision"
    return ""


def timeout_error(link: ChainLink, timeout_s: float) -> Unreachable:
    return Unreachable(f"{link.backend.name} gave no answer within {timeout_s:.1f} s", backend=link.backend.name, model=link.model)


def resting_error(resting: Mapping[ModelAddress, ModelCondition]) -> RateLimited:
    """The error of a call that no model may be asked for: all vendors said how long."""
    model, condition = min(resting.items(), key=lambda found: found[1].wait_s or 0.0)
    wait_s = condition.wait_s or 0.0
    return RateLimited(
        f"{model.backend} wants not to be asked for another {wait_s:.0f} s", backend=model.backend, model=model.model, retry_after_s=wait_s
    )


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
            case ReasoningDelta(text) if text:
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
