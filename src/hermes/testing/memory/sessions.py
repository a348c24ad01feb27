"""Sessions, their graphs and their histories in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from hermes.graph import MessageGraph
from hermes.graph.edit import COMPACTION
from hermes.ports.errors import NotFound, StaleHead
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import AppendResult, GraphEntry, RecentHistory, Session


@dataclass(slots=True)
class MemoryGraphs:
    """The port Graphs."""

    graphs: dict[UUID, MessageGraph] = field(default_factory=dict)

    async def append(self, _: Transaction, session_id: UUID, head: str, entries: Sequence[GraphEntry]) -> AppendResult:
        graph = self._graph_at(session_id, head)
        extend_graph(graph, entries)
        return AppendResult.to(graph, len(entries))

    async def compact(self, _: Transaction, session_id: UUID, head: str, count: int, entries: Sequence[GraphEntry]) -> AppendResult:
        graph = self._graph_at(session_id, head)
        graph.replace(slice(0, count), [], kind=COMPACTION)
        extend_graph(graph, entries)
        return AppendResult.to(graph, len(entries))

    async def load(self, _: Transaction, session_id: UUID) -> MessageGraph:
        return self._graph(session_id).copy()

    async def save(self, _: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        self._graph_at(session_id, head)
        self.graphs[session_id] = graph.copy()
        return graph.head

    def _graph(self, session_id: UUID) -> MessageGraph:
        if session_id not in self.graphs:
            raise NotFound(f"there is no session {session_id}")
        return self.graphs[session_id]

    def _graph_at(self, session_id: UUID, head: str) -> MessageGraph:
        graph = self._graph(session_id)
        if graph.head != head:
            raise StaleHead
        return graph


def extend_graph(graph: MessageGraph, entries: Sequence[GraphEntry]) -> None:
    for entry in entries:
        if entry.call is not None:
            turn = graph.prepare(entry.call.tools, entry.ephemeral, entry.keep_reasoning)
            graph.commit(turn, entry.message, entry.call)
        else:
            graph.append(entry.message, sampled=entry.is_sampled)


@dataclass(slots=True)
class MemorySessions:
    """The methods of the port Sessions that a turn needs. A conversation has one session, which never ends by silence."""

    graphs: MemoryGraphs
    sessions: dict[UUID, Session] = field(default_factory=dict)

    async def find_current(self, tx: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        session = self.sessions.get(conversation_id)
        if session is None or session.is_shared != is_shared:
            return None
        return await self.current(tx, conversation_id, session.user_id, is_shared=is_shared)

    async def get(self, _: Transaction, session_id: UUID) -> Session:
        found = next((session for session in self.sessions.values() if session.id == session_id), None)
        if found is None:
            raise NotFound(f"there is no session {session_id}")
        return found

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        del self.sessions[session.conversation_id]
        return await self.current(tx, session.conversation_id, user_id, is_shared=session.is_shared)

    async def current(self, _: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        before = self.sessions.get(conversation_id)
        if before is None or before.is_shared != is_shared:
            graph, session_id = MessageGraph(), uuid4()
            self.graphs.graphs[session_id] = graph
            previous = before.id if before else None
            self.sessions[conversation_id] = Session(session_id, conversation_id, user_id, previous, graph.head, 0, is_shared)
        session = self.sessions[conversation_id]
        graph = self.graphs.graphs[session.id]
        return replace(session, head=graph.head, length=len(graph))

    async def end(self, _: Transaction, user_id: UUID) -> Sequence[UUID]:
        ended = [session for session in self.sessions.values() if session.user_id == user_id]
        for session in ended:
            del self.sessions[session.conversation_id]
        return [session.id for session in ended]


@dataclass(slots=True)
class MemoryHistories:
    """The port Histories: the last `keep` to twice `keep` messages of the list."""

    graphs: MemoryGraphs
    keep: int = 100

    async def read(self, _: str, session: Session) -> RecentHistory:
        graph = self.graphs.graphs[session.id]
        offset = max(0, (len(graph) // self.keep - 1) * self.keep)
        messages = tuple({name: value for name, value in message.items() if name != "metadata"} for message in graph[offset:])
        return RecentHistory(messages, graph.head, offset)

    async def append(
        self, conversation_key: str, session: Session, before: RecentHistory, messages: Sequence[Mapping[str, Any]], *, head: str
    ) -> None:
        """Does nothing: the list itself is the history."""

    async def drop(self, session_ids: Sequence[UUID]) -> None:
        """Does nothing: there is no copy to drop."""
