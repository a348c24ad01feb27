"""Down a chain of backends under one deadline: the first that answers, answers. No attempt is repeated, and none is hidden.

while a further backend remains, one attempt gets at most 60 % of the time that is left, so that a hang still fails over;
until the first delta of a stream another backend may take over, after it nobody: half an answer is never passed off as a whole one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from hermes.gateway.estimate import answer_tokens, prompt_tokens
from hermes.gateway.partial import Partial
from hermes.ports.backends import Ask, Backend, BackendError, Completion, CutShort, Delta, Unreachable, Usage
from hermes.ports.calls import Attempt
from hermes.ports.models import ChainFailed

SHARE = 0.6
"""Of the time that is left, what one attempt may use while others wait behind it."""


@dataclass(frozen=True, slots=True)
class Link:
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
class Answered:
    """A completion, the link that gave it, and all attempts on the way."""

    completion: Completion
    link: Link
    attempts: tuple[Attempt, ...]
    ms: int
    first_delta_ms: int | None = None


async def complete(ask: Ask, links: Sequence[Link], *, deadline_s: float) -> Answered:
    """Return the first answer. Raises ChainFailed; its cause is the last error."""
    run = Run(ask, links, deadline_s)
    for link, timeout_s in run.links():
        began = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                completion = await link.backend.complete(run.ask_for(link), link.model, timeout_s=timeout_s)
        except TimeoutError:
            run.note(link, began, late(link, timeout_s))
        except BackendError as error:
            run.note(link, began, error)
        else:
            return run.answered(link, began, completion)
    raise run.failure()


async def stream(ask: Ask, links: Sequence[Link], *, deadline_s: float) -> AsyncGenerator[Link | Delta | Answered]:
    """Yield the first link that gives a delta, its deltas, and last of all the whole answer. Raises ChainFailed before the first delta,
    and CutShort after it."""
    run = Run(ask, links, deadline_s)
    for link, timeout_s in run.links():
        began = time.monotonic()
        first_delta: float | None = None
        said = Partial()
        # The first delta must come within the attempt's share; once it has, the rest of the deadline is this link's.
        async with aclosing(link.backend.stream(run.ask_for(link), link.model, timeout_s=run.left_s)) as deltas:
            try:
                while True:
                    async with asyncio.timeout(timeout_s - (time.monotonic() - began) if first_delta is None else run.left_s):
                        piece = await anext(deltas)
                    if isinstance(piece, Completion):
                        yield run.answered(link, began, piece, first_delta)
                        return
                    if first_delta is None:
                        first_delta = time.monotonic()
                        yield link
                    said.add(piece)
                    yield piece
            except (StopAsyncIteration, TimeoutError) as error:
                if first_delta is not None:
                    raise cut(link, run.ask_for(link), said) from error
                run.note(link, began, late(link, timeout_s))
            except CutShort:
                raise
            except BackendError as error:
                run.note(link, began, error)
    raise run.failure()


class Run:
    """One way down the chain."""

    def __init__(self, ask: Ask, links: Sequence[Link], deadline_s: float) -> None:
        self._ask, self._links = ask, links
        self._began = time.monotonic()
        self._deadline = self._began + deadline_s
        self._attempts: list[Attempt] = []
        self._last: BackendError | None = None

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def links(self) -> Iterator[tuple[Link, float]]:
        """Yield the links to try, each with its time, as long as there is a point in going on."""
        able = []
        for link in self._links:
            reason = unable(self._ask, link)
            if reason:
                self._attempts.append(Attempt(link.name, link.backend.name, link.answers_as, f"skipped: {reason}", 0))
            else:
                able.append(link)
        for at, link in enumerate(able, start=1):
            if self.is_over():
                return
            yield link, self.left_s if at == len(able) else self.left_s * SHARE

    def ask_for(self, link: Link) -> Ask:
        return replace(self._ask, max_tokens=min(self._ask.max_tokens, link.max_tokens))

    def note(self, link: Link, began: float, error: BackendError) -> None:
        self._last = error
        self._attempts.append(
            Attempt(
                link.name, link.backend.name, link.answers_as, type(error).__name__, round((time.monotonic() - began) * 1e3), error.status
            )
        )

    def answered(self, link: Link, began: float, completion: Completion, first_delta: float | None = None) -> Answered:
        now = time.monotonic()
        self._attempts.append(Attempt(link.name, link.backend.name, link.answers_as, "answered", round((now - began) * 1e3)))
        first_ms = None if first_delta is None else round((first_delta - self._began) * 1e3)
        return Answered(completion, link, tuple(self._attempts), round((now - self._began) * 1e3), first_ms)

    def is_over(self) -> bool:
        return (self._last is not None and not self._last.fails_over) or self.left_s <= 0

    def failure(self) -> ChainFailed:
        failed = ChainFailed(self._attempts, self._last)
        failed.__cause__ = self._last
        return failed


def unable(ask: Ask, link: Link) -> str:
    """Why a link cannot take a request; nothing if it can."""
    if ask.needs_tools and not link.backend.supports_tools(link.model):
        return "no tools"
    if ask.needs_vision and not link.backend.capabilities(link.model).vision:
        return "no vision"
    return ""


def late(link: Link, timeout_s: float) -> Unreachable:
    return Unreachable(f"{link.backend.name} gave no answer within {timeout_s:.1f} s", backend=link.backend.name, model=link.model)


def cut(link: Link, ask: Ask, said: Partial) -> CutShort:
    """What had been said when the time was over; a vendor bills that too, and its count is lost, so ours must not be too low."""
    message = said.message
    usage = Usage(tokens_in=prompt_tokens(ask), tokens_out=answer_tokens(message, ask.max_tokens), is_estimated=True)
    return CutShort("the answer did not end in time", backend=link.backend.name, model=link.model, partial=message, usage=usage)
