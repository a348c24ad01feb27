"""Run an effect once per turn, however often the turn is driven: it costs money, or is visible outside Hermes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.ports.inbox import Claim
from hermes.ports.runtime import Transactions
from hermes.ports.sessions import EffectProgress, Journal


class EffectUncertain(Exception):
    """An earlier attempt began this effect and was cut off: it may have happened, and it must not happen twice."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """The result of an effect, and the facts that the journal may show of it: names and numbers, never text."""

    result: bytes
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """Runs effects; the journal remembers each of them by turn, step and index."""

    transactions: Transactions
    journal: Journal

    async def once(
        self, claim: Claim, step: str, index: int, request: bytes, run: Callable[[bytes], Awaitable[EffectResult]], *, is_repeatable: bool
    ) -> bytes:
        """As `once_with_request`, but return the result alone."""
        return (await self.once_with_request(claim, step, index, request, run, is_repeatable=is_repeatable))[1]

    async def once_with_request(
        self, claim: Claim, step: str, index: int, request: bytes, run: Callable[[bytes], Awaitable[EffectResult]], *, is_repeatable: bool
    ) -> tuple[bytes, bytes]:
        """Run an effect, unless the journal has its result; return the request of the first attempt, and the result that stands.

        `request` is what this attempt prepared; `run` gets what the first attempt prepared. If an attempt was cut off, a repeatable effect
        (a model call: it costs, but does no harm) runs again; any other raises EffectUncertain. Raises ClaimLost before anything runs."""
        async with self.transactions.once() as tx:
            effect = await self.journal.begin(tx, claim, step, index, request)
        if effect.result is not None:
            return effect.request, effect.result
        if effect.progress is EffectProgress.STARTED and not is_repeatable:
            raise EffectUncertain(f"{step}[{index}]")
        done = await run(effect.request)
        async with self.transactions.once() as tx:
            return effect.request, await self.journal.finish(tx, claim, step, index, done.result, facts=done.facts)
