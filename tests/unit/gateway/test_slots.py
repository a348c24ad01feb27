"""Slots: so many at once, fair between users and backends, and none is ever lost, however a caller ends."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from hermes.gateway.slots import Slots, max_slots_per_backend
from hermes.ports.models import NoCapacity


async def test_so_many_run_at_once_and_no_more() -> None:
    slots, running, most = Slots(3), Counter[str](), Counter[str]()

    async def call(backend: str) -> None:
        async with slots.hold("a", backend):
            running[backend] += 1
            most[backend] = max(most[backend], running[backend])
            most["all"] = max(most["all"], running.total())
            await asyncio.sleep(0.001)
            running[backend] -= 1

    await asyncio.gather(*(call(backend) for backend in ["x", "y"] * 30))
    assert (most, slots.used, slots.waiting) == ({"x": 2, "y": 2, "all": 3}, 0, 0)


@pytest.mark.parametrize(
    ("count", "own", "most"), [(30, None, 20), (30, 4, 4), (30, 25, 20), (3, None, 2), (2, None, 1), (1, None, 1), (1, 8, 1)]
)
def test_one_backend_holds_two_thirds_at_most_and_no_more_than_its_own(count: int, own: int | None, most: int) -> None:
    assert max_slots_per_backend(count, own) == most


async def test_a_backend_that_hangs_leaves_a_third_to_the_others_whatever_waits_for_it() -> None:
    slots, order = Slots(30, max_queue=20), list[str]()
    hanging = [asyncio.create_task(hold_for(slots, "a", [], "sick", asyncio.Event())) for _ in range(50)]
    await asyncio.sleep(0)
    assert (slots.used, slots.waiting) == (20, 20)
    async with AsyncExitStack() as stack:
        for number in range(10):
            await stack.enter_async_context(slots.hold(f"{number}", "well"))
        assert (slots.used, slots.has_room("well"), slots.has_room("sick")) == (30, False, False)
        waiting = asyncio.create_task(hold_for(slots, "b", order, "well"))  # beside a queue for the sick one that is full
        await asyncio.sleep(0)
        assert slots.waiting == 21
    await waiting
    assert order == ["b"]
    for task in hanging:
        task.cancel()
    ended = await asyncio.gather(*hanging, return_exceptions=True)
    assert Counter(type(end) for end in ended) == {asyncio.CancelledError: 40, NoCapacity: 10}
    assert (slots.used, slots.waiting) == (0, 0)


async def test_a_caller_gives_up_after_its_wait_and_the_others_go_on() -> None:
    slots = Slots(1, wait_s=0.01)
    async with slots.hold("a", "x"):
        with pytest.raises(NoCapacity, match=r"no slot of x became free within 0\.01 s"):
            async with slots.hold("b", "x"):
                pass
        with pytest.raises(NoCapacity, match="within 0 s"):
            async with slots.hold("b", "x", wait_s=0):
                pass
        assert (slots.used, slots.waiting) == (1, 0)
    async with slots.hold("b", "x"):
        assert slots.used == 1


async def test_a_queue_that_is_too_long_is_refused_at_once() -> None:
    slots = Slots(1, wait_s=10, max_queue=2)
    async with slots.hold("a", "x"):
        waiting = [asyncio.create_task(hold_for(slots, "b", [])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NoCapacity, match="2 calls of x wait already"):
            async with slots.hold("c", "x"):
                pass
    await asyncio.gather(*waiting)


async def hold_for(slots: Slots, user: str, order: list[str], backend: str = "x", until: asyncio.Event | None = None) -> None:
    async with slots.hold(user, backend):
        order.append(user)
        await (until.wait() if until is not None else asyncio.sleep(0))


async def test_users_are_served_in_turns_so_that_one_who_asks_for_much_waits_for_themselves() -> None:
    slots, order = Slots(1), list[str]()
    async with slots.hold("first", "x"):
        tasks = [asyncio.create_task(hold_for(slots, user, order)) for user in ["greedy"] * 6 + ["b", "c"]]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["greedy", "b", "c", *["greedy"] * 5]


async def test_a_user_whose_backend_has_no_room_is_passed_over_and_keeps_the_place() -> None:
    slots, order, go = Slots(3, limits={"sick": 1}), list[str](), asyncio.Event()
    sick = asyncio.create_task(hold_for(slots, "first", [], "sick", go))
    await asyncio.sleep(0)
    async with slots.hold("first", "x"), slots.hold("first", "x"):
        asked = [("a", "sick"), ("a", "x"), ("b", "x"), ("a", "x")]
        tasks = [asyncio.create_task(hold_for(slots, user, order, backend)) for user, backend in asked]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks[1:])
    assert order == ["a", "b", "a"]
    go.set()
    await asyncio.gather(sick, *tasks)
    assert order == ["a", "b", "a", "a"]


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_whoever_is_cancelled_when(seed: int) -> None:
    rng, slots = random.Random(seed), Slots(4, wait_s=0.005, limits={"z": 1})
    running = Counter[str]()

    async def call(user: str, backend: str) -> None:
        try:
            async with slots.hold(user, backend):
                running[backend] += 1
                assert (running.total() <= 4, running["x"] <= 2, running["y"] <= 2, running["z"] <= 1) == (True, True, True, True)
                try:
                    await asyncio.sleep(rng.random() / 500)
                finally:
                    running[backend] -= 1
        except NoCapacity:
            pass

    tasks = [asyncio.create_task(call(rng.choice("abc"), rng.choice("xyz"))) for _ in range(60)]
    for _ in range(30):
        await asyncio.sleep(rng.random() / 1_000)
        rng.choice(tasks).cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ended} <= {type(None), asyncio.CancelledError}
    assert (slots.used, slots.waiting, running.total()) == (0, 0, 0)


async def test_a_slot_handed_to_somebody_who_is_cancelled_in_that_moment_is_passed_on() -> None:
    slots, order = Slots(1), list[str]()
    async with slots.hold("a", "x"):
        unlucky = asyncio.create_task(hold_for(slots, "b", order))
        lucky = asyncio.create_task(hold_for(slots, "c", order))
        await asyncio.sleep(0)
    unlucky.cancel()  # after the slot was given to it, before it ran
    await asyncio.gather(unlucky, lucky, return_exceptions=True)
    assert (order, slots.used) == (["c"], 0)
