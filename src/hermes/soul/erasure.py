"""Erase a user's words from what models are shown: end the user's sessions, and redact the words in graphs that other users keep.

A conversation is sealed for the user who opened it. In a group, discarding one member's key therefore leaves their words readable. The
eraser redacts those in the graph: tombstones keep every id, so that the rest can still be proved. If other users quoted the words, their
own messages stay; but their session has ended too, so no model is shown that list again.

    end the sessions  →  erase in one graph after the other  →  drop the hot copies

Each arrow is a commit. If the process is cut off in between, no ended session is shown any more, and the caller repeats the call: the store
notes which graphs are done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import structlog

from hermes.graph import MessageGraph
from hermes.graph.message import METADATA
from hermes.graph.node import Node
from hermes.graph.stored_graph import history_of
from hermes.ports.errors import DataDamaged, NotFound, PortError, StaleHead, UserErased
from hermes.ports.runtime import Transaction, Transactions
from hermes.ports.sessions import Graphs, Histories, Sessions, UserNodes

log = structlog.get_logger()

MAX_TRIES = 5
"""How often to try to erase in a graph that turns write to meanwhile."""


class ErasureIncomplete(PortError):
    """The user wrote something while they were being erased; it must be erased too."""


@dataclass(frozen=True, slots=True)
class ConversationEraser:
    """Erases users' words from sessions, graphs and hot histories."""

    sessions: Sessions
    graphs: Graphs
    histories: Histories

    async def erase(self, user_id: UUID, transactions: Transactions, *, account: str | None = None) -> None:
        """End the sessions that a user wrote in, and erase their words from the graphs that outlive their key.

        Safe to repeat. Raises StoreUnavailable, and StaleHead if turns keep writing to a graph; then a part of the work is done."""
        async with transactions.begin() as tx:
            ended = await self.sessions.end(tx, user_id)
        async with transactions.begin() as tx:
            found = await self.sessions.user_nodes(tx, user_id, account=account)
        for nodes in found:
            await self._erase_in(nodes, user_id, transactions)
        await self.histories.drop([*ended, *(nodes.session_id for nodes in found)])

    async def refuse_unerased(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Raise ErasureIncomplete if something is left to erase."""
        if await self.sessions.user_nodes(tx, user_id, account=account):
            raise ErasureIncomplete

    async def _erase_in(self, user_nodes: UserNodes, user_id: UUID, transactions: Transactions) -> None:
        for tries in range(1, MAX_TRIES + 1):
            try:
                async with transactions.begin() as tx:
                    await self._erase_once(tx, user_nodes)
                    await self.sessions.note_erased(tx, user_id, user_nodes.session_id)
            except StaleHead:
                if tries == MAX_TRIES:
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
