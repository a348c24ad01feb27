"""End tasks for certain.

A cancellation can get lost: a library catches it, a broken connection takes its place, and before Python 3.12 `asyncio.wait_for` forgets
one that comes together with what it waited for; the client of Redis sends every command through that. So there are two rules. A loop that
runs until it is cancelled calls `stop_if_cancelled` after its calls of libraries. What waits for the end of a task calls `end_tasks`, which
cancels again, and gives up after a while.

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        await end_tasks(task)

Knows nothing of what the tasks do."""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path
from typing import Any

import structlog

log = structlog.get_logger()

CLEANUP_WAIT_S = 1.0
MAX_WAIT_S = 10.0


def stop_if_cancelled() -> None:
    """Raise CancelledError if the running task was cancelled and a library has kept that to itself."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(*tasks: asyncio.Task[Any], cleanup_s: float = CLEANUP_WAIT_S, max_s: float = MAX_WAIT_S) -> None:
    """Cancel tasks, and wait until they have ended. Returns after `max_s` at the latest.

    A task has `cleanup_s` for what it does when it is cancelled; then it is cancelled again, and again. A task that goes on all the same is
    left behind, and logged as `task_not_ended`. An error that a task ends with, or has ended with before, is logged as `task_failed`.
    If the caller is cancelled meanwhile, it hears of it when the tasks have ended: what it closes next they may still be using."""
    until, is_cancelled = time.monotonic() + max_s, False
    left = set(tasks)
    while left and (left_s := until - time.monotonic()) > 0:
        for task in left:
            task.cancel()
        again_at = time.monotonic() + min(cleanup_s, left_s)
        while left and (wait_s := again_at - time.monotonic()) > 0:
            try:
                _, left = await asyncio.wait(left, timeout=wait_s)
            except asyncio.CancelledError:
                is_cancelled = True
                left = {task for task in left if not task.done()}
    for task in tasks:
        if task in left:
            log.error("task_not_ended", task=task.get_name(), waited_s=max_s)
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", task=task.get_name(), error=type(error).__name__, at=stack_frames(error))
    if is_cancelled:
        raise asyncio.CancelledError


def stack_frames(error: BaseException) -> list[str]:
    """Where it happened, the innermost last. Not what it says: an error may quote a user's words."""
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-4:]]
