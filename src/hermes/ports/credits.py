"""Credits: append-only entries, and a balance that is checked against them.

The life of a turn's credit (`attempt` counts its reserves):

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
    """The credits of users. Fails closed: with the store unreachable nothing is reserved. Every call may be repeated; it counts once.

    A call that changes credits locks the user's balance until its transaction ends, so turns of one user queue there: keep such a
    transaction short, and call no model in it. A caller that changes the credits of two users in one transaction does so in the order of
    their ids; otherwise two such transactions can wait for each other."""

    async def grant(self, tx: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        """Give credits, once per event (`signup:…`, `purchase:…`); False if that event gave them before, whatever the amount.

        Raises NotFound for an unknown user, ValueError for an amount below one or an event that gave credits to another user."""
        ...

    async def reserve(self, tx: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        """Reserve credits for a turn. True: its reserve is open now. False: the turn was paid already, or has ended, and nothing is
        charged.

        A turn whose reserve is open keeps it, with the amount it has. Two turns never get the same credit. Raises OutOfCredit, and
        ValueError for an amount below one or a turn of another user; then nothing is written."""
        ...

    async def post(self, tx: Transaction, turn_id: UUID) -> bool:
        """Turn the reserve into a charge; False if the turn was posted before.

        Raises NotFound without an open reserve: there never was one, it was voided, or it expired. A caller that has an answer to charge
        for then reserves again, in the same transaction, and posts that."""
        ...

    async def void(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give the open reserve back; False if none is open, so also for a turn that was posted."""
        ...

    async def refund(self, tx: Transaction, turn_id: UUID) -> bool:
        """Give a charge back, once; False if there is none or it was given back before. The turn stays paid: it is not charged again."""
        ...

    async def expire(self, tx: Transaction, older_than_s: float) -> int:
        """Void the reserves that are at least this old, because no turn will end them any more; return how many.

        Never waits: a user whose balance is locked is left for the next call. Call it in a transaction of its own."""
        ...

    async def balance(self, tx: Transaction, user_id: UUID) -> Balance:
        """Return the balance; zero for a user who never had credits."""
        ...

    async def audit(self, tx: Transaction) -> list[str]:
        """Compare every balance with its entries, and every turn with the life above; return the faults, one line each. Empty is good."""
        ...
