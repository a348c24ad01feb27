"""A limited backend: so many calls at once, fair between users, and no slot is lost however a call ends."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from hermes.gateway.chain import Answered, Link, complete, stream
from hermes.gateway.limited import Limited
from hermes.gateway.slots import Slots
from hermes.ports.backends import (
    Ask,
    BackendError,
    Capabilities,
    Check,
    CheckLevel,
    Completion,
    Delta,
    Overloaded,
    TextDelta,
    Unreachable,
    Usage,
)

HEALTH = [Check("ok", CheckLevel.INFO, "well")]


def ask(user: str | None = None) -> Ask:
    return Ask(messages=({"role": "user", "content": "hello"},), max_tokens=10, user=user)


class Slow:
    """A backend whose calls last until they are let go, and which counts those that are under way."""

    def __init__(self, name: str = "gpu", error: type[BackendError] | None = None) -> None:
        self.name, self.error = name, error
        self.go = asyncio.Event()
        self.running = self.most = 0
        self.asked: list[tuple[str | None, float]] = []
        self.is_closed = False

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(tools=False, context=7)

    def answers_as(self, model: str) -> str:
        return f"{self.name}/{model}"

    def supports_tools(self, model: str) -> bool:
        return False

    async def complete(self, ask: Ask, model: str, *, timeout_s: float) -> Completion:
        async with aclosing(self.stream(ask, model, timeout_s=timeout_s)) as pieces:
            [completion] = [piece async for piece in pieces if isinstance(piece, Completion)]
            return completion

    async def stream(self, ask: Ask, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        self.asked.append((ask.user, timeout_s))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            yield TextDelta("hi")
            await self.go.wait()
            if self.error is not None:
                raise self.error("no", backend=self.name, model=model)
            message = {"role": "assistant", "content": "hi"}
            yield Completion(message=message, finish_reason="stop", usage=Usage(), model=model, request_digest="")
        finally:
            self.running -= 1

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[Check]:
        return HEALTH

    async def aclose(self) -> None:
        self.is_closed = True


async def soon() -> None:
    """Let everybody come as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_so_many_calls_are_under_way_at_once_and_all_are_answered() -> None:
    slow, slots = Slow(), Slots(3)
    limited = Limited(slow, slots)
    calls = [asyncio.create_task(limited.complete(ask(), "m", timeout_s=5)) for _ in range(12)]
    await soon()
    assert (slow.running, slots.waiting) == (3, 9)
    slow.go.set()
    answers = await asyncio.gather(*calls)
    assert ([answer.message["content"] for answer in answers], slow.most, slots.used) == (["hi"] * 12, 3, 0)


@pytest.mark.parametrize(("wait_s", "timeout_s"), [(0.02, 60.0), (60.0, 0.3)])
async def test_a_call_without_a_slot_in_its_time_is_overload_and_the_chain_goes_on(wait_s: float, timeout_s: float) -> None:
    slow = Slow()
    limited = Limited(slow, Slots(1, wait_s=wait_s))
    other = Slow("other")
    other.go.set()
    async with aclosing(limited.stream(ask(), "m", timeout_s=60)) as held:
        await anext(held)
        with pytest.raises(Overloaded, match=r"^all 1 slots of gpu were taken for \d+\.\d s$") as overloaded:
            await limited.complete(ask(), "m", timeout_s=timeout_s)
        assert (overloaded.value.backend, overloaded.value.model, overloaded.value.fails_over) == ("gpu", "m", True)
        links = [Link("a", limited, "m", 10), Link("b", other, "m", 10)]
        answered = await complete(ask(), links, deadline_s=timeout_s / 0.6)
        assert [(attempt.name, attempt.outcome) for attempt in answered.attempts] == [("a", "Overloaded"), ("b", "answered")]
        async with aclosing(stream(ask(), links, deadline_s=timeout_s / 0.6)) as pieces:
            streamed = [piece async for piece in pieces if isinstance(piece, Answered)]
        assert [(attempt.name, attempt.outcome) for attempt in streamed[0].attempts] == [("a", "Overloaded"), ("b", "answered")]
    assert len(slow.asked) == 1


async def test_a_full_queue_is_overload_at_once() -> None:
    slow = Slow()
    limited = Limited(slow, Slots(1, wait_s=60, longest_queue=0))
    async with aclosing(limited.stream(ask(), "m", timeout_s=60)) as held:
        await anext(held)
        with pytest.raises(Overloaded):
            await asyncio.wait_for(limited.complete(ask(), "m", timeout_s=60), 1)


async def test_the_time_that_a_call_has_waited_is_no_longer_its_backends() -> None:
    slow = Slow()
    limited = Limited(slow, Slots(1))
    first = asyncio.create_task(limited.complete(ask(), "m", timeout_s=5))
    await soon()
    second = asyncio.create_task(limited.complete(ask(), "m", timeout_s=5))
    await asyncio.sleep(0.05)
    slow.go.set()
    await asyncio.gather(first, second)
    [(_, whole_s), (_, rest_s)] = slow.asked
    assert 4.9 < whole_s <= 5
    assert 4 < rest_s <= 4.95


async def test_a_stream_holds_its_slot_until_it_is_closed() -> None:
    slow, slots = Slow(), Slots(1)
    limited = Limited(slow, slots)
    async with aclosing(limited.stream(ask(), "m", timeout_s=5)) as pieces:
        assert await anext(pieces) == TextDelta("hi")
        assert slots.used == 1
    assert (slots.used, slow.running) == (0, 0)

    slow.go.set()
    async with aclosing(limited.stream(ask(), "m", timeout_s=5)) as pieces:
        heard = [piece async for piece in pieces]
    assert ([type(piece) for piece in heard], slots.used) == ([TextDelta, Completion], 0)


async def test_an_error_of_the_backend_is_passed_on_and_frees_the_slot() -> None:
    slow, slots = Slow(error=Unreachable), Slots(1)
    slow.go.set()
    limited = Limited(slow, slots)
    with pytest.raises(Unreachable):
        await limited.complete(ask(), "m", timeout_s=5)
    with pytest.raises(Unreachable):
        [piece async for piece in limited.stream(ask(), "m", timeout_s=5)]
    assert slots.used == 0


async def test_users_are_served_in_turns() -> None:
    slow = Slow()
    limited = Limited(slow, Slots(1))
    first = asyncio.create_task(limited.complete(ask("first"), "m", timeout_s=5))
    await soon()
    users = ["greedy", "greedy", "greedy", "b", None]
    calls = [asyncio.create_task(limited.complete(ask(user), "m", timeout_s=5)) for user in users]
    await soon()
    slow.go.set()
    await asyncio.gather(first, *calls)
    assert [user for user, _ in slow.asked] == ["first", "greedy", "b", None, "greedy", "greedy"]


@pytest.mark.parametrize("seed", range(10))
async def test_no_slot_is_lost_whoever_is_cancelled_when(seed: int) -> None:
    rng, slow, slots = random.Random(seed), Slow(), Slots(3, wait_s=0.01)
    limited = Limited(slow, slots)

    async def streamed() -> None:
        async with aclosing(limited.stream(ask(rng.choice("abc")), "m", timeout_s=0.05)) as pieces:
            async for _ in pieces:
                await asyncio.sleep(rng.random() / 500)

    calls = [
        asyncio.create_task(streamed() if at % 2 else limited.complete(ask(rng.choice("abc")), "m", timeout_s=0.05))  # type: ignore[arg-type]
        for at in range(60)
    ]
    for _ in range(30):
        await asyncio.sleep(rng.random() / 1_000)
        rng.choice(calls).cancel()
    slow.go.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {type(None), Completion, Overloaded, asyncio.CancelledError}
    assert (slots.used, slots.waiting, slow.running) == (0, 0, 0)
    assert slow.most <= 3


async def test_everything_else_is_the_backends_own() -> None:
    slow = Slow()
    limited = Limited(slow, Slots(1))
    assert (limited.name, limited.capabilities("m"), limited.supports_tools("m")) == ("gpu", Capabilities(tools=False, context=7), False)
    assert limited.answers_as("m") == "gpu/m"
    async with aclosing(limited.stream(ask(), "m", timeout_s=5)) as held:
        await anext(held)
        assert await limited.health_check() == HEALTH  # takes no slot
    await limited.aclose()
    assert slow.is_closed
