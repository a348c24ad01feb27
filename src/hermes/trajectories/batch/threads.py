"""Run a user's blocking function beside the event loop. A thread cannot be stopped: a function that takes too long keeps running, but does
not keep the process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def is_cancelled() -> bool:
    """Whether this task is being cancelled. A CancelledError may also come from a cancelled future; then only that future ended."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def run_in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread; return what it returns, raise what it raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if ended.done():
            return  # the waiting task was cancelled
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]  # None is a result where T says so

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001  # it is raised again in the waiting task
            # A StopIteration cannot be raised into a coroutine.
            error = RuntimeError(f"it raised {raised!r}") if isinstance(raised, StopIteration | SystemExit | KeyboardInterrupt) else raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="hermes-batch", daemon=True).start()
    return await ended
