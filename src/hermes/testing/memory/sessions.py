"""Sessions in memory: their graphs and histories, and the interactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from hermes.graph import MessageGraph
from hermes.graph.edit import COMPACTION
from hermes.ports.errors import NotFound, StaleHead
from hermes.ports.inbox import Claim
from hermes.ports.runtime import Transaction
from hermes.ports.session import Session
from hermes.ports.sessions import AppendResult, GraphEntry, RecentHistory, SessionQuery, UserNodes


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
            turn = graph.prepare(entry.call.tools, keep_reasoning=entry.keep_reasoning, system=entry.system)
            graph.commit(turn, entry.message, entry.call)
        else:
            graph.append(entry.message, sampled=entry.is_sampled)


@dataclass(slots=True)
class MemorySessions:
    """The port Sessions. Every conversation counts as known, and a session never ends by silence. Nothing is sealed, so no graph outlives
    a key."""

    graphs: MemoryGraphs
    sessions: dict[UUID, Session] = field(default_factory=dict)
    """By conversation, the last one of each."""
    begun: dict[UUID, Session] = field(default_factory=dict)
    """All of them by their id, in the order of their beginning."""
    ended: set[UUID] = field(default_factory=set)
    trains: bool = False
    """Whether the users allow training."""

    async def find_current(self, _: Transaction, conversation_id: UUID, *, is_shared: bool = False) -> Session | None:
        session = self._open_session(conversation_id, is_shared=is_shared)
        return None if session is None else self._read(session)

    async def get(self, _: Transaction, session_id: UUID) -> Session:
        if session_id not in self.begun:
            raise NotFound(f"there is no session {session_id}")
        return self._read(self.begun[session_id])

    async def begin(self, tx: Transaction, session: Session, user_id: UUID) -> Session:
        self.ended.add(session.id)
        return await self.current(tx, session.conversation_id, user_id, is_shared=session.is_shared)

    async def current(self, _: Transaction, conversation_id: UUID, user_id: UUID, *, is_shared: bool = False) -> Session:
        session = self._open_session(conversation_id, is_shared=is_shared)
        if session is None:
            before, graph, session_id = self.sessions.get(conversation_id), MessageGraph(), uuid4()
            self.graphs.graphs[session_id] = graph
            session = Session(session_id, conversation_id, user_id, before.id if before else None, graph.head, 0, is_shared)
            self.sessions[conversation_id] = self.begun[session_id] = session
        return self._read(session)

    async def end(self, _: Transaction, user_id: UUID) -> Sequence[UUID]:
        """Ends the sessions that the user began: who else spoke in a session is not noted here."""
        found = [session.id for session in self.sessions.values() if session.user_id == user_id and session.id not in self.ended]
        self.ended.update(found)
        return found

    async def find(self, _: Transaction, query: SessionQuery) -> Sequence[UUID]:
        """Knows ids of sessions and conversations only: it keeps neither times nor accounts."""
        if unknown := [name for name in query.names if not any(name in names_of(session) for session in self.begun.values())]:
            raise NotFound(f"there is no session {unknown[0]}")
        return [session.id for session in self.begun.values() if not query.names or names_of(session) & set(query.names)]

    def _open_session(self, conversation_id: UUID, *, is_shared: bool) -> Session | None:
        session = self.sessions.get(conversation_id)
        return None if session is None or session.id in self.ended or session.is_shared != is_shared else session

    def _read(self, session: Session) -> Session:
        graph = self.graphs.graphs[session.id]
        return replace(session, head=graph.head, length=len(graph))

    async def user_nodes(self, _: Transaction, __: UUID, *, account: str | None = None) -> Sequence[UserNodes]:  # noqa: ARG002  # the port's
        return ()

    async def note_erased(self, _: Transaction, user_id: UUID, session_id: UUID) -> None:
        """Does nothing: no user's words are noted here."""

    async def may_train(self, tx: Transaction, session_id: UUID) -> bool:
        await self.get(tx, session_id)
        return self.trains


def names_of(session: Session) -> set[str]:
    return {str(session.id), str(session.conversation_id)}


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


@dataclass(slots=True)
class MemoryInteractions:
    """The port Interactions."""

    rows: dict[UUID, Mapping[str, Any]] = field(default_factory=dict)

    async def add(self, _: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        self.rows.setdefault(claim.turn_id, {**meta, "session_id": str(session_id)})

    async def withdraw(self, _: Transaction, turn_id: UUID) -> None:
        self.rows.pop(turn_id, None)
