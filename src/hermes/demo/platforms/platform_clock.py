"""The platforms' time: runs at any speed, and can skip ahead.

A platform counts everything in its own seconds: retries, windows, limits, the life of a link, and the numbers that it sends
(`retry_after: 30`). The dates in its messages are real, because the receiver compares them with its own clock."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress


class PlatformClock:
    """Counts the platforms' seconds since they were opened: `speed` of them in each real second."""

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be greater than 0, and is {speed}")
        self.speed = speed
        self._opened = time.monotonic()
        self._skipped_s = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return (time.monotonic() - self._opened) * self.speed + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Skip so many seconds ahead. Tasks whose sleep ends within them wake up."""
        self._skipped_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many of the platforms' seconds."""
        until = self.now() + seconds
        while (left_s := until - self.now()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s / self.speed):
                    await self._moved.wait()


def unix_seconds() -> int:
    """The real time in whole seconds, for the dates in messages."""
    return int(time.time())
