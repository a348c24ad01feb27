"""Telling whoever waits that an answer is there. Speed only: the answer itself is in the outbox."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID


class AnswerSignal(Protocol):
    """Rings when something happened to the turn."""

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next ring; False when none came in time."""
        ...


class AnswerSignals(Protocol):
    """Bells between processes. Fails open: without them, whoever waits looks again by themselves."""

    async def announce(self, turn_id: UUID) -> None:
        """Ring for the turn's answer. Never raises."""
        ...

    def listen(self, turn_id: UUID) -> AbstractAsyncContextManager[AnswerSignal]:
        """Hear the rings of a turn from now on. Never raises; a bell that cannot be heard just never rings."""
        ...
