"""What tools write down about a user and look up again: the memory, as a model may use it.

A key of the structural ones is typed, and what it cannot hold is refused with the form that it wants; any other key makes a free fact,
"favourite colour: green", in place of the one that said so before. What is kept and found is decided where it always is, by MemoryWriter
and Recall."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from uuid import UUID

from hermes.ports.memories import Fact, Origin
from hermes.ports.tools import ToolUser
from hermes.ports.transactions import Transaction
from hermes.soul.extract import JUNK, MemoryWriter
from hermes.soul.facts import BUDGETS, DAYS, DIETS, GOALS, KEYS, LISTS, TONGUES, UNASKED, BadValue, Op, items, typed
from hermes.soul.facts_plan import Learnt
from hermes.soul.recall import MOST, Recall
from hermes.soul.recall_terms import terms

FORMS: Mapping[str, str] = {
    "diet": f"one of {', '.join(DIETS)}",
    "typical_party_size": "a number from 1 to 50",
    "preferred_booking_hour": "an hour from 0 to 23",
    "preferred_booking_day": f"one of {', '.join(DAYS)}",
    "language": f"one of {', '.join(TONGUES)}",
    "timezone": "an IANA name such as Asia/Makassar",
    "budget_level": f"one of {', '.join(BUDGETS)}",
    "calorie_target": "a number from 500 to 10000",
    "fitness_goal": f"one of {', '.join(GOALS)}",
    **dict.fromkeys(LISTS, "short names with commas between them"),
}
"""What a key wants that is no short name."""


@dataclass(frozen=True, slots=True)
class MemoryNotebook:
    """The port Notebook."""

    writer: MemoryWriter
    recall: Recall

    async def save(self, user: ToolUser, key: str, value: str) -> None:
        wanted = named(key)
        learnt = self._keyed(wanted, value) if wanted in KEYS else self._free(wanted, value)
        if learnt.key is None:
            learnt = replace(learnt, replaces=await self._before(user, wanted))
        await self.writer.save(user.user_id, [replace(learnt, source_turn=user.turn_id)], now=user.now)

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        async with self.writer.transactions.begin() as tx:
            known = await self.writer.memories.keyed(tx, user.user_id, now=user.now)
        found = (await self.recall.find(user.user_id, query, now=user.now)).facts
        return list(self._lines([*about(known, query), *found]))[:MOST]

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        known = {fact.key: fact.origin for fact in await self.writer.memories.keyed(tx, user.user_id, now=user.now)}
        new = [
            Learnt(text=text, key=key, origin=Origin.SYSTEM, source_turn=user.turn_id)
            for key, text in facts.items()
            if known.get(key, Origin.SYSTEM) is Origin.SYSTEM
        ]
        # The base is dropped before the caller's commit: who loads it in that moment sees the old facts until they change again.
        await replace(self.writer, transactions=Within(tx)).save(user.user_id, new, now=user.now)

    def _keyed(self, key: str, value: str) -> Learnt:
        if key in UNASKED:
            raise ValueError(f"{key} is noted by itself; nobody needs to save it")
        try:
            text = typed(key, value)
        except BadValue as error:
            raise ValueError(f"{error}; it takes {FORMS.get(key, 'a short name')}") from None
        if any(self.writer.sanitize(item) is None for item in (items(text) if key in LISTS else [text])):
            raise ValueError("this cannot be remembered, because it reads like an instruction")
        # Lists add up: who is allergic to nuts and now mentions shrimps is allergic to both.
        return Learnt(text=text, key=key, op=Op.ADD if key in LISTS else Op.SET, origin=Origin.TOOL)

    def _free(self, key: str, value: str) -> Learnt:
        clean = self.writer.sanitize(spoken(key, value))
        if clean is None:
            raise ValueError("this cannot be remembered, because it reads like an instruction")
        if any(pattern.search(clean) for pattern in JUNK):
            raise ValueError("links, passwords, questions and the numbers of cards and telephones are not remembered")
        if len(terms(clean)) < 2:
            raise ValueError("this says too little to be remembered; put it into a few more words")
        return Learnt(text=clean, origin=Origin.TOOL)

    async def _before(self, user: ToolUser, key: str) -> UUID | None:
        """The free fact that a tool saved under the same key."""
        async with self.writer.transactions.begin() as tx:
            known = await self.writer.memories.live(tx, user.user_id, now=user.now)
        opening = spoken(key, "")
        return next((fact.id for fact in known if fact.key is None and fact.origin is Origin.TOOL and fact.text.startswith(opening)), None)

    def _lines(self, facts: Sequence[Fact]) -> Iterator[str]:
        for fact in facts:
            clean = self.writer.sanitize(fact.text)
            if clean is not None:
                yield f"{fact.key}: {clean}" if fact.key else clean


@dataclass(frozen=True, slots=True)
class Within:
    """The port Transactions inside one that is open: what happens here happens with it."""

    tx: Transaction

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield self.tx

    once = begin


def named(key: str) -> str:
    """A key in its one spelling: `Home Area` is `home_area`."""
    return re.sub(r"[\s_-]+", "_", key.strip().casefold())


def spoken(key: str, value: str) -> str:
    return f"{key.replace('_', ' ')}: {value}"


def about(known: Sequence[Fact], query: str) -> list[Fact]:
    """The structural facts whose key or value has a word of the query. Recall searches the free ones alone."""
    asked = set(terms(query))
    return [fact for fact in known if asked & set(terms(f"{(fact.key or '').replace('_', ' ')} {fact.text}"))]
