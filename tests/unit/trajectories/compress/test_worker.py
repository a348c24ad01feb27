"""Ctrl-C waits for the end of a chunk, wherever it comes, and leaves no loop and no coroutine behind."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hermes.trajectories.compress.worker import run_uninterrupted


async def twice(number: int, done: list[int]) -> int:
    await asyncio.sleep(0)
    done.append(number)
    return 2 * number


def test_it_returns_what_the_coroutine_did_and_leaves_the_handler() -> None:
    done: list[int] = []
    assert run_uninterrupted(lambda: twice(4, done)) == 8
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("where", ["while the loop is made", "while it runs"])
def test_ctrl_c_comes_after_the_end(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    make = asyncio.new_event_loop

    def interrupted() -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return make()

    async def both() -> None:
        if where == "while it runs":
            os.kill(os.getpid(), signal.SIGINT)
        await twice(1, done)

    if where == "while the loop is made":
        monkeypatch.setattr(asyncio.events, "new_event_loop", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_uninterrupted(both)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_is_raised_as_it_is() -> None:
    async def fails() -> None:
        raise LookupError("nothing here")

    with pytest.raises(LookupError, match="nothing here"):
        run_uninterrupted(fails)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_thread_leaves_signals_to_the_main_one() -> None:
    done: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run_uninterrupted, lambda: twice(3, done)).result() == 6
