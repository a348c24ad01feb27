"""What somebody said, taken out of what models are shown: sessions ended, and words erased from graphs that others keep.

A conversation is sealed for whoever opened it. In a group, discarding somebody's key therefore leaves their words readable; those are
erased by the graph's own redaction: tombstones that keep every id, so that the rest can still be proved. What others quoted of it stands
in messages of theirs, and stays; but nobody goes on with such a list, so no model is shown it again.

    end the sessions  →  erase in one graph after the other  →  drop the hot copies

Each arrow is a commit. Whoever is cut off in between has shown nothing that was ended, and repeats it: what is erased is noted."""

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
from hermes.ports.graphs import Graphs
from hermes.ports.histories import Histories
from hermes.ports.sessions import Sessions, UserNodes
from hermes.ports.transactions import Transaction, Transactions

log = structlog.get_logger()

MAX_TRIES = 5
"""How often a graph is erased in while others write to it."""


class ErasureIncomplete(PortError):
    """They said something while they were being forgotten; it is to be erased too."""


@dataclass(frozen=True, slots=True)
class ConversationEraser:
    """Where what people said is kept, for whoever takes it back."""

    sessions: Sessions
    graphs: Graphs
    histories: Histories

    async def erase(self, user_id: UUID, transactions: Transactions, *, account: str | None = None) -> None:
        """End the sessions that a user spoke in, and erase their words from the graphs that would outlive them; see Sessions.user_nodes.

        Safe to repeat. Raises StoreUnavailable, and StaleHead where somebody never stops writing; then some of it is done."""
        async with transactions.begin() as tx:
            ended = await self.sessions.end(tx, user_id)
        async with transactions.begin() as tx:
            spoken = await self.sessions.user_nodes(tx, user_id, account=account)
        for each in spoken:
            await self._erase_in(each, user_id, transactions)
        await self.histories.drop([*ended, *(each.session_id for each in spoken)])

    async def refuse_unerased(self, tx: Transaction, user_id: UUID, *, account: str | None = None) -> None:
        """Raise SaidMeanwhile if something is left to erase."""
        if await self.sessions.user_nodes(tx, user_id, account=account):
            raise ErasureIncomplete

    async def _erase_in(self, spoken: UserNodes, user_id: UUID, transactions: Transactions) -> None:
        for tries in range(1, MAX_TRIES + 1):
            try:
                async with transactions.begin() as tx:
                    await self._erase_once(tx, spoken)
                    await self.sessions.note_erased(tx, user_id, spoken.session_id)
            except StaleHead:
                if tries == MAX_TRIES:
                    raise
            else:
                return

    async def _erase_once(self, tx: Transaction, spoken: UserNodes) -> None:
        try:
            session = await self.sessions.get(tx, spoken.session_id)
            graph = await self.graphs.load(tx, session.id)
        except (UserErased, NotFound, DataDamaged) as error:
            # Nobody can read it, so nothing has to be erased.
            log.warning("words_not_read", session_id=str(spoken.session_id), error=type(error).__name__)
            return
        erase_from(graph, spoken)
        await self.graphs.save(tx, session.id, session.head, graph)


def erase_from(graph: MessageGraph, spoken: UserNodes) -> None:
    """Erase what a user's turns added, and what was said to them by itself, from every version of a graph.

    Equal messages are one to a graph. What somebody else was told in the same words is theirs too, and stays."""
    theirs, others = dict[bytes, Node](), set[bytes]()
    for context_id, node in unerased_messages(graph):
        if context_id in spoken.nodes or (node.get(METADATA) or {}).get("news") in spoken.news:
            theirs.setdefault(node.digest, node)
        elif context_id in spoken.others:
            others.add(node.digest)
    for digest, node in theirs.items():
        if digest not in others:
            graph.redact(node)


def unerased_messages(graph: MessageGraph) -> Iterator[tuple[str, Node]]:
    """Every message of every version that was not erased before, with the id of the list that ends with it."""
    history = history_of(graph)
    with history.lock:
        for place in range(len(history.kept) + 1):
            for at, node in enumerate(history.nodes_at(place), 1):
                if not node.redacted:
                    yield history.id_of(place, at).hex(), node
