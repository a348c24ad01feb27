"""What tools write down about a user and look up again: the memory, as a model may use it.

A key of the structural ones is typed, and what it cannot hold is refused with the form that it wants; any other key makes a free fact,
"favourite colour: green", in place of the one that said so before. What is kept and found is decided where it always is, by MemoryWriter
and Recall."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from hermes.ports.memories import Fact, FactOrigin
from hermes.ports.tools import ErasedFacts, PreferenceChange, ToolUser
from hermes.ports.transactions import Transaction
from hermes.soul.extract import JUNK, MemoryWriter
from hermes.soul.extract_rules import read_statements
from hermes.soul.facts import BUDGETS, DAYS, DIETS, GOALS, KEYS, LISTS, TONGUES, UNASKED, BadValue, Op, items, typed
from hermes.soul.facts_plan import Learnt
from hermes.soul.forgetting import Forgetting, Wish, named_key
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
OWN_WORDS = frozenset({"note", "fact"})
"""Keys of what is kept in the user's own words alone; one does not take the place of another."""


@dataclass(frozen=True, slots=True)
class MemoryNotebook:
    """The port Notebook."""

    writer: MemoryWriter
    recall: Recall
    forgetting: Forgetting

    async def save(self, user: ToolUser, key: str, value: str, *, no_longer: bool = False) -> PreferenceChange:
        wanted = named(key)
        learnt = self._keyed(wanted, value) if wanted in KEYS else self._free(wanted, value)
        before = await self._before(user, wanted)
        if no_longer and learnt.key is None:
            raise ValueError("this is noted in words of its own; forget_memory takes it back")
        if no_longer:
            learnt = replace(learnt, op=Op.REMOVE)
        elif learnt.key is None:
            learnt = replace(learnt, replaces=before.id if before else None)
        await self.writer.save(user.user_id, [replace(learnt, source_turn=user.turn_id)], now=user.now)
        return PreferenceChange(value_of(before), value_of(await self._before(user, wanted)))

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        return await self.forgetting.forget(user.user_id, wishes_in(what), turn_id=user.turn_id, now=user.now)

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        async with self.writer.transactions.begin() as tx:
            known = await self.writer.memories.keyed(tx, user.user_id, now=user.now)
        found = (await self.recall.find(user.user_id, query, now=user.now)).facts
        return list(self._lines([*about(known, query), *found]))[:MOST]

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        known = {fact.key: fact.origin for fact in await self.writer.memories.keyed(tx, user.user_id, now=user.now)}
        new = [
            Learnt(text=text, key=key, origin=FactOrigin.SYSTEM, source_turn=user.turn_id)
            for key, text in facts.items()
            if known.get(key, FactOrigin.SYSTEM) is FactOrigin.SYSTEM
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
        return Learnt(text=text, key=key, op=Op.ADD if key in LISTS else Op.SET, origin=FactOrigin.TOOL)

    def _free(self, key: str, value: str) -> Learnt:
        clean = self.writer.sanitize(value if key in OWN_WORDS else spoken(key, value))
        if clean is None:
            raise ValueError("this cannot be remembered, because it reads like an instruction")
        if any(pattern.search(clean) for pattern in JUNK):
            raise ValueError("links, passwords, questions and the numbers of cards and telephones are not remembered")
        if len(terms(clean)) < 2:
            raise ValueError("this says too little to be remembered; put it into a few more words")
        return Learnt(text=clean, origin=FactOrigin.TOOL)

    async def _before(self, user: ToolUser, key: str) -> Fact | None:
        """The fact that a key holds; of a key that is not structural, the free fact that a tool saved under it."""
        if key in OWN_WORDS:
            return None
        memories, opening = self.writer.memories, spoken(key, "")
        async with self.writer.transactions.begin() as tx:
            if key in KEYS:
                return next((fact for fact in await memories.keyed(tx, user.user_id, now=user.now) if fact.key == key), None)
            known = await memories.live(tx, user.user_id, now=user.now)
        return next((fact for fact in known if fact.key is None and fact.origin is FactOrigin.TOOL and fact.text.startswith(opening)), None)

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


def value_of(fact: Fact | None) -> str | None:
    """What a fact says of its key, also where the key is part of the text."""
    if fact is None:
        return None
    return fact.text if fact.key is not None else fact.text.partition(": ")[2]


def wishes_in(what: str) -> list[Wish]:
    """What a few words ask to forget: a key, a key and its value, what they say of the user, or whatever speaks of them."""
    if not what.strip():
        return [Wish(None, "")]
    key, _, value = what.partition(":")
    if (whole := named_key(what)) is not None:
        return [Wish(whole, "")]
    if (name := named_key(key)) is not None and value.strip():
        with suppress(BadValue):
            return [Wish(name, typed(name, value.strip()))]
        return [Wish(None, value.strip())]
    stated = [Wish(found.key, found.value) for found in read_statements(what) if found.key is not None and found.op in (Op.SET, Op.ADD)]
    return stated or [Wish(None, what.strip())]


def spoken(key: str, value: str) -> str:
    return f"{key.replace('_', ' ')}: {value}"


def about(known: Sequence[Fact], query: str) -> list[Fact]:
    """The structural facts whose key or value has a word of the query. Recall searches the free ones alone."""
    asked = set(terms(query))
    return [fact for fact in known if asked & set(terms(f"{(fact.key or '').replace('_', ' ')} {fact.text}"))]
