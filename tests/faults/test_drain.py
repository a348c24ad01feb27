"""A worker that is told to stop lets its turns end. However long that takes, no other worker begins them meanwhile."""

import signal

from tests.faults.house import House


async def test_a_turn_under_way_ends_before_its_worker_does(house: House) -> None:
    worker = house.worker(answer_s=0.8)
    await house.send_all("a1", "a2", "b1")
    await house.until(lambda: len(house.calls()) == 2, "both conversations are at work")
    assert await house.dismiss(worker) == 0
    assert sorted(call.text for call in house.calls()) == ["a1", "b1"], "it takes nothing new"
    house.worker()
    await house.until_quiet()
    await house.check(calls={})
    await house.check_order()


async def test_a_turn_that_ends_during_a_long_drain_is_not_begun_by_anybody_else(house: House) -> None:
    draining = house.worker(answer_s=2.5)  # longer than a worker may be silent, and shorter than it may take to stop
    await house.send_all("a1", "a2")
    await house.until(lambda: len(house.calls()) == 1, "the first turn is at work")
    house.worker()
    draining.strike(signal.SIGTERM)
    await house.until_quiet()
    assert [call.pid == draining.pid for call in house.calls()] == [True, False]
    await house.check(calls={})
    await house.until(lambda: not draining.is_alive, "the worker stops")
    assert draining.code == 0


async def test_what_does_not_end_in_time_goes_back_and_is_answered_by_the_next(house: House) -> None:
    house.environ = {**house.environ, "HERMES_WORK_DRAIN_S": "0.3"}
    worker = house.worker(answer_s=30)
    await house.send_all("a1", "a2")
    await house.until(lambda: len(house.calls()) == 1, "the first turn is at work")
    assert await house.dismiss(worker) == 0
    house.worker()
    await house.until_quiet()
    await house.check(calls={"a1": 2})
