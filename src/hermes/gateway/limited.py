"""A backend that takes only so many calls at once: one graphics card, or a vendor's own limit.

Beside the slots of the whole gateway: those keep this process well, these keep one backend well. Who gets none goes on down the chain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from hermes.gateway.slots import Slots
from hermes.ports.backends import Ask, Backend, Capabilities, Check, Completion, Delta, Overloaded
from hermes.ports.models import NoCapacity

WAIT_SHARE = 0.5
"""Of a call's time, what it may wait for a slot: later there would be no time left for an answer, here or further down the chain."""


class Limited:
    """The port Backend, for another one behind it. Fair between users, as slots are; a call without a user is one of the users.

    A stream holds its slot until it is closed, however it ends."""

    def __init__(self, backend: Backend, slots: Slots) -> None:
        self.name = backend.name
        self._backend, self._slots = backend, slots

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._backend!r}, {self._slots.count})"

    def capabilities(self, model: str) -> Capabilities:
        return self._backend.capabilities(model)

    def supports_tools(self, model: str) -> bool:
        return self._backend.supports_tools(model)

    def answers_as(self, model: str) -> str:
        return self._backend.answers_as(model)

    async def complete(self, ask: Ask, model: str, *, timeout_s: float) -> Completion:
        async with self._slot(ask, model, timeout_s) as left_s:
            return await self._backend.complete(ask, model, timeout_s=left_s)

    async def stream(self, ask: Ask, model: str, *, timeout_s: float) -> AsyncGenerator[Delta | Completion, None]:
        async with (
            self._slot(ask, model, timeout_s) as left_s,
            aclosing(self._backend.stream(ask, model, timeout_s=left_s)) as pieces,
        ):
            async for piece in pieces:
                yield piece

    async def health_check(self, *, timeout_s: float = 5.0) -> Sequence[Check]:
        return await self._backend.health_check(timeout_s=timeout_s)

    async def aclose(self) -> None:
        await self._backend.aclose()

    @asynccontextmanager
    async def _slot(self, ask: Ask, model: str, timeout_s: float) -> AsyncIterator[float]:
        """Hold a slot, and give the seconds that are left of the call's time. Raises Overloaded."""
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout_s * WAIT_SHARE):
                    await stack.enter_async_context(self._slots.hold(ask.user or ""))
            except (NoCapacity, TimeoutError) as error:
                waited_s = time.monotonic() - began
                what = f"all {self._slots.count} slots of {self.name} were taken for {waited_s:.1f} s"
                raise Overloaded(what, backend=self.name, model=model) from error
            yield timeout_s - (time.monotonic() - began)
