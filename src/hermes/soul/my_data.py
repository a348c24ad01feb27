"""All that is kept of somebody, for themselves: who they are to us, what they have, what is known of them. And the way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from hermes.ports.credits import Balance, Credits
from hermes.ports.errors import UserErased
from hermes.ports.memories import Dream, Dreams, Fact, Memories
from hermes.ports.souls import Souls
from hermes.ports.transactions import Transaction, Transactions
from hermes.ports.users import User, UserChannel, UserDataCounts, Users, UserState
from hermes.soul.erasure import ConversationEraser, ErasureIncomplete
from hermes.soul.recall_terms import terms


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
    words: ConversationEraser | None = None,
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
        await _drop_cached_copies(user_id, ended, souls, words)
    return was_there


async def forget_memory(
    user_id: UUID,
    *,
    transactions: Transactions,
    memories: Memories,
    souls: Souls,
    words: ConversationEraser | None = None,
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
    await _drop_cached_copies(user_id, ended, souls, words)
    return count


async def _drop_cached_copies(user_id: UUID, ended: Sequence[UUID], souls: Souls, words: ConversationEraser | None) -> None:
    """After the commit: no copy that is kept for speed tells of it either."""
    await souls.invalidate(user_id)
    if words:
        await words.histories.drop(ended)


MAX_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MyDataStores:
    """Where people's data are read, and taken back."""

    transactions: Transactions
    people: Users
    credits: Credits
    memories: Memories
    dreams: Dreams
    souls: Souls
    words: ConversationEraser | None = None
    """Where what they said stands among what others said; None: there is no such place, and only facts and keys are taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MyData:
    """What is kept of one user at one moment, or what one account may see of it."""

    user: User
    balance: Balance
    channels: Sequence[UserChannel]
    kept: UserDataCounts
    memory: MyMemory


async def my_data(user_id: UUID, parts: MyDataStores, *, account: str | None = None) -> MyData:
    """Return everything. Raises NotThere, StoreUnavailable, and Forgotten for somebody who was deleted.

    With an account, for its eyes: of somebody who writes to others too, what they said to this one. What was concluded from all of it is
    not shown then, nor what nobody knows the source of."""
    async with parts.transactions.begin() as tx:
        user = await parts.people.get(tx, user_id)
        if user.state is UserState.DELETED:
            raise UserErased
        channels = (await parts.people.channels(tx, [user_id])).get(user_id, ())
        scope = account if has_other_accounts(channels, account) else None
        memory = MyMemory(await parts.memories.all(tx, user_id), await parts.dreams.all(tx, user_id))
        if scope is not None:
            memory = limit_to_facts(memory, await parts.memories.learnt_in(tx, user_id, scope))
        return MyData(
            user=user,
            balance=await parts.credits.balance(tx, user_id),
            channels=[channel for channel in channels if account in (None, channel.account)],
            kept=await parts.people.count_data(tx, user_id, account=scope),
            memory=memory,
        )


async def forget_user(user_id: UUID, parts: MyDataStores) -> None:
    """Delete a user for good, as People.forget does, after their words were erased from what is sealed for others.

    Repeating it changes nothing. Raises NotThere, and StoreUnavailable; then they are still there, and it is to be repeated."""
    await _erase_words_then(user_id, parts, lambda tx: parts.people.forget(tx, user_id))


async def forget_user_at(user_id: UUID, account: str, parts: MyDataStores) -> bool:
    """Delete a user for one account, as far as it goes: somebody who writes to no other is gone for good. Return whether they are.

    Of anybody else, Users.forget_in_account deletes what this account has, and no more. Raises as `forget_me` does."""
    async with parts.transactions.begin() as tx:
        channels = (await parts.people.channels(tx, [user_id])).get(user_id, ())
    if not has_other_accounts(channels, account):
        await forget_user(user_id, parts)
        return True
    await _erase_words_then(user_id, parts, lambda tx: parts.people.forget_in_account(tx, user_id, account), account=account)
    return False


async def limiting_account(user_id: UUID, account: str, parts: MyDataStores) -> str | None:
    """How far an account's word on a user's memory goes: None, over all of it, for somebody who writes to no other."""
    async with parts.transactions.begin() as tx:
        channels = (await parts.people.channels(tx, [user_id])).get(user_id, ())
    return account if has_other_accounts(channels, account) else None


def has_other_accounts(channels: Sequence[UserChannel], account: str | None) -> bool:
    """Whether somebody writes to other accounts than this one."""
    return account is not None and any(channel.account != account for channel in channels)


def limit_to_facts(memory: MyMemory, ids: frozenset[UUID]) -> MyMemory:
    """Of a memory these facts alone; what took the place of one of them is named if it is among them too."""
    facts = [fact for fact in memory.facts if fact.id in ids]
    return MyMemory([fact if fact.superseded_by in ids else replace(fact, superseded_by=None) for fact in facts], ())


async def _erase_words_then(
    user_id: UUID, parts: MyDataStores, forget: Callable[[Transaction], Awaitable[None]], *, account: str | None = None
) -> None:
    """Erase a user's words, then forget them in one transaction; again, where they said something in between.

    The words first: while somebody still has a channel, whoever was told that a store is away can ask again."""
    for tries in range(1, MAX_TRIES + 1):
        if parts.words is not None:
            await parts.words.erase(user_id, parts.transactions, account=account)
        try:
            async with parts.transactions.begin() as tx:
                # From here on no turn of theirs comes to its end: what is there now is all there will be.
                await parts.people.hold(tx, user_id, account=account)
                if parts.words is not None:
                    await parts.words.refuse_unerased(tx, user_id, account=account)
                await forget(tx)
        except ErasureIncomplete:
            if tries == MAX_TRIES:
                raise
        else:
            break
    # It is sealed with a key that is gone; but nobody should find it for an hour either.
    await parts.souls.invalidate(user_id)


def data_as_json(data: MyData, *, account: str | None = None) -> dict[str, Any]:
    """Write it as JSON can hold it. With an account, for its eyes: where else somebody writes from, and who brought them, is none of its
    business."""
    user = data.user
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "trains": user.trains}
    origin = {"referral_code": user.referral_code, "created_at": user.created_at}
    friend = {"referred_by": user.referred_by} if account is None else {}
    shown = [channel for channel in data.channels if account in (None, channel.account)]
    found = {
        **about,
        **origin,
        **friend,
        "credits": asdict(data.balance),
        "channels": [asdict(channel) for channel in shown],
        "kept": asdict(data.kept),
        **memory_as_json(data.memory),
    }
    written: dict[str, Any] = to_json_value(found)
    return written


def memory_as_json(memory: MyMemory) -> dict[str, Any]:
    """The facts, with where they come from and what became of them, and the dreams."""
    written: dict[str, Any] = to_json_value(
        {"facts": [asdict(fact) for fact in memory.facts], "dreams": [asdict(dream) for dream in memory.dreams]}
    )
    return written


def to_json_value(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case UUID():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {name: to_json_value(each) for name, each in value.items()}
        case list() | tuple():
            return [to_json_value(each) for each in value]
    return value
