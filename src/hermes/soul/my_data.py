"""Everything that Hermes keeps about a user, for that user to read: identity, credits, memory. And how to erase it.

A conversation is sealed for the user who opened it. In a group, discarding one member's key therefore leaves their words readable.
ConversationEraser redacts those in the graph: tombstones keep every id, so that the rest can still be proved. If other users quoted the
words, their own messages stay; but their session has ended too, so no model is shown that list again.

    end the sessions  →  erase in one graph after the other  →  drop the hot copies

Each arrow is a commit. If the process is cut off in between, no ended session is shown any more, and the caller repeats the call: the store
notes which graphs are done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import structlog

from hermes.graph import MessageGraph
from hermes.graph.message import METADATA
from hermes.graph.node import Node
from hermes.graph.stored_graph import history_of
from hermes.ports.credits import Balance, Credits
from hermes.ports.errors import DataDamaged, NotFound, PortError, StaleHead, UserErased
from hermes.ports.memories import Dream, Dreams, Fact, Memories, Souls
from hermes.ports.operators import AuditLog
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import Graphs, Histories, Sessions, UserNodes
from hermes.ports.users import User, UserChannel, UserDataCounts, Users, UserState
from hermes.soul.json_values import to_json_value
from hermes.soul.terms import terms

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MyMemory:
    """Everything that is known about a user, superseded facts included."""

    facts: Sequence[Fact]
    dreams: Sequence[Dream]


async def my_memory(user_id: UUID, *, transactions: Transactions, memories: Memories, dreams: Dreams) -> MyMemory:
    """Return everything, oldest first. Raises UserErased and StoreUnavailable."""
    async with transactions.begin() as tx:
        return MyMemory(await memories.all(tx, user_id), await dreams.all(tx, user_id))


async def forget_fact(
    user_id: UUID,
    fact_id: UUID,
    *,
    transactions: Transactions,
    memories: Memories,
    souls: Souls,
    eraser: ConversationEraser | None = None,
    account: str | None = None,
) -> bool:
    """Erase one fact; False if the user has no such fact or, with an account, none that was learnt there.

    With `eraser` the user's sessions end too: the fact may stand in messages that models are shown. The next message begins a new one."""
    async with transactions.begin() as tx:
        is_visible = account is None or fact_id in await memories.learnt_in(tx, user_id, account)
        gone = await memories.read(tx, user_id, [fact_id]) if is_visible else ()
        was_there = is_visible and await memories.delete(tx, user_id, fact_id)
        await memories.mark_forgotten(tx, user_id, None, [(fact.key, found) for fact in gone if (found := terms(fact.text))])
        ended = await eraser.sessions.end(tx, user_id) if eraser and was_there else ()
    if was_there:
        await _drop_cached_copies(user_id, ended, souls, eraser)
    return was_there


async def forget_memory(
    user_id: UUID,
    *,
    transactions: Transactions,
    memories: Memories,
    souls: Souls,
    eraser: ConversationEraser | None = None,
    account: str | None = None,
) -> int:
    """Erase everything that is known about a user, dreams included; with an account, what was learnt there. The user stays. Return how many
    facts there were. With `eraser` the user's sessions end too, as with `forget_fact`."""
    async with transactions.begin() as tx:
        if account is None:
            count = await memories.erase(tx, user_id)
            await memories.mark_forgotten(tx, user_id, None, [(None, ())])
        else:
            learnt = await memories.learnt_in(tx, user_id, account)
            gone = await memories.read(tx, user_id, sorted(learnt))
            await memories.mark_forgotten(tx, user_id, None, [(fact.key, found) for fact in gone if (found := terms(fact.text))])
            count = sum([await memories.delete(tx, user_id, fact_id) for fact_id in sorted(learnt)])
        ended = await eraser.sessions.end(tx, user_id) if eraser else ()
    await _drop_cached_copies(user_id, ended, souls, eraser)
    return count


async def _drop_cached_copies(user_id: UUID, ended: Sequence[UUID], souls: Souls, eraser: ConversationEraser | None) -> None:
    """Drop the cached soul and the hot histories, which may still hold what was erased. Call it after the commit."""
    await souls.invalidate(user_id)
    if eraser:
        await eraser.drop_copies(ended)


MAX_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MyDataStores:
    """The stores from which a user's data are read and erased."""

    transactions: Transactions
    people: Users
    credits: Credits
    memories: Memories
    dreams: Dreams
    souls: Souls
    eraser: ConversationEraser | None = None
    """Erases the user's words in conversations with others; None: there are none, and only facts and keys are erased."""
    audit: AuditLog | None = None
    """Knows how often operators opened the user's content; None: there is no console."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MyData:
    """What Hermes keeps about one user at one moment, or what one account may see of it."""

    user: User
    balance: Balance
    channels: Sequence[UserChannel]
    kept: UserDataCounts
    memory: MyMemory
    opened: int = 0
    """How often operators of Hermes opened what the user and the models wrote."""


async def my_data(user_id: UUID, stores: MyDataStores, *, account: str | None = None) -> MyData:
    """Return everything. Raises NotFound, StoreUnavailable, and UserErased for a deleted user.

    With an account, return what that account may see. If the user writes to other accounts too, these are the facts that they told this
    one: no dreams, which follow from all facts, and no facts without a source turn."""
    async with stores.transactions.begin() as tx:
        user = await stores.people.get(tx, user_id)
        if user.state is UserState.DELETED:
            raise UserErased
        channels = (await stores.people.channels(tx, [user_id])).get(user_id, ())
        limit = account if has_other_accounts(channels, account) else None
        memory = MyMemory(await stores.memories.all(tx, user_id), await stores.dreams.all(tx, user_id))
        if limit is not None:
            memory = limit_to_facts(memory, await stores.memories.learnt_in(tx, user_id, limit))
        return MyData(
            user=user,
            balance=await stores.credits.balance(tx, user_id),
            channels=[channel for channel in channels if account in (None, channel.account)],
            kept=await stores.people.count_data(tx, user_id, account=limit),
            memory=memory,
            opened=await stores.audit.count_opened(tx, user_id, account=limit) if stores.audit is not None else 0,
        )


def join_data(found: Sequence[MyData]) -> MyData:
    """One view of several stored users whom an account calls by one name. It is about the first of them, with what is kept of all."""
    first, counts = found[0], [data.kept for data in found]
    records = sorted({table for kept in counts for table in kept.records})
    return replace(
        first,
        balance=Balance(sum(data.balance.available for data in found), sum(data.balance.reserved for data in found)),
        channels=[channel for data in found for channel in data.channels],
        kept=UserDataCounts(
            facts=sum(kept.facts for kept in counts),
            conversations=sum(kept.conversations for kept in counts),
            messages=sum(kept.messages for kept in counts),
            records={table: sum(kept.records.get(table, 0) for kept in counts) for table in records},
        ),
        memory=MyMemory([fact for data in found for fact in data.memory.facts], [dream for data in found for dream in data.memory.dreams]),
        opened=sum(data.opened for data in found),
    )


async def forget_user(user_id: UUID, stores: MyDataStores) -> None:
    """Delete a user for good, as Users.forget does, after their words were erased from conversations that are sealed for other users.

    Repeating it changes nothing. Raises NotFound, and StoreUnavailable; then the user still exists, and the caller must repeat it."""
    await _erase_words_then(user_id, stores, lambda tx: stores.people.forget(tx, user_id))


async def forget_user_at(user_id: UUID, account: str, stores: MyDataStores) -> bool:
    """Delete a user for one account; return whether they are deleted for good, which they are if they write to no other account.

    Otherwise only what this account has is deleted. Raises as `forget_user` does."""
    async with stores.transactions.begin() as tx:
        channels = (await stores.people.channels(tx, [user_id])).get(user_id, ())
    if not has_other_accounts(channels, account):
        await forget_user(user_id, stores)
        return True
    await _erase_words_then(user_id, stores, lambda tx: stores.people.forget_in_account(tx, user_id, account), account=account)
    return False


async def limiting_account(user_id: UUID, account: str, stores: MyDataStores) -> str | None:
    """The account that limits which facts this account may erase; None, for all of them, if the user writes to no other account."""
    async with stores.transactions.begin() as tx:
        channels = (await stores.people.channels(tx, [user_id])).get(user_id, ())
    return account if has_other_accounts(channels, account) else None


def has_other_accounts(channels: Sequence[UserChannel], account: str | None) -> bool:
    """Whether a user writes to other accounts than this one."""
    return account is not None and any(channel.account != account for channel in channels)


def limit_to_facts(memory: MyMemory, ids: frozenset[UUID]) -> MyMemory:
    """A memory with only these facts, and no dreams. A fact names the one that superseded it only if that is among them too."""
    facts = [fact for fact in memory.facts if fact.id in ids]
    return MyMemory([fact if fact.superseded_by in ids else replace(fact, superseded_by=None) for fact in facts], ())


async def _erase_words_then(
    user_id: UUID, stores: MyDataStores, forget: Callable[[Transaction], Awaitable[None]], *, account: str | None = None
) -> None:
    """Erase a user's words, then forget the user in one transaction; again, if they wrote something in between.

    The words come first: if a store goes away, the user still has a channel, and the client can ask again."""
    for tries in range(1, MAX_TRIES + 1):
        if stores.eraser is not None:
            await stores.eraser.erase(user_id, stores.transactions, account=account)
        try:
            async with stores.transactions.begin() as tx:
                # From here on no turn of this user can end, so no more words of theirs are added.
                await stores.people.hold(tx, user_id, account=account)
                if stores.eraser is not None:
                    await stores.eraser.refuse_unerased(tx, user_id, account=account)
                await forget(tx)
        except ErasureIncomplete:
            if tries == MAX_TRIES:
                raise
        else:
            break
    # The cached soul is sealed with a key that is gone; but it should not stay in the cache for an hour either.
    await stores.souls.invalidate(user_id)


def data_as_json(data: MyData, *, account: str | None = None) -> dict[str, Any]:
    """The data as JSON values. With an account, without what that account may not see: the user's channels at other accounts, and their
    referrer."""
    user = data.user
    about = {"id": user.id, "state": user.state, "tier": user.tier, "language": user.language, "trains": user.trains}
    origin = {"referral_code": user.referral_code, "created_at": user.created_at}
    friend = {"referred_by": user.referred_by} if account is None else {}
    shown = [channel for channel in data.channels if account in (None, channel.account)]
    fields = {
        **about,
        **origin,
        **friend,
        "credits": asdict(data.balance),
        "channels": [asdict(channel) for channel in shown],
        "kept": data.kept.by_kind(),
        "opened_by_operators": data.opened,
        **memory_as_json(data.memory),
    }
    written: dict[str, Any] = to_json_value(fields)
    return written


def memory_as_json(memory: MyMemory) -> dict[str, Any]:
    """The facts, with their sources and what superseded them, and the dreams, as JSON values."""
    written: dict[str, Any] = to_json_value(
        {"facts": [asdict(fact) for fact in memory.facts], "dreams": [asdict(dream) for dream in memory.dreams]}
    )
    return written


# --- the user's words in conversations


MAX_GRAPH_TRIES = 5
"""How often to try to erase in a graph that turns write to meanwhile."""


class ErasureIncomplete(PortError):
    """The user wrote something while they were being erased; it must be erased too."""


@dataclass(frozen=True, slots=True)
class ConversationEraser:
    """Erases users' words from sessions, graphs and hot histories."""

    sessions: Sessions
    graphs: Graphs
    histories: Histories | None
    """None: there are no hot copies, as in a database that is being restored."""

    async def erase(self, user_id: UUID, transactions: Transactions, *, account: str | None = None) -> None:
        """End the sessions that a user wrote in, and erase their words from the graphs that outlive their key.

        Safe to repeat. Raises StoreUnavailable, and StaleHead if turns keep writing to a graph; then a part of the work is done."""
        async with transactions.begin() as tx:
            ended = await self.sessions.end(tx, user_id)
        async with transactions.begin() as tx:
            found = await self.sessions.user_nodes(tx, user_id, account=account)
        for nodes in found:
            await self._erase_in(nodes, user_id, transactions)
        await self.drop_copies([*ended, *(nodes.session_id for nodes in found)])

    async def drop_copies(self, session_ids: Sequence[UUID]) -> None:
        """Drop the hot copies of sessions. Call it after the commit. Never raises."""
        if self.histories is not None:
            await self.histories.drop(session_ids)

    async def refuse_unerased(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Raise ErasureIncomplete if something is left to erase."""
        if await self.sessions.user_nodes(tx, user_id, account=account):
            raise ErasureIncomplete

    async def _erase_in(self, user_nodes: UserNodes, user_id: UUID, transactions: Transactions) -> None:
        for tries in range(1, MAX_GRAPH_TRIES + 1):
            try:
                async with transactions.begin() as tx:
                    await self._erase_once(tx, user_nodes)
                    await self.sessions.note_erased(tx, user_id, user_nodes.session_id)
            except StaleHead:
                if tries == MAX_GRAPH_TRIES:
                    raise
            else:
                return

    async def _erase_once(self, tx: Transaction, user_nodes: UserNodes) -> None:
        try:
            session = await self.sessions.get(tx, user_nodes.session_id)
            graph = await self.graphs.load(tx, session.id)
        except (UserErased, NotFound, DataDamaged) as error:
            # The graph cannot be read any more, so there is nothing to erase.
            log.warning("words_not_read", session_id=str(user_nodes.session_id), error=type(error).__name__)
            return
        erase_from(graph, user_nodes)
        await self.graphs.save(tx, session.id, session.head, graph)


def erase_from(graph: MessageGraph, user_nodes: UserNodes) -> None:
    """Erase what a user's turns added, and the proactive messages to them, from every version of a graph.

    A graph stores equal messages once. A message that is also part of another user's turns is theirs too, and stays."""
    theirs, others = dict[bytes, Node](), set[bytes]()
    for context_id, node in unerased_messages(graph):
        if context_id in user_nodes.nodes or (node.get(METADATA) or {}).get("news") in user_nodes.news:
            theirs.setdefault(node.digest, node)
        elif context_id in user_nodes.others:
            others.add(node.digest)
    for digest, node in theirs.items():
        if digest not in others:
            graph.redact(node)


def unerased_messages(graph: MessageGraph) -> Iterator[tuple[str, Node]]:
    """Every message of every version that is not erased yet, with the id of the list that ends with it."""
    history = history_of(graph)
    with history.lock:
        for place in range(len(history.kept) + 1):
            for at, node in enumerate(history.nodes_at(place), 1):
                if not node.redacted:
                    yield history.id_of(place, at).hex(), node
