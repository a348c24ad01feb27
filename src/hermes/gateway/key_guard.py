"""Admits the model calls of API keys: which limits a key has, which models may answer it, and what one call claims of it.

Every call of a key passes here, whatever door its request came through, and so do the calls of the turns that its messages began. Does not
know how the claims are counted (`ports.credits.Budgets`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from hermes.gateway.catalogue import ModelSpec
from hermes.ports.errors import StoreUnavailable
from hermes.ports.key_limits import NO_LIMITS, KeyLimits
from hermes.ports.key_use import KeyForbids
from hermes.ports.runtime import Transactions
from hermes.ports.users import ApiKeys

REMEMBER_S = 5.0
"""A limit that an operator changes holds for the next calls within this time."""
MAX_CACHED_LIMITS = 10_000


@dataclass(frozen=True, slots=True)
class KeyGuard:
    """The limits of keys, as this process read them last."""

    transactions: Transactions
    api_keys: ApiKeys
    _known: dict[UUID, tuple[float, KeyLimits]] = field(default_factory=dict, init=False, repr=False)
    _reading: dict[UUID, asyncio.Task[KeyLimits]] = field(default_factory=dict, init=False, repr=False)

    async def limits(self, key_id: UUID | None) -> KeyLimits:
        """Return the limits of a key; none for a call that no key makes. Raises StoreUnavailable for a key that was never read; the limits
        that were read last still hold while the store is away."""
        if key_id is None:
            return NO_LIMITS
        known = self._known.get(key_id)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        if key_id not in self._reading:
            self._reading[key_id] = asyncio.create_task(self._read(key_id))
        try:
            return await asyncio.shield(self._reading[key_id])  # all calls that wait for this key share one look-up
        except StoreUnavailable:
            if known is None:
                raise
            return known[1]

    async def _read(self, key_id: UUID) -> KeyLimits:
        try:
            until = time.monotonic() + REMEMBER_S
            async with self.transactions.begin() as tx:
                limits = await self.api_keys.limits_of(tx, key_id)
            self._known.pop(key_id, None)
            while len(self._known) >= MAX_CACHED_LIMITS:
                del self._known[next(iter(self._known))]
            self._known[key_id] = (until, limits)
            return limits
        finally:
            del self._reading[key_id]


def allowed_models(names: Sequence[str], limits: KeyLimits, models: Mapping[str, ModelSpec]) -> Sequence[str]:
    """Return those models of a chain that a key may use, in the same order. Raises KeyForbids if there are none."""
    if limits.models is None:
        return names
    allowed = [name for name in names if name in models and limits.allows_model(name, models[name].id)]
    if not allowed:
        raise KeyForbids("model", f"This API key is for the models {', '.join(limits.models)}.")
    return allowed
