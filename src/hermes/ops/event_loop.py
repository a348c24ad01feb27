"""Watch the event loop. All conversations of a process share one loop: code that blocks it stops them all, and also its own report.

on the loop:    a task writes the time every `interval_s`
in a thread:    a watcher sees a time older than `blocked_after_s`, and reports once where the loop hangs and once that it runs again
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import structlog

from hermes.ops.metrics import Metrics
from hermes.ports.runtime import Alerts
from hermes.tasks import end_tasks

log = structlog.get_logger()

MAX_FRAMES = 12
"""The innermost frames that a report shows: enough to reach from the library that hangs to our line that called it."""


@asynccontextmanager
async def watch_event_loop(
    alerts: Alerts, metrics: Metrics, *, blocked_after_s: float = 1.0, interval_s: float = 0.1
) -> AsyncIterator[LoopWatch]:
    """Watch the running event loop until the block ends; yield the watch.

    The watcher calls `alerts` from its own thread, because the blocked loop cannot."""
    watch = LoopWatch(alerts, metrics, threading.get_ident(), blocked_after_s, interval_s)
    metrics.loop_lag.set_function(watch.worst_lag_s)
    beating = asyncio.create_task(watch.beat(), name="heartbeat")
    thread = threading.Thread(target=watch.look, name="hermes-loop-watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop.set()
        await end_tasks(beating)
        # A join would block the loop that is being watched; the thread ends by itself after its next look.


class LoopWatch:
    """The time stamp that the loop writes, and the watcher that reads it. One thread writes a float and the other reads it: no lock."""

    def __init__(self, alerts: Alerts, metrics: Metrics, watched: int, blocked_after_s: float, interval_s: float) -> None:
        self._alerts, self._metrics, self._watched = alerts, metrics, watched
        self._blocked_after_s, self._interval_s = blocked_after_s, interval_s
        self._stamp = time.monotonic()
        self._lags: deque[float] = deque([0.0], maxlen=max(1, round(60 / interval_s)))
        self.stop = threading.Event()

    async def beat(self) -> None:
        """Write the time stamp every `interval_s`, until cancelled."""
        while True:
            began = time.monotonic()
            self._stamp = began
            await asyncio.sleep(self._interval_s)
            self._lags.append(max(0.0, time.monotonic() - began - self._interval_s))

    def worst_lag_s(self) -> float:
        return max(self._lags)

    def look(self) -> None:
        """Check the time stamp until `stop` is set. Runs in a thread of its own."""
        pause_s = min(self._interval_s, self._blocked_after_s / 4)
        looked = time.monotonic()
        blocked_at: float | None = None
        while not self.stop.wait(pause_s):
            stamp, now = self._stamp, time.monotonic()
            overslept, looked = now - looked > self._blocked_after_s, now
            if blocked_at is not None:
                if stamp != blocked_at:
                    log.info("event_loop_recovered", blocked_for_s=round(stamp - blocked_at, 3))
                    blocked_at = None
            # A watcher that overslept was paused together with the loop (a stopped process, a sleeping laptop): no code blocked it.
            elif now - stamp > self._blocked_after_s and not overslept:
                blocked_at = stamp
                self._report(now - stamp)

    def _report(self, blocked_for_s: float) -> None:
        self._metrics.loop_blocked.inc()
        # No log line of its own: the alert writes one.
        self._alerts.alert("event_loop_blocked", blocked_for_s=round(blocked_for_s, 3), stack=stack_of(self._watched))


def stack_of(thread: int) -> list[str]:
    """Where a thread is, the innermost frame last: `web/server.py:12 handle`. Without values: they may be a user's words."""
    frame: FrameType | None = sys._current_frames().get(thread)  # the only way to see another thread's stack
    frames: list[str] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        path = Path(frame.f_code.co_filename)
        frames.append(f"{path.parent.name}/{path.name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return frames[::-1]


COLLECT_AFTER = (20_000, 10, 10)
"""So many new objects, and so many collections of the younger ones, until the next collection. By Python's own 700, collections took a
sixth of the processor time of recorded API calls, 64 at once: they looked at all calls under way again and again."""


def collect_and_freeze() -> None:
    """Collect once, and exclude the objects that remain from every later collection. For a process that has just finished starting. Later
    collections come more rarely.

    Such a process holds very many objects that live as long as it does: modules, routes, statements. Every full collection would look at
    each of them, and no user gets an answer meanwhile: it took 100 to 220 ms under 200 webhooks a second."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
