"""What a user may see and take back of what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.memories import Dream, Dreams, Fact, Memories
from hermes.ports.souls import Souls
from hermes.ports.transactions import Transactions
from hermes.soul.recall_terms import terms
from hermes.soul.words import Words


@dataclass(frozen=True, slots=True)
class MyMemory:
    """All that is known of somebody, also what is no longer held to be true."""

    facts: Sequence[Fact]
    dreams: Sequence[Dream]


async def my_memory(user_id: UUID, *, transactions: Transactions, memories: Memories, dreams: Dreams) -> MyMemory:
    """Return everything, oldest first. Raises Forgotten and StoreUnavailable."""
    async with transactions.begin() as tx:
        return MyMemory(await memories.all(tx, user_id), await dreams.all(tx, user_id))


async def forget_fact(
    user_id: UUID,
    fact_id: UUID,
    *,
    transactions: Transactions,
    memories: Memories,
    souls: Souls,
    words: Words | None = None,
    account: str | None = None,
) -> bool:
    """Take one fact out for good; False if the user has no such fact or, with an account, none that was learnt there.

    With `words` the user's sessions end with it: the fact may stand in what models were told before, and the next message begins anew."""
    async with transactions.begin() as tx:
        is_theirs = account is None or fact_id in await memories.learnt_in(tx, user_id, account)
        gone = await memories.read(tx, user_id, [fact_id]) if is_theirs else ()
        was_there = is_theirs and await memories.delete(tx, user_id, fact_id)
        await memories.mark_forgotten(tx, user_id, None, [(fact.key, found) for fact in gone if (found := terms(fact.text))])
        ended = await words.sessions.end(tx, user_id) if words and was_there else ()
    if was_there:
        await _show_no_more(user_id, ended, souls, words)
    return was_there


async def forget_memory(
    user_id: UUID,
    *,
    transactions: Transactions,
    memories: Memories,
    souls: Souls,
    words: Words | None = None,
    account: str | None = None,
) -> int:
    """Take everything out that is known of a user, dreams included; with an account, what was learnt there. The user stays. Return how many
    facts there were. With `words` the user's sessions end with it, as with `forget_fact`."""
    async with transactions.begin() as tx:
        if account is None:
            count = await memories.erase(tx, user_id)
            await memories.mark_forgotten(tx, user_id, None, [(None, ())])
        else:
            learnt = await memories.learnt_in(tx, user_id, account)
            gone = await memories.read(tx, user_id, sorted(learnt))
            await memories.mark_forgotten(tx, user_id, None, [(fact.key, found) for fact in gone if (found := terms(fact.text))])
            count = sum([await memories.delete(tx, user_id, fact_id) for fact_id in sorted(learnt)])
        ended = await words.sessions.end(tx, user_id) if words else ()
    await _show_no_more(user_id, ended, souls, words)
    return count


async def _show_no_more(user_id: UUID, ended: Sequence[UUID], souls: Souls, words: Words | None) -> None:
    """After the commit: no copy that is kept for speed tells of it either."""
    await souls.invalidate(user_id)
    if words:
        await words.histories.drop(ended)
