"""The notebook of the tools: how a model saves, looks up and forgets facts about a user.

A structural key takes only values of its form; another value is refused with a description of that form. Any other key makes a free fact,
"favourite colour: green", which replaces the earlier one of that key. MemoryWriter decides what is kept, and Recall what is found."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace

from hermes.ports.memories import Fact, FactOrigin
from hermes.ports.runtime import Transaction
from hermes.ports.tools import ErasedFacts, PreferenceChange, ToolUser
from hermes.soul.extract import JUNK_PATTERNS, MemoryWriter
from hermes.soul.extract_rules import read_statements
from hermes.soul.fact_keys import (
    KEYS,
    LIST_KEYS,
    SYSTEM_KEYS,
    BadValue,
    Op,
    normalize_value,
    split_items,
)
from hermes.soul.forgetting import ForgetRequest, MemoryEraser, find_key
from hermes.soul.recall import MAX_RECALLED_FACTS, Recall
from hermes.soul.supersede import LearnedFact
from hermes.soul.terms import terms

FREE_TEXT_KEYS = frozenset({"note", "fact"})
"""Keys whose facts are kept in the user's own words, without the key; a new one does not replace an older one."""


@dataclass(frozen=True, slots=True)
class MemoryNotebook:
    """Implements the port Notebook."""

    writer: MemoryWriter
    recall: Recall
    forgetting: MemoryEraser

    async def save(self, user: ToolUser, key: str, value: str, *, no_longer: bool = False) -> PreferenceChange:
        name = normalize_key(key)
        learnt = self._keyed_fact(name, value) if name in KEYS else self._free_fact(name, value)
        before = await self._saved_fact(user, name)
        if no_longer and learnt.key is None:
            raise ValueError("this key is not a structural one; use forget_memory to remove its fact")
        if no_longer:
            learnt = replace(learnt, op=Op.REMOVE)
        elif learnt.key is None:
            learnt = replace(learnt, replaces=before.id if before else None)
        await self.writer.save(user.user_id, [replace(learnt, source_turn=user.turn_id)], now=user.now)
        return PreferenceChange(value_of(before), value_of(await self._saved_fact(user, name)))

    async def forget(self, user: ToolUser, what: str) -> ErasedFacts:
        return await self.forgetting.forget(user.user_id, read_forget_requests(what), turn_id=user.turn_id, now=user.now)

    async def search(self, user: ToolUser, query: str) -> Sequence[str]:
        async with self.writer.transactions.begin() as tx:
            known = await self.writer.memories.structural(tx, user.user_id, now=user.now)
        found = (await self.recall.find(user.user_id, query, now=user.now)).facts
        return list(self._lines([*facts_about(known, query), *found]))[:MAX_RECALLED_FACTS]

    async def observe(self, tx: Transaction, user: ToolUser, facts: Mapping[str, str]) -> None:
        known = {fact.key: fact.origin for fact in await self.writer.memories.structural(tx, user.user_id, now=user.now)}
        new = [
            LearnedFact(text=text, key=key, origin=FactOrigin.SYSTEM, source_turn=user.turn_id)
            for key, text in facts.items()
            if known.get(key, FactOrigin.SYSTEM) is FactOrigin.SYSTEM
        ]
        # The base is dropped before the caller's commit: a turn that loads it in that moment caches the old facts until they change again.
        await replace(self.writer, transactions=OpenTransactions(tx)).save(user.user_id, new, now=user.now)

    def _keyed_fact(self, key: str, value: str) -> LearnedFact:
        if key in SYSTEM_KEYS:
            raise ValueError(f"Hermes notes {key} by itself; it cannot be saved")
        try:
            text = normalize_value(key, value)
        except BadValue as error:
            raise ValueError(f"{error}; it takes {KEYS[key].form}") from None
        if any(self.writer.sanitize(item) is None for item in (split_items(text) if key in LIST_KEYS else [text])):
            raise ValueError("this cannot be remembered, because it reads like an instruction")
        # Lists grow: a user who is allergic to nuts and now mentions shrimps is allergic to both.
        return LearnedFact(text=text, key=key, op=Op.ADD if key in LIST_KEYS else Op.SET, origin=FactOrigin.TOOL)

    def _free_fact(self, key: str, value: str) -> LearnedFact:
        clean = self.writer.sanitize(value if key in FREE_TEXT_KEYS else free_fact_text(key, value))
        if clean is None:
            raise ValueError("this cannot be remembered, because it reads like an instruction")
        if any(pattern.search(clean) for pattern in JUNK_PATTERNS):
            raise ValueError("links, passwords, questions, card numbers and telephone numbers are not remembered")
        if len(terms(clean)) < 2:
            raise ValueError("this says too little to be remembered; say it in a few more words")
        return LearnedFact(text=clean, origin=FactOrigin.TOOL)

    async def _saved_fact(self, user: ToolUser, key: str) -> Fact | None:
        """The fact of a structural key; for another key, the free fact that a tool saved under it."""
        if key in FREE_TEXT_KEYS:
            return None
        memories, opening = self.writer.memories, free_fact_text(key, "")
        async with self.writer.transactions.begin() as tx:
            if key in KEYS:
                return next((fact for fact in await memories.structural(tx, user.user_id, now=user.now) if fact.key == key), None)
            known = await memories.live(tx, user.user_id, now=user.now)
        return next((fact for fact in known if fact.key is None and fact.origin is FactOrigin.TOOL and fact.text.startswith(opening)), None)

    def _lines(self, facts: Sequence[Fact]) -> Iterator[str]:
        for fact in facts:
            clean = self.writer.sanitize(fact.text)
            if clean is not None:
                yield f"{fact.key}: {clean}" if fact.key else clean


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Implements the port Transactions inside a transaction that is already open: all changes commit or fail with it."""

    tx: Transaction

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        yield self.tx

    once = begin


def normalize_key(key: str) -> str:
    """A key in its one spelling: `Home Area` becomes `home_area`."""
    return re.sub(r"[\s_-]+", "_", key.strip().casefold())


def value_of(fact: Fact | None) -> str | None:
    """The value of a fact; of a free fact, the text after its key."""
    if fact is None:
        return None
    return fact.text if fact.key is not None else fact.text.partition(": ")[2]


def read_forget_requests(what: str) -> list[ForgetRequest]:
    """What a tool call asks to forget: a key, a key with a value, a statement about the user, or all facts with these words."""
    if not what.strip():
        return [ForgetRequest(None, "")]
    key, _, value = what.partition(":")
    if (whole := find_key(what)) is not None:
        return [ForgetRequest(whole, "")]
    if (name := find_key(key)) is not None and value.strip():
        with suppress(BadValue):
            return [ForgetRequest(name, normalize_value(name, value.strip()))]
        return [ForgetRequest(None, value.strip())]
    stated = [
        ForgetRequest(found.key, found.value) for found in read_statements(what) if found.key is not None and found.op in (Op.SET, Op.ADD)
    ]
    return stated or [ForgetRequest(None, what.strip())]


def free_fact_text(key: str, value: str) -> str:
    return f"{key.replace('_', ' ')}: {value}"


def facts_about(known: Sequence[Fact], query: str) -> list[Fact]:
    """The structural facts whose key or value has a word of the query. Recall searches only the free facts."""
    asked = set(terms(query))
    return [fact for fact in known if asked & set(terms(f"{(fact.key or '').replace('_', ' ')} {fact.text}"))]
