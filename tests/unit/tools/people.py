"""The user of the tools, and stores without a database."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from hermes.ports.runtime import Transaction
from hermes.ports.tools import EffectRecord, ErasedFacts, PreferenceChange, ToolUser
from hermes.testing.memory import offers as memory_offers

NOON = datetime(2026, 3, 6, 4, 0, tzinfo=UTC)
"""A Friday; twelve o'clock in Bali."""


def somebody(user_id: UUID | None = None, *, now: datetime = NOON, timezone: str = "Asia/Makassar") -> ToolUser:
    return ToolUser(user_id or uuid4(), "bali", "en", timezone, uuid4(), now)


def later(user: ToolUser, **by: float) -> ToolUser:
    """The same user, in another turn."""
    return replace(user, turn_id=uuid4(), now=user.now + timedelta(**by))


@dataclass
class MemoryEffects:
    """The ports Transactions, EffectRecords and Offers in memory. What a transaction did is gone when it fails."""

    rows: dict[Any, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def begin_(self) -> AsyncIterator[Transaction]:
        before = deepcopy(self.rows)
        try:
            yield self
        except BaseException:
            self.rows = before
            raise


class MemoryTransactions(MemoryEffects):
    def begin(self) -> Any:
        return self.begin_()


@dataclass
class MemoryOutcomes:
    effects: MemoryEffects

    async def begin(self, tx: Transaction, user: ToolUser, index: int, name: str) -> EffectRecord:
        key = (user.user_id, user.turn_id, index)
        if key in self.effects.rows:
            return EffectRecord(is_new=False, text=self.effects.rows[key])
        self.effects.rows[key] = None
        return EffectRecord(is_new=True, text=None)

    async def finish(self, tx: Transaction, user: ToolUser, index: int, text: str) -> None:
        self.effects.rows[user.user_id, user.turn_id, index] = text


class MemoryOffers(memory_offers.MemoryOffers):
    """The port Offers, in the rows of `effects`: what a failed transaction did is gone."""

    def __init__(self, effects: MemoryEffects) -> None:
        self.effects = effects

    @property
    def rows(self) -> dict[Any, Any]:  # type: ignore[override]
        return self.effects.rows


@dataclass
class MemoryNotebook:
    """The port Notebook."""

    known: dict[tuple[UUID, str], str] = field(default_factory=dict)
    observed: dict[UUID, Mapping[str, str]] = field(default_factory=dict)

    async def save(self, user: ToolUser, key: str, value: str, *, no_longer: bool = False) -> PreferenceChange:
        if key == "colour of the moon":
            raise ValueError("nobody needs to know that")
        before = self.known.get((user.user_id, key))
        if not no_longer:
            self.known[user.user_id, key] = value
        elif before == value:
            del self.known[user.user_id, key]
        return PreferenceChange(before, self.known.get((user.user_id, key)))

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        gone = {place: value for place, value in self.known.items() if place[0] == user.user_id and what in (*place, value, "")}
        self.known = {place: value for place, value in self.known.items() if place not in gone}
        return ErasedFacts([f"{key}: {value}" for (_, key), value in gone.items()], was_said=False)

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        mine: Mapping[str, str] = {key: value for (owner, key), value in self.known.items() if owner == user.user_id}
        return [f"{key}: {value}" for key, value in mine.items() if query in key or query in value]

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        self.observed[user.user_id] = facts
