"""Who does what is done by the clock: one of all processes, once in its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class ChoreLease:
    """The right to do a chore, until it is done, or nobody gave a sign of life for as long as the lease lasts."""

    chore: str
    slot: int
    epoch: int
    """How often the chore was taken; a newer one ends this one's right."""


class Chores(Protocol):
    """Chores by name. Time is cut into numbered slots, and a chore is done once in each: late, if nobody was there, but never twice for
    the ones that were missed. Leases go by the store's clock. Fails closed: with the store away nothing is begun."""

    async def take(self, tx: Transaction, chore: str, slot: int, *, lease_s: float) -> ChoreLease | None:
        """Take a chore that was not done in this slot or a later one; None where it was, or where somebody is at it."""
        ...

    async def keep(self, tx: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        """Give a sign of life; False when the chore is somebody else's by now."""
        ...

    async def end(self, tx: Transaction, lease: ChoreLease) -> None:
        """It is done in its slot. Whoever comes late changes nothing."""
        ...

    async def give_back(self, tx: Transaction, lease: ChoreLease, *, pause_s: float = 0.0) -> None:
        """It is not done; after the pause somebody may take it again. Whoever comes late changes nothing."""
        ...
