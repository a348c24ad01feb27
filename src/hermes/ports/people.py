"""The people who write to Hermes, as operators see them: lists that are read in pages, and the numbers of one person. Opens no seal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction

if TYPE_CHECKING:
    from hermes.ports.users import User, UserChannel, UserState


@dataclass(frozen=True, slots=True)
class PersonSummary:
    """A user in one row."""

    user: User
    channels: Sequence[UserChannel]
    """Those that the reader sees, the first ones of many."""
    credits: int
    """Available ones."""
    wrote_at: datetime | None
    """When they last wrote; None if they never did, or are erased."""
    micro_usd: int
    """What their calls cost in the last 30 days."""
    erased_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleFilter:
    """Which people: those that match every field that is set."""

    state: UserState | None = None
    sender: str | None = None
    """The beginning of a sender's id at a platform."""
    accounts: frozenset[str] | None = None
    """The accounts that the reader sees; None: all. A person belongs to the accounts that they write to."""


@dataclass(frozen=True, slots=True)
class PeopleCursor:
    """The last person of a page."""

    created_at: datetime
    user_id: UUID


@dataclass(frozen=True, slots=True)
class CreditLine:
    """One entry of a user's ledger of credits."""

    id: int
    kind: str
    """grant, reserve, post, void or refund."""
    amount: int
    event: str
    turn_id: UUID | None
    at: datetime


@dataclass(frozen=True, slots=True)
class UserDaySpend:
    """What a user's calls cost on one UTC day."""

    day: date
    micro_usd: int
    calls: int
    """Also refused ones."""


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """How much is known about a user."""

    facts: int
    """Those that hold."""
    superseded: int
    dreams: int


class People(Protocol):
    """Reads people. Fails closed, with StoreUnavailable."""

    async def list(
        self, tx: Transaction, wanted: PeopleFilter, *, before: PeopleCursor | None = None, limit: int = 50
    ) -> Sequence[PersonSummary]:
        """Return people, the newest first; with a sender, in the order of their senders' ids, and no further page."""
        ...

    async def find(self, tx: Transaction, user_id: UUID, accounts: frozenset[str] | None) -> PersonSummary | None:
        """Return one person, also an erased one; None if there is none, or if the reader sees none of their accounts."""
        ...

    async def ledger(self, tx: Transaction, user_id: UUID, *, limit: int, accounts: frozenset[str] | None = None) -> Sequence[CreditLine]:
        """Return the newest entries of their ledger, the newest first; with accounts, without those of turns in other accounts."""
        ...

    async def spend_by_day(self, tx: Transaction, user_id: UUID, *, since: date, accounts: frozenset[str] | None) -> Sequence[UserDaySpend]:
        """Return what their calls cost on each day from `since` on that has calls, in order."""
        ...

    async def count_memory(self, tx: Transaction, user_id: UUID, *, accounts: frozenset[str] | None = None) -> MemoryCounts:
        """Count what is known about them; with accounts, the facts that they told those, and no dreams. Opens nothing."""
        ...
