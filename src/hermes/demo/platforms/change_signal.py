"""Something happened: whoever waits looks again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeSignal:
    """Rung after everything that somebody may be waiting for."""

    def __init__(self) -> None:
        self.rings = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self.rings += 1
        self._rung.set()
        self._rung = asyncio.Event()

    async def until(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Wait until something is so. Raises TimeoutError; the seconds are real ones."""
        async with asyncio.timeout(timeout_s):
            while not is_so():
                await self._rung.wait()
