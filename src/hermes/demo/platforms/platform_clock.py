"""A platform's time: as fast as its user wants it, and skipped at will.

Everything that a platform waits for or counts (retries, windows, limits, the life of a link) is in its own seconds; so is what it says on
the wire (`retry_after: 30`). The dates in its messages are those of the real world, because who reads them has a clock of their own."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress


class PlatformClock:
    """Seconds since the platforms were opened, `speed` of them in each real one."""

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be over 0, and is {speed}")
        self.speed = speed
        self._opened = time.monotonic()
        self._skipped_s = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return (time.monotonic() - self._opened) * self.speed + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Let so many seconds have passed at once. Whoever slept through them wakes up."""
        self._skipped_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Wait so many of the platform's seconds."""
        until = self.now() + seconds
        while (left_s := until - self.now()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s / self.speed):
                    await self._moved.wait()


def unix_seconds() -> int:
    """The real time in whole seconds, as messages are dated."""
    return int(time.time())
