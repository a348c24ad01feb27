"""Find what an operator has a piece of: an id or its beginning, a sender, a referral code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction


class HitKind(StrEnum):
    """What was found."""

    TURN = "turn"
    CONVERSATION = "conversation"
    """A session: one stretch of a conversation, with a graph of its own."""
    CALL = "call"
    USER = "user"
    KEY = "key"
    PROCESS = "process"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """One thing that was found."""

    kind: HitKind
    id: UUID
    """Where its page is: for a message that was joined to a turn, that turn; for a conversation, its newest session."""
    account: str | None
    at: datetime | None
    sender: str | None = None
    """Where a sender was searched for."""


class SearchIndex(Protocol):
    """Finds by indexes alone. Fails with StoreUnavailable."""

    async def by_id(self, tx: Transaction, low: UUID, high: UUID, *, accounts: frozenset[str] | None, limit: int) -> Sequence[SearchHit]:
        """Return what has an id from `low` to `high`; of each kind at most `limit`."""
        ...

    async def by_code(self, tx: Transaction, code: str, *, accounts: frozenset[str] | None) -> Sequence[SearchHit]:
        """Return the user with this referral code."""
        ...

    async def by_sender(self, tx: Transaction, prefix: str, *, accounts: frozenset[str] | None, limit: int) -> Sequence[SearchHit]:
        """Return users whose identifier at a platform begins so."""
        ...
