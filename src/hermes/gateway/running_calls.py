"""The calls that are under way in this process, so that the kill switch ends them too.

While calls are under way, the record of the kill switch is read every `LOOK_S`; a process without calls reads nothing. There is no message
between processes: one would come a fraction of a second earlier, and would need a connection of its own in each of them.

A call that is ended raises CallsPaused where it waits for its model. What it has used by then is recorded and charged as for a caller that
leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog

from hermes.ports.credits import CallsPaused, GlobalSpend, PauseReason
from hermes.ports.errors import StoreUnavailable
from hermes.tasks import stop_if_cancelled

log = structlog.get_logger()

LOOK_S = 0.25


class RunningCall:
    """One call. Whatever waits for its model waits in `guard`."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._waiting: asyncio.Timeout | None = None

    def stop(self) -> None:
        """End the call: now if it waits, and otherwise as soon as it waits."""
        if not self._is_stopped:
            self._is_stopped = True
            if self._waiting is not None:
                self._waiting.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Raise CallsPaused in the block, or before it, if the call is ended."""
        if self._is_stopped:
            raise CallsPaused(PauseReason.KILL_SWITCH, None)
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waiting = limit
                try:
                    yield
                finally:
                    self._waiting = None
        except TimeoutError:
            if not limit.expired():
                raise
            raise CallsPaused(PauseReason.KILL_SWITCH, None) from None


class RunningCalls:
    """All calls that are under way in this process."""

    def __init__(self) -> None:
        self._calls: set[RunningCall] = set()
        self._are_any = asyncio.Event()

    @contextmanager
    def enter(self) -> Iterator[RunningCall]:
        """Keep a call among those under way for as long as the block lasts."""
        call = RunningCall()
        self._calls.add(call)
        self._are_any.set()
        try:
            yield call
        finally:
            self._calls.discard(call)
            if not self._calls:
                self._are_any.clear()

    def stop_all(self) -> None:
        """End every call that is under way."""
        for call in self._calls:
            call.stop()

    async def follow(self, spend: GlobalSpend) -> None:
        """End all calls whenever the kill switch is engaged, until cancelled."""
        while True:
            await self._are_any.wait()
            try:
                if await spend.kill_switch_record() is not None:
                    log.warning("running_calls_stopped", calls=len(self._calls))
                    self.stop_all()
            except StoreUnavailable:
                log.debug("kill_switch_unknown")  # no call was admitted then
            stop_if_cancelled()
            await asyncio.sleep(LOOK_S)
