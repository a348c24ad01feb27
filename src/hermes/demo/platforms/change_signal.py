"""Wakes the tasks that wait for a change, so that they check again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ChangeSignal:
    """Notified after every change that a task may wait for; counts the changes."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition holds. Raises TimeoutError; the seconds are real ones."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._changed.wait()
