"""Signals that wake the process that waits for a turn's answer. They only save time: the answer itself is in the outbox."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID


class AnswerSignal(Protocol):
    """The signals of one turn, for one listener."""

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next signal; False if none came in time."""
        ...


class AnswerSignals(Protocol):
    """Signals between processes. Fails open: without them, the waiting process looks into the outbox now and then."""

    async def announce(self, turn_id: UUID) -> None:
        """Signal that the turn's answer is in the outbox. Never raises."""
        ...

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[AnswerSignal]:
        """Receive the signals of a turn from now on. Never raises; while the store is down, no signal comes."""
        ...
