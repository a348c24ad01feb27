"""Do a paid or outward thing once per turn, however often the turn is driven."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hermes.ports.inbox import Claim
from hermes.ports.journal import EffectProgress, Journal
from hermes.ports.transactions import Transactions


class EffectUncertain(Exception):
    """An earlier attempt began this and was cut off: it may have happened, and it must not happen twice."""


@dataclass(frozen=True, slots=True)
class EffectResult:
    """What an effect gave, and what of it may be shown: names and numbers, never text."""

    result: bytes
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects that are remembered by turn, step and index."""

    transactions: Transactions
    journal: Journal

    async def once(
        self, claim: Claim, step: str, index: int, request: bytes, run: Callable[[bytes], Awaitable[EffectResult]], *, is_repeatable: bool
    ) -> bytes:
        """As `once_asked`, for whoever knows what was asked."""
        return (await self.once_with_request(claim, step, index, request, run, is_repeatable=is_repeatable))[1]

    async def once_with_request(
        self, claim: Claim, step: str, index: int, request: bytes, run: Callable[[bytes], Awaitable[EffectResult]], *, is_repeatable: bool
    ) -> tuple[bytes, bytes]:
        """Run an effect, unless the journal knows its result; return what was asked, and the result that stands.

        `request` is what was prepared now; `run` gets what was prepared first. A repeatable effect (a model call: it costs, but harms
        nobody) that was cut off is run again; any other raises EffectUncertain. Raises Fenced before anything runs."""
        async with self.transactions.once() as tx:
            effect = await self.journal.begin(tx, claim, step, index, request)
        if effect.result is not None:
            return effect.request, effect.result
        if effect.progress is EffectProgress.STARTED and not is_repeatable:
            raise EffectUncertain(f"{step}[{index}]")
        done = await run(effect.request)
        async with self.transactions.once() as tx:
            return effect.request, await self.journal.finish(tx, claim, step, index, done.result, facts=done.facts)
