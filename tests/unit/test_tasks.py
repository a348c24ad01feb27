"""Tasks end for certain, whatever a library does with their cancellation."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from hermes.tasks import end_tasks, stop_if_cancelled
from tests.cancelling import deaf


async def forever() -> None:
    await asyncio.Event().wait()


async def begun(task: asyncio.Task[None]) -> asyncio.Task[None]:
    """A task that has reached its first await."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("times", range(5))
async def test_a_task_that_does_not_hear_its_first_cancellations_ends_all_the_same(times: int) -> None:
    task = await begun(asyncio.create_task(deaf(forever(), times)))
    with capture_logs() as logs:
        await end_tasks(task, cleanup_s=0.01)
    assert (task.cancelled(), logs) == (True, [])


async def test_a_task_that_never_hears_is_left_behind_and_reported() -> None:
    over = asyncio.Event()

    async def until_over() -> None:
        await over.wait()

    task = await begun(asyncio.create_task(deaf(until_over(), 10**9), name="stubborn"))
    began = time.monotonic()
    with capture_logs() as logs:
        await end_tasks(task, cleanup_s=0.01, max_s=0.1)
    assert (time.monotonic() - began >= 0.1, task.done()) == (True, False)
    assert logs == [{"event": "task_not_ended", "log_level": "error", "task": "stubborn", "waited_s": 0.1}]
    over.set()
    await task


async def test_what_a_task_does_when_it_is_cancelled_is_not_cut_off() -> None:
    cleaning, is_clean = asyncio.Event(), False

    async def work() -> None:
        nonlocal is_clean
        try:
            await forever()
        finally:
            cleaning.set()
            await asyncio.sleep(0.05)
            is_clean = True

    task = await begun(asyncio.create_task(work()))
    await end_tasks(task, cleanup_s=60)
    assert (cleaning.is_set(), is_clean, task.cancelled()) == (True, True, True)


async def test_a_caller_that_is_cancelled_meanwhile_hears_of_it_after_the_tasks_have_ended() -> None:
    cleaning, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await forever()
        finally:
            cleaning.set()
            await go_on.wait()

    task = await begun(asyncio.create_task(work()))
    ending = asyncio.create_task(end_tasks(task, cleanup_s=60))
    await cleaning.wait()
    for _ in range(3):
        ending.cancel()
        await asyncio.sleep(0)
    assert not ending.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert task.cancelled()


async def test_a_caller_that_is_cancelled_waits_no_longer_than_one_that_is_not() -> None:
    over = asyncio.Event()

    async def until_over() -> None:
        await over.wait()

    task = await begun(asyncio.create_task(deaf(until_over(), 10**9)))
    ending = asyncio.create_task(end_tasks(task, cleanup_s=0.01, max_s=0.1))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    over.set()
    await task


async def test_an_error_that_a_task_ends_with_is_reported_without_what_it_says() -> None:
    async def fails() -> None:
        try:
            await forever()
        finally:
            raise ValueError("a user's words")

    async def failed() -> None:
        raise KeyError("a user's words")

    tasks = [asyncio.create_task(fails(), name="one"), asyncio.create_task(failed(), name="two")]
    await asyncio.sleep(0)
    with capture_logs() as logs:
        await end_tasks(*tasks)
    assert [(line["event"], line["task"], line["error"], line["at"][-1].split()[-1]) for line in logs] == [
        ("task_failed", "one", "ValueError", "fails"),
        ("task_failed", "two", "KeyError", "failed"),
    ]
    assert "words" not in str(logs)


async def test_tasks_that_have_ended_and_no_tasks_at_all_are_not_waited_for() -> None:
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    with capture_logs() as logs:
        await end_tasks(done)
        await end_tasks()
    assert logs == []


async def test_a_loop_stops_at_the_next_pass_when_its_cancellation_was_swallowed() -> None:
    passes = 0

    async def loop() -> None:
        nonlocal passes
        while True:
            try:
                await forever()
            except asyncio.CancelledError:
                passes += 1
            stop_if_cancelled()

    task = await begun(asyncio.create_task(loop()))
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), passes) == (True, 1)
