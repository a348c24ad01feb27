"""Down a chain of backends under one deadline: the first that answers, answers. No attempt is repeated, and none is hidden.

while a further backend remains, one attempt gets at most 60 % of the time that is left, so that a hang still fails over;
until the first delta of a stream another backend may take over, after it nobody: half an answer is never passed off as a whole one.

An attempt holds a slot of its backend, and a call that waits for one holds nothing. The deadline's clock stands still meanwhile; waiting
has a time of its own for the whole chain, of which a link gets at most 60 % while another backend remains. Then it is passed over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace

from hermes.gateway.partial_answer import PartialAnswer
from hermes.gateway.slots import Slots
from hermes.gateway.token_estimate import answer_tokens, prompt_tokens
from hermes.ports.backends import Backend, BackendError, Completion, CutShort, Delta, ModelRequest, Unreachable, Usage
from hermes.ports.model_calls import CallAttempt
from hermes.ports.models import ChainFailed, NoAnswer, NoCapacity

ATTEMPT_SHARE = 0.6
"""Of the time that is left, for an answer or for a slot, what one attempt may use while others wait behind it."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One model of a chain: its logical name, where it is, and how long its answers may be."""

    name: str
    backend: Backend
    model: str
    max_tokens: int

    @property
    def answers_as(self) -> str:
        """What answers there, which need not be what is asked for."""
        return self.backend.answers_as(self.model)


@dataclass(frozen=True, slots=True)
class ChainAnswer:
    """A completion, the link that gave it, and all attempts on the way."""

    completion: Completion
    link: ChainLink
    attempts: tuple[CallAttempt, ...]
    ms: int
    first_delta_ms: int | None = None


class ChainRun:
    """One way down a chain, to be gone once."""

    def __init__(self, ask: ModelRequest, links: Sequence[ChainLink], *, deadline_s: float, slots: Slots, user: str) -> None:
        self._ask, self._links, self._deadline_s, self._slots, self._user = ask, links, deadline_s, slots, user
        self._may_wait_s = slots.wait_s
        self._began = self._attempt_began = self._deadline = 0.0
        self._attempts: list[CallAttempt] = []
        self._last: BackendError | None = None
        self._full: NoCapacity | None = None
        self.asked: ChainLink | None = None
        """The link that is being asked. None: none is, or all that were have refused; then nothing can have been paid."""

    @property
    def attempts(self) -> tuple[CallAttempt, ...]:
        """All that have ended so far."""
        return tuple(self._attempts)

    async def complete(self) -> ChainAnswer:
        """Return the first answer. Raises ChainFailed, whose cause is the last error; and NoCapacity if no backend was asked for want of a
        slot."""
        for link, share, wait_s in self._able():
            try:
                async with self._slot(link, wait_s):
                    timeout_s = self._left_s * share
                    try:
                        async with asyncio.timeout(timeout_s):
                            completion = await link.backend.complete(self._ask_for(link), link.model, timeout_s=timeout_s)
                    except TimeoutError:
                        self._note(link, timeout_error(link, timeout_s))
                    except BackendError as error:
                        self._note(link, error)
                    else:
                        return self._answered(link, completion)
            except NoCapacity as error:
                self._pass_over(link, error)
        raise self._failure()

    async def stream(self) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
        """Yield the first link that gives a delta, its deltas, and last of all the whole answer. Raises as `complete` does before the first
        delta, and CutShort after it."""
        for link, share, wait_s in self._able():
            answered: ChainAnswer | None = None
            try:
                async with self._slot(link, wait_s), aclosing(self._tell(link, self._left_s * share)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, ChainAnswer):
                            answered = piece
                            break
                        yield piece
            except NoCapacity as error:
                self._pass_over(link, error)
            if answered is not None:
                yield answered  # holds no slot: what follows is not the backend's business
                return
        raise self._failure()

    async def _tell(self, link: ChainLink, timeout_s: float) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
        """One attempt at a stream. Ends without an answer where another link may be asked."""
        first_delta: float | None = None
        said = PartialAnswer()
        # The first delta must come within the attempt's share; once it has, the rest of the deadline is this link's.
        async with aclosing(link.backend.stream(self._ask_for(link), link.model, timeout_s=self._left_s)) as deltas:
            try:
                while True:
                    used_s = time.monotonic() - self._attempt_began
                    async with asyncio.timeout(timeout_s - used_s if first_delta is None else self._left_s):
                        piece = await anext(deltas)
                    if isinstance(piece, Completion):
                        yield self._answered(link, piece, first_delta)
                        return
                    if first_delta is None:
                        first_delta = time.monotonic()
                        yield link
                    said.add(piece)
                    yield piece
            except (StopAsyncIteration, TimeoutError) as error:
                if first_delta is not None:
                    raise cut_short_error(link, self._ask_for(link), said) from error
                self._note(link, timeout_error(link, timeout_s))
            except CutShort:
                raise
            except BackendError as error:
                self._note(link, error)

    def _able(self) -> Iterator[tuple[ChainLink, float, float]]:
        """Yield the links to try as long as there is a point in going on, each with its share of the time that is left, and how long it may
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
    async def _slot(self, link: ChainLink, wait_s: float) -> AsyncIterator[None]:
        """Hold a slot of a link's backend; the deadline does not come nearer while the call waits for it. Raises NoCapacity."""
        async with AsyncExitStack() as stack:
            self._attempt_began = time.monotonic()
            try:
                await stack.enter_async_context(self._slots.hold(self._user, link.backend.name, wait_s=wait_s))
            finally:
                waited_s = time.monotonic() - self._attempt_began
                self._began += waited_s
                self._deadline += waited_s
                self._may_wait_s = max(0.0, self._may_wait_s - waited_s)
            self._attempt_began = time.monotonic()
            self.asked = link
            yield

    @property
    def _left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _ask_for(self, link: ChainLink) -> ModelRequest:
        return replace(self._ask, max_tokens=min(self._ask.max_tokens, link.max_tokens))

    def _note(self, link: ChainLink, error: BackendError) -> None:
        self._last, self.asked = error, None
        self._add(link, type(error).__name__, error.status)

    def _pass_over(self, link: ChainLink, error: NoCapacity) -> None:
        self._full = error
        self._add(link, type(error).__name__)

    def _answered(self, link: ChainLink, completion: Completion, first_delta: float | None = None) -> ChainAnswer:
        self._add(link, "answered")
        first_ms = None if first_delta is None else round((first_delta - self._began) * 1e3)
        return ChainAnswer(completion, link, self.attempts, round((time.monotonic() - self._began) * 1e3), first_ms)

    def _add(self, link: ChainLink, outcome: str, status: int | None = None) -> None:
        ms = round((time.monotonic() - self._attempt_began) * 1e3)
        self._attempts.append(CallAttempt(link.name, link.backend.name, link.answers_as, outcome, ms, status))

    def _is_over(self) -> bool:
        return (self._last is not None and not self._last.fails_over) or self._left_s <= 0

    def _failure(self) -> NoAnswer:
        if self._last is None and self._full is not None:
            return self._full
        failed = ChainFailed(self._attempts, self._last)
        failed.__cause__ = self._last
        return failed


def missing_capability(ask: ModelRequest, link: ChainLink) -> str:
    """Why a link cannot take a request; nothing if it can."""
    if ask.needs_tools and not link.backend.supports_tools(link.model):
        return "no tools"
    if ask.needs_vision and not link.backend.capabilities(link.model).vision:
        return "no vision"
    return ""


def timeout_error(link: ChainLink, timeout_s: float) -> Unreachable:
    return Unreachable(f"{link.backend.name} gave no answer within {timeout_s:.1f} s", backend=link.backend.name, model=link.model)


def cut_short_error(link: ChainLink, ask: ModelRequest, said: PartialAnswer) -> CutShort:
    """What had been said when the time was over; a vendor bills that too, and its count is lost, so ours must not be too low."""
    message = said.message
    usage = Usage(tokens_in=prompt_tokens(ask), tokens_out=answer_tokens(message, ask.max_tokens), is_estimated=True)
    return CutShort("the answer did not end in time", backend=link.backend.name, model=link.model, partial=message, usage=usage)
