"""Money: an append-only ledger, and a balance that is checked against it.

The life of a turn, as the ledger sees it (`attempt` counts its reserves):

    reserve ──▶ post ──▶ refund      paid: at most once in the turn's life, given back at most once, never reserved again
       ▲ │
       └─┴───▶ void                  given back: a later attempt may reserve again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from hermes.ports.transactions import Transaction


@dataclass(frozen=True, slots=True)
class Balance:
    """What a user can spend, and what is reserved for turns under way."""

    available: int
    reserved: int


class Credits(Protocol):
    """The ledger. Fails closed: with the store unreachable nothing is reserved. Every call may be repeated; it counts once.

    A call that changes credits holds the user's balance until its transaction ends, so turns of one user queue there: keep such a
    transaction short, and call no model in it. Whoever changes the credits of two users in one transaction does so in the order of
    their ids, otherwise two such transactions can wait for each other."""

    async def grant(self, tx: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        """Give credits, once per event (`signup:…`, `purchase:…`); False when that event gave them before, whatever the amount.

        Raises NotThere for an unknown user, ValueError for an amount below one or an event that gave to somebody else."""
        ...

    async def reserve(self, tx: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        """Set credits aside for a turn. True: its reserve is open now. False: it was paid already, or has ended, and nothing is
        charged.

        A turn whose reserve is open keeps it, with the amount it has. Two turns never get the same credit. Raises OutOfCredit, and
        ValueError for an amount below one or a turn of another user; then nothing is written."""
        ...

    async def post(self, tx: Transaction, turn_id: UUID) -> bool:
        """Turn the reserve into a charge; False when the turn was posted before.

        Raises NotThere without an open reserve: there never was one, it was voided, or it expired. Whoever has an answer to charge for
        then reserves again, in the same transaction, and posts that."""
        ...

    async def void(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give the open reserve back; False when there is none open, so also for a turn that was posted."""
        ...

    async def refund(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give a charge back, once; False when there is none or it was given back before. The turn stays paid: it is not charged again."""
        ...

    async def expire(self, tx: Transaction, older_than_s: float) -> int:
        """Void the reserves that are at least this old, since no turn will end them any more; return how many.

        Never waits: somebody whose balance is in use at the moment is left for the next time. A transaction of its own, please."""
        ...

    async def balance(self, tx: Transaction, user_id: UUID) -> Balance:
        """Return the balance; zero for somebody who never had any."""
        ...

    async def audit(self, tx: Transaction) -> list[str]:
        """Compare every balance with its ledger, and every turn with the life above; return what is wrong, one line each. Empty is good."""
        ...
