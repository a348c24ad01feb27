"""Chores: work by the clock, done by one of all processes, once in each time slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class ChoreLease:
    """The right to do a chore, until it is done, or until its process has not renewed the lease in time."""

    chore: str
    slot: int
    epoch: int
    """How often the chore was taken; a lease with a higher epoch ends this one."""


class Chores(Protocol):
    """Chores by name. Time is divided into numbered slots, and a chore is done once in each. If no process ran, it is done late, and once
    for all slots that were missed. Leases use the store's clock. Fails closed: while the store is down, no chore begins."""

    async def take(self, tx: Transaction, chore: str, slot: int, *, lease_s: float) -> ChoreLease | None:
        """Take a chore that was not done in this slot or a later one; None if it was done, or if another process is doing it."""
        ...

    async def keep(self, tx: Transaction, lease: ChoreLease, *, lease_s: float) -> bool:
        """Renew the lease; False if another process has taken the chore."""
        ...

    async def end(self, tx: Transaction, lease: ChoreLease) -> None:
        """Note that the chore is done in its slot. A call with an old lease changes nothing."""
        ...

    async def give_back(self, tx: Transaction, lease: ChoreLease, *, pause_s: float = 0.0) -> None:
        """Give the chore back undone; after the pause any process may take it again. A call with an old lease changes nothing."""
        ...
