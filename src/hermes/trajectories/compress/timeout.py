"""Time limits that can be paused, so that waiting for other tasks does not count.

async with time_limit(30):
    async with pause_timeouts():
        …  # does not count towards the 30 seconds, nor towards any limit around them
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

_active_timeouts: ContextVar[tuple[asyncio.Timeout, ...]] = ContextVar("hermes.compress.timeouts", default=())


@asynccontextmanager
async def time_limit(limit_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes longer; 0 is no limit."""
    async with asyncio.timeout(limit_s or None) as clock:
        outer = _active_timeouts.set((*_active_timeouts.get(), clock))
        try:
            yield
        finally:
            _active_timeouts.reset(outer)


@asynccontextmanager
async def pause_timeouts() -> AsyncIterator[None]:
    """Pause every limit of this task while the block runs."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    stopped = [(clock, when) for clock in _active_timeouts.get() if (when := clock.when()) is not None and not clock.expired()]
    for clock, _ in stopped:
        clock.reschedule(None)
    try:
        yield
    finally:
        for clock, when in stopped:
            clock.reschedule(when + loop.time() - begun)
