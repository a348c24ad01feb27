"""Something happened: whoever waits looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeSignal:
    """Rung after everything that somebody may be waiting for."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is so. Raises TimeoutError; the seconds are real ones."""
        async with asyncio.timeout(timeout_s):
            while not is_so():
                await self._changed.wait()
