"""Offers in memory: what a tool would do, until its user approves or refuses it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from hermes.ports.runtime import Transaction
from hermes.ports.tools import NewOffer, OfferNotice, OfferNotOpen, OfferState, OfferView, TakenOffer, ToolUser


@dataclass(frozen=True, slots=True)
class MemoryOffer:
    """A stored offer."""

    offer: NewOffer
    turn_id: UUID
    index: int
    expires_at: datetime
    state: OfferState = OfferState.OFFERED
    settled_by: UUID | None = None
    result: str | None = None

    def state_for(self, user: ToolUser) -> OfferState:
        if self.state is OfferState.APPROVED and self.settled_by == user.turn_id:
            return OfferState.OFFERED
        return OfferState.EXPIRED if self.state is OfferState.OFFERED and self.expires_at <= user.now else self.state


@dataclass(slots=True)
class MemoryOffers:
    """The port Offers. Codes count up: CCCC22, CCCC23."""

    rows: dict[tuple[UUID, str], MemoryOffer] = field(default_factory=dict)

    async def put(self, _: Transaction, user: ToolUser, index: int, offer: NewOffer, *, valid_s: float) -> OfferNotice:
        code = f"CCCC{22 + len(self.rows)}"
        expires_at = user.now + timedelta(seconds=valid_s)
        self.rows[user.user_id, code] = MemoryOffer(offer, user.turn_id, index, expires_at)
        return OfferNotice(code, offer.tool, offer.text, expires_at)

    async def look(self, _: Transaction, user: ToolUser, code: str) -> OfferView | None:
        found = self.rows.get((user.user_id, code))
        return None if found is None else OfferView(found.offer.tool, found.offer.text, found.state_for(user))

    async def take(self, _: Transaction, user: ToolUser, code: str) -> TakenOffer:
        found = self._settle(user, code, OfferState.APPROVED)
        is_new = found.state is OfferState.OFFERED
        return TakenOffer(found.offer.tool, found.offer.terms, f"{found.turn_id}/{found.index}", is_new=is_new, result=found.result)

    async def finish(self, _: Transaction, user: ToolUser, code: str, result: str) -> None:
        self.rows[user.user_id, code] = replace(self.rows[user.user_id, code], result=result)

    async def refuse(self, _: Transaction, user: ToolUser, code: str) -> None:
        self._settle(user, code, OfferState.REFUSED)

    async def expire(self, _: Transaction, now: datetime, *, limit: int = 500) -> int:
        old = [key for key, row in self.rows.items() if row.state is OfferState.OFFERED and row.expires_at <= now][:limit]
        for key in old:
            self.rows[key] = replace(self.rows[key], state=OfferState.EXPIRED)
        return len(old)

    def _settle(self, user: ToolUser, code: str, state: OfferState) -> MemoryOffer:
        found = self.rows.get((user.user_id, code))
        if found is None or found.turn_id == user.turn_id:
            raise OfferNotOpen(None)
        if (found.state, found.settled_by) == (state, user.turn_id):
            return found
        if found.state_for(user) is not OfferState.OFFERED:
            raise OfferNotOpen(found.state_for(user))
        self.rows[user.user_id, code] = replace(found, state=state, settled_by=user.turn_id)
        return found
