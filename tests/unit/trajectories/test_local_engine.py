"""Processes of this machine: results in order, errors with where they came from, and no wait for a worker that died."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from hermes.trajectories.engines import WorkerDied
from hermes.trajectories.engines.local import CHUNKS_AHEAD, MIN_PARALLEL_CHUNKS, LocalEngine

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core there is one process")


def squared(number: int) -> tuple[int, int]:
    time.sleep(0.01 * (number % 3))  # some take longer than those behind them
    return number * number, os.getpid()


def fails_at_five(number: int) -> int:
    if number == 5:
        raise LookupError("there is no five")
    return number


def unpicklable(_: int) -> Any:
    return threading.Lock()


class Fuse:
    """Kills the process that sends it, a moment later."""

    def __reduce__(self) -> tuple[Any, ...]:
        threading.Timer(0.002, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        return Fuse, ()


def killed_with_half_a_result(number: int) -> Any:
    return (bytes(100_000_000), Fuse()) if number == 5 else None  # far more than goes through a pipe by then


def killed_at_five(number: int) -> int:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleeps(number: int) -> int:
    if number > 1:
        time.sleep(600)
    return number


def left() -> list[Any]:
    return multiprocessing.active_children()


def test_results_come_in_order_from_several_processes() -> None:
    found = list(LocalEngine(2).map(squared, range(40)))
    assert [square for square, _ in found] == [number * number for number in range(40)]
    assert len({pid for _, pid in found} - {os.getpid()}) == 2
    assert not left()


def test_little_work_is_done_here() -> None:
    assert {pid for _, pid in LocalEngine(2).map(squared, range(MIN_PARALLEL_CHUNKS - 1))} == {os.getpid()}


def test_chunks_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def chunks() -> Iterator[int]:
        for number in range(1_000):
            taken.append(number)
            yield number

    with closing(LocalEngine(2).map(squared, chunks())) as results:
        for place in range(30):
            assert next(results)[0] == place * place
            assert len(taken) <= max(MIN_PARALLEL_CHUNKS, place + 2 + CHUNKS_AHEAD * 2)
    assert not left()


def test_an_error_of_the_work_is_raised_here_and_says_where_it_was() -> None:
    results = LocalEngine(2).map(fails_at_five, range(40))
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(LookupError, match="there is no five") as caught:
        next(results)
    assert "in fails_at_five" in caught.value.__notes__[0]
    assert not left()


def test_a_result_that_cannot_travel_is_an_error() -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        list(LocalEngine(2).map(unpicklable, range(40)))


@pytest.mark.parametrize("work", [killed_at_five, killed_with_half_a_result])
def test_a_worker_that_is_killed_ends_it_whatever_it_was_doing(work: Any) -> None:
    with pytest.raises(WorkerDied, match="a worker process died"):
        list(LocalEngine(2).map(work, range(40)))
    assert not left()


def test_closing_ends_what_is_under_way() -> None:
    with closing(LocalEngine(2).map(sleeps, range(40))) as results:
        assert [next(results), next(results)] == [0, 1]
    assert not left()
