"""Credits in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from hermes.ports.credits import Balance
from hermes.ports.errors import NotFound, OutOfCredit
from hermes.ports.runtime import Transaction


@dataclass(slots=True)
class MemoryCredits:
    """The port Credits: the credits of each user, and the state of each turn."""

    available: dict[UUID, int] = field(default_factory=dict)
    turns: dict[UUID, tuple[UUID, str]] = field(default_factory=dict)
    """By turn: the id of its user, and `reserved`, `posted`, `voided` or `refunded`."""
    granted: set[str] = field(default_factory=set)

    async def grant(self, _: Transaction, user_id: UUID, amount: int, event: str) -> bool:
        if event in self.granted:
            return False
        self.granted.add(event)
        self.available[user_id] = self.available.get(user_id, 0) + amount
        return True

    async def reserve(self, _: Transaction, user_id: UUID, turn_id: UUID, amount: int = 1) -> bool:
        state = self.turns.get(turn_id, (user_id, ""))[1]
        if state in ("posted", "refunded"):
            return False
        if state != "reserved":
            if self.available.get(user_id, 0) < amount:
                raise OutOfCredit
            self.available[user_id] -= amount
            self.turns[turn_id] = (user_id, "reserved")
        return True

    async def post(self, _: Transaction, turn_id: UUID) -> bool:
        user_id, state = self.turns.get(turn_id, (turn_id, ""))
        if state in ("posted", "refunded"):
            return False
        if state != "reserved":
            raise NotFound(f"turn {turn_id} has nothing reserved")
        self.turns[turn_id] = (user_id, "posted")
        return True

    async def void(self, _: Transaction, turn_id: UUID) -> bool:
        return self._give_back(turn_id, "reserved", "voided")

    async def refund(self, _: Transaction, turn_id: UUID) -> bool:
        return self._give_back(turn_id, "posted", "refunded")

    async def expire(self, _: Transaction, __: float) -> int:
        return 0

    async def balance(self, _: Transaction, user_id: UUID) -> Balance:
        reserved = sum(owner == user_id and state == "reserved" for owner, state in self.turns.values())
        return Balance(self.available.get(user_id, 0), reserved)

    async def audit(self, _: Transaction) -> list[str]:
        return []

    def _give_back(self, turn_id: UUID, before: str, after: str) -> bool:
        user_id, state = self.turns.get(turn_id, (turn_id, ""))
        if state != before:
            return False
        self.turns[turn_id] = (user_id, after)
        self.available[user_id] = self.available.get(user_id, 0) + 1
        return True
