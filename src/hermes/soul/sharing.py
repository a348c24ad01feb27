"""Which facts a user means when they ask to share one with a group, and how they are shown there.

A user shares single facts, by their key or by words that are all in the fact. They are shown to a model beside the messages of that user
alone, so whatever erases these messages erases them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.memories import Fact, Memories
from hermes.ports.runtime import Transaction
from hermes.ports.tools import ShareableFact, ToolUser
from hermes.soul.forgetting import find_key
from hermes.soul.prompt_layers import Sanitize
from hermes.soul.terms import terms

MAX_FACTS = 3
"""Facts in one offer. A user shares single facts, not what Hermes knows of them."""


@dataclass(frozen=True, slots=True)
class MemorySharing:
    """Implements the port FactSharing."""

    memories: Memories
    sanitize: Sanitize

    async def find(self, tx: Transaction, user: ToolUser, what: str) -> Sequence[ShareableFact]:
        key, asked = find_key(what), set(terms(what))
        live = await self.memories.live(tx, user.user_id, now=user.now)
        meant = [fact for fact in live if (fact.key == key if key is not None else is_named(fact, asked))]
        shown = [ShareableFact(fact.id, line) for fact in meant if (line := fact_line(fact, self.sanitize)) is not None]
        return shown if len(shown) <= MAX_FACTS else ()

    async def share(self, tx: Transaction, user: ToolUser, asked_in: UUID, fact_ids: Sequence[UUID]) -> Sequence[str]:
        shared = await self.memories.share(tx, user.user_id, asked_in, fact_ids, now=user.now)
        return [line for fact in shared if (line := fact_line(fact, self.sanitize)) is not None]

    async def take_back(self, tx: Transaction, user: ToolUser, asked_in: UUID, fact_ids: Sequence[UUID]) -> None:
        await self.memories.unshare(tx, user.user_id, asked_in, fact_ids)


def is_named(fact: Fact, asked: set[str]) -> bool:
    return bool(asked) and asked <= set(terms(f"{(fact.key or '').replace('_', ' ')} {fact.text}"))


def fact_line(fact: Fact, sanitize: Sanitize) -> str | None:
    """The fact as others read it; None for a text that a model must not read."""
    clean = sanitize(fact.text)
    if not clean:
        return None
    return f"{fact.key.replace('_', ' ')}: {clean}" if fact.key else clean
