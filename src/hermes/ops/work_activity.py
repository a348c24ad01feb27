"""What a worker is doing: how many jobs run, when a turn ended last, and whether the worker is silent.

A worker is silent if its event loop runs, turns wait that it could begin, and none ends. Only turns count: they have deadlines. A worker
that is full of turns which may still end is busy and not silent. Knows nothing of stores: the caller tells it how long turns wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MIN_WAIT_S = 5.0
"""A turn that has waited for less does not count as waiting: a worker is about to begin it."""
MAX_STEP_S = 10.0
"""The longest time between two looks that counts in full. A longer one was a pause of the whole process, in which no turn could end."""


class WorkActivity:
    """The jobs of one worker process. One event loop uses it."""

    def __init__(self, *, concurrency: int, silent_after_s: float, max_turn_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`max_turn_s` is the sum of a turn's deadlines: a turn that runs for longer hangs."""
        self._concurrency, self._silent_after_s, self._max_turn_s, self._clock = concurrency, silent_after_s, max_turn_s, clock
        self._turns: dict[object, float] = {}
        self._jobs, self._ended, self._ended_before = 0, 0, 0
        self._ended_at: float | None = None
        self._looked_at, self._silence_s = clock(), 0.0
        self.loop_lag_s: Callable[[], float] = lambda: 0.0
        """The longest delay of the event loop in the last minute; the watch over the loop sets it."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Count a turn as running until the block ends."""
        key = object()
        self._turns[key] = self._clock()
        try:
            yield
        finally:
            del self._turns[key]
            self._ended, self._ended_at = self._ended + 1, self._clock()

    @contextmanager
    def job(self) -> Iterator[None]:
        """Count another job as running until the block ends."""
        self._jobs += 1
        try:
            yield
        finally:
            self._jobs -= 1

    @property
    def running(self) -> int:
        """How many jobs run, turns included."""
        return len(self._turns) + self._jobs

    @property
    def turn_ended_s(self) -> float | None:
        """Seconds since a turn ended; None: none did yet."""
        return None if self._ended_at is None else self._clock() - self._ended_at

    @property
    def has_progress(self) -> bool:
        """Whether a turn ended since the last look."""
        return self._ended > self._ended_before

    @property
    def is_silent(self) -> bool:
        """Whether turns waited for too long, as of the last look, and none ended."""
        return self._silence_s >= self._silent_after_s

    def look(self, oldest_wait_s: float | None) -> None:
        """Note how long the oldest turn has waited that a worker could begin now; None: none waits, or it is not known."""
        now = self._clock()
        step_s, self._looked_at = min(now - self._looked_at, MAX_STEP_S), now
        is_waiting = oldest_wait_s is not None and oldest_wait_s >= min(MIN_WAIT_S, self._silent_after_s)
        is_excused = self.has_progress or self._is_busy(now)
        self._ended_before = self._ended
        self._silence_s = self._silence_s + step_s if is_waiting and not is_excused else 0.0

    def _is_busy(self, now: float) -> bool:
        """Whether no turn more fits in, and one of those that run may still end by itself."""
        return len(self._turns) >= self._concurrency and any(now - began < self._max_turn_s for began in self._turns.values())
