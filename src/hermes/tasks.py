"""End tasks reliably.

A cancellation can get lost: a library catches it, the error of a broken connection replaces it, or `asyncio.wait_for` drops it because the
result came at the same moment (before Python 3.12; the Redis client sends every command through `wait_for`). So there are two rules. A loop
that runs until it is cancelled calls `stop_if_cancelled` after its library calls. Code that waits for the end of a task calls `end_tasks`,
which cancels again and again, and gives up after a limit.

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        await end_tasks(task)

Knows nothing about what the tasks do."""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path
from typing import Any

from hermes.event_log import get_logger

log = get_logger(__name__)

CLEANUP_WAIT_S = 1.0
MAX_WAIT_S = 10.0


def stop_if_cancelled() -> None:
    """Raise CancelledError if the running task was cancelled and a library swallowed the cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end_tasks(*tasks: asyncio.Task[Any], cleanup_s: float = CLEANUP_WAIT_S, max_s: float = MAX_WAIT_S) -> None:
    """Cancel tasks, and wait until they have ended. Returns after `max_s` at the latest.

    A cancelled task has `cleanup_s` to clean up; then it is cancelled again, and again. A task that still runs at the end is left behind
    and logged as `task_not_ended`. The error of a task that failed, now or before, is logged as `task_failed`. If the caller is cancelled
    meanwhile, CancelledError is raised after the tasks have ended: they may still use what the caller closes next."""
    deadline, is_cancelled = time.monotonic() + max_s, False
    running = set(tasks)
    while running and (remaining_s := deadline - time.monotonic()) > 0:
        for task in running:
            task.cancel()
        again_at = time.monotonic() + min(cleanup_s, remaining_s)
        while running and (wait_s := again_at - time.monotonic()) > 0:
            try:
                _, running = await asyncio.wait(running, timeout=wait_s)
            except asyncio.CancelledError:
                is_cancelled = True
                running = {task for task in running if not task.done()}
    for task in tasks:
        if task in running:
            log.error("task_not_ended", task=task.get_name(), waited_s=max_s)
        elif not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", task=task.get_name(), error=type(error).__name__, at=stack_frames(error))
    if is_cancelled:
        raise asyncio.CancelledError


def stack_frames(error: BaseException) -> list[str]:
    """Return the last four places of the traceback, the innermost last. Without the error's text: it may quote a user's words."""
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)[-4:]]
