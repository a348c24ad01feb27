"""Slots: so many at once, fair between users, and none is ever lost, however a caller ends."""

import asyncio
import random

import pytest

from hermes.gateway.slots import Slots
from hermes.ports.models import NoCapacity


async def test_so_many_run_at_once_and_no_more() -> None:
    slots, running, most = Slots(3), 0, 0

    async def call() -> None:
        nonlocal running, most
        async with slots.hold("a"):
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(call() for _ in range(30)))
    assert (most, slots.used, slots.waiting) == (3, 0, 0)


async def test_a_caller_gives_up_after_its_wait_and_the_others_go_on() -> None:
    slots = Slots(1, wait_s=0.01)
    async with slots.hold("a"):
        with pytest.raises(NoCapacity, match="within"):
            async with slots.hold("b"):
                pass
        assert (slots.used, slots.waiting) == (1, 0)
    async with slots.hold("b"):
        assert slots.used == 1


async def test_a_queue_that_is_too_long_is_refused_at_once() -> None:
    slots = Slots(1, wait_s=10, longest_queue=2)
    async with slots.hold("a"):
        waiting = [asyncio.create_task(hold_for(slots, "b", [])) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(NoCapacity, match="2 calls wait already"):
            async with slots.hold("c"):
                pass
    await asyncio.gather(*waiting)


async def hold_for(slots: Slots, user: str, order: list[str]) -> None:
    async with slots.hold(user):
        order.append(user)
        await asyncio.sleep(0)


async def test_users_are_served_in_turns_however_much_one_of_them_asks() -> None:
    slots, order = Slots(1), list[str]()
    async with slots.hold("first"):
        tasks = [asyncio.create_task(hold_for(slots, user, order)) for user in ["greedy"] * 6 + ["b", "c"]]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == ["greedy", "b", "c", "greedy", "greedy", "greedy", "greedy", "greedy"]


@pytest.mark.parametrize("seed", range(20))
async def test_no_slot_is_lost_whoever_is_cancelled_when(seed: int) -> None:
    rng, slots = random.Random(seed), Slots(4, wait_s=0.005)

    async def call(user: str) -> None:
        try:
            async with slots.hold(user):
                await asyncio.sleep(rng.random() / 200)
        except NoCapacity:
            pass

    tasks = [asyncio.create_task(call(rng.choice("abc"))) for _ in range(120)]
    for _ in range(40):
        await asyncio.sleep(rng.random() / 1000)
        rng.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (slots.used, slots.waiting) == (0, 0)


async def test_a_slot_handed_to_somebody_who_is_cancelled_in_that_moment_is_passed_on() -> None:
    slots, order = Slots(1), list[str]()
    async with slots.hold("a"):
        unlucky = asyncio.create_task(hold_for(slots, "b", order))
        lucky = asyncio.create_task(hold_for(slots, "c", order))
        await asyncio.sleep(0)
    unlucky.cancel()  # after the slot was given to it, before it ran
    await asyncio.gather(unlucky, lucky, return_exceptions=True)
    assert (order, slots.used) == (["c"], 0)
