"""Backends by name, and how one is exchanged while calls are under way.

    the new one's health is checked  →  the pointer moves  →  a canary call  →  the old one is let go when its last calls must have ended
                 │                                                 │
                 └ refused: nothing changed                        └ rolled back: the pointer moves back, with the reason

A call looks a name up once, when it is let in, so it ends on the backend on which it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from hermes.ports.backends import Backend, BackendError, Check, CheckLevel

log = structlog.get_logger()

Canary = Callable[[Backend], Awaitable[object]]
"""A small real call; raises when the backend is not fit after all."""


class SwapFailed(Exception):
    """The old backend is in place; why the new one is not."""

    def __init__(self, name: str, reason: str, checks: tuple[Check, ...] = ()) -> None:
        super().__init__(f"{name} was not exchanged: {reason}")
        self.name, self.reason, self.checks = name, reason, checks


@dataclass(frozen=True, slots=True)
class Swapped:
    """What was exchanged for what, and what the health check said."""

    name: str
    old: str
    new: str
    checks: tuple[Check, ...]


class Fleet(Mapping[str, Backend]):
    """The backends in use. Reading is looking into a dict; an exchange is one assignment, so no reader sees anything in between."""

    def __init__(self, backends: Mapping[str, Backend], *, retire_s: float = 60.0) -> None:
        """`retire_s` is how long the longest call may take: so long an old backend stays open."""
        self._backends = dict(backends)
        self._retire_s = retire_s
        self._locks: dict[str, asyncio.Lock] = {}
        self._retiring: set[asyncio.Task[None]] = set()

    def __getitem__(self, name: str) -> Backend:
        return self._backends[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._backends)

    def __len__(self) -> int:
        return len(self._backends)

    async def swap(self, name: str, new: Backend, *, canary: Canary | None = None, timeout_s: float = 10.0) -> Swapped:
        """Exchange a backend. Raises SwapFailed, with the old one in place; KeyError for a name that is not there.

        One exchange of a name at a time. `canary` is called on the new one when it is in place; if it fails, the exchange is taken back."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            old = self._backends[name]
            checks = await self._health(name, new, timeout_s)
            self._backends[name] = new
            try:
                if canary is not None:
                    async with asyncio.timeout(timeout_s):
                        await canary(new)
            except (BackendError, TimeoutError) as error:
                reason = str(error) or f"no answer to the canary within {timeout_s:g} s"
                self._backends[name] = old
                self._retire(new)
                log.warning("adapter_rolled_back", name=name, old=old.name, new=new.name, reason=reason)
                raise SwapFailed(name, reason, checks) from error
            except BaseException:
                self._backends[name] = old
                raise
            self._retire(old)
            log.info("adapter_swapped", name=name, old=old.name, new=new.name)
            return Swapped(name, old.name, new.name, checks)

    async def aclose(self) -> None:
        """Let go of all backends, those on their way out included."""
        for task in list(self._retiring):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for backend in self._backends.values():
            await backend.aclose()

    async def _health(self, name: str, new: Backend, timeout_s: float) -> tuple[Check, ...]:
        checks = tuple(await new.health_check(timeout_s=timeout_s))
        errors = [check for check in checks if check.level is CheckLevel.ERROR]
        if errors:
            await new.aclose()
            log.warning("adapter_refused", name=name, new=new.name, reason=errors[0].message)
            raise SwapFailed(name, errors[0].message, checks)
        return checks

    def _retire(self, backend: Backend) -> None:
        """Close a backend when its last call must have ended."""

        async def wait_and_close() -> None:
            try:
                await asyncio.sleep(self._retire_s)
            finally:
                await backend.aclose()

        task = asyncio.create_task(wait_and_close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
