"""Time, luck and limits: what the platforms stand on."""

import asyncio
import time

import pytest

from hermes.channels.fakes import open_platforms
from hermes.testing.platforms.world import BucketRate, ChangeSignal, PlatformClock, RateBucket, SeededRandom


async def test_time_goes_by_as_fast_as_wanted() -> None:
    pace, start = PlatformClock(1000), time.monotonic()
    await pace.sleep(100)
    assert 0.1 <= time.monotonic() - start < 5
    assert pace.now() >= 100
    with pytest.raises(ValueError, match="speed"):
        PlatformClock(0)


async def test_who_sleeps_through_skipped_time_wakes_up() -> None:
    pace = PlatformClock(0.001)
    sleepers = [asyncio.create_task(pace.sleep(seconds)) for seconds in (10, 30)]
    await asyncio.sleep(0)
    pace.skip(20)
    await asyncio.sleep(0.01)
    assert [sleeper.done() for sleeper in sleepers] == [True, False]
    pace.skip(20)
    await asyncio.gather(*sleepers)


def test_luck_is_the_same_for_the_same_thing_and_fair_over_many() -> None:
    chance = SeededRandom(7)
    assert chance.fraction("a", 1) == SeededRandom(7).fraction("a", 1) != SeededRandom(8).fraction("a", 1)
    happened = sum(chance.happens(0.3, "x", number) for number in range(10_000))
    assert 2_800 < happened < 3_200
    assert (len(chance.digits(15, "x")), chance.digits(15, "x")[0] != "0", len(chance.letters(100, "x"))) == (15, True, 100)


def test_a_bucket_takes_its_burst_and_then_one_at_a_time() -> None:
    bucket = RateBucket(BucketRate(every_s=2.0, burst=3))
    for _ in range(3):
        assert bucket.wait_s("a", 10.0) == 0
        bucket.take("a", 10.0)
    assert (bucket.wait_s("a", 10.0), bucket.wait_s("a", 11.5), bucket.wait_s("b", 10.0)) == (2.0, 0.5, 0.0)
    assert bucket.wait_s("a", 12.0) == 0


async def test_a_change_wakes_a_waiter_whose_condition_is_met_and_no_other() -> None:
    changes, seen = ChangeSignal(), [0]
    waiting = asyncio.create_task(changes.wait_until(lambda: seen[0] >= 2, 5))
    for _ in range(2):
        await asyncio.sleep(0)
        assert not waiting.done()
        seen[0] += 1
        changes.notify()
    await waiting
    with pytest.raises(TimeoutError):
        await changes.wait_until(lambda: False, 0.01)


async def test_the_same_seed_gives_the_same_world() -> None:
    async def world(seed: int) -> list[object]:
        async with open_platforms(seed=seed) as platforms:
            people = [platform.person("Ada").id for platform in (platforms.telegram, platforms.whatsapp, platforms.instagram)]
            facts = [{name: value for name, value in platform.facts.items() if name != "API base URL"} for platform in platforms]
            return [*people, *facts]

    assert await world(1) == await world(1) != await world(2)
