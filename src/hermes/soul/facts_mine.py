"""What a user may see and take back of what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.memories import Dream, Dreams, Fact, Memories
from hermes.ports.souls import Souls
from hermes.ports.transactions import Transactions


@dataclass(frozen=True, slots=True)
class MyMemory:
    """All that is known of somebody, also what is no longer held to be true."""

    facts: Sequence[Fact]
    dreams: Sequence[Dream]


async def my_memory(user_id: UUID, *, transactions: Transactions, memories: Memories, dreams: Dreams) -> MyMemory:
    """Return everything, oldest first. Raises Forgotten and StoreUnavailable."""
    async with transactions.begin() as tx:
        return MyMemory(await memories.all(tx, user_id), await dreams.all(tx, user_id))


async def forget_fact(user_id: UUID, fact_id: UUID, *, transactions: Transactions, memories: Memories, souls: Souls) -> bool:
    """Take one fact out for good; False if the user has no such fact."""
    async with transactions.begin() as tx:
        was_there = await memories.delete(tx, user_id, fact_id)
    if was_there:
        await souls.invalidate(user_id)
    return was_there


async def forget_memory(user_id: UUID, *, transactions: Transactions, memories: Memories, souls: Souls) -> int:
    """Take everything out that is known of a user, dreams included; the user stays. Return how many facts there were."""
    async with transactions.begin() as tx:
        count = await memories.erase(tx, user_id)
    await souls.invalidate(user_id)
    return count
