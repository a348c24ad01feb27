"""Message graphs on PostgreSQL: the queries and the order in which they run. Rows and sealing are in `graph_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from psycopg.rows import class_row

from hermes.graph import CallRecord, MessageGraph
from hermes.graph.edit import COMPACTION
from hermes.graph.stored_graph import continue_graph, history_of
from hermes.ports.errors import DataDamaged, NotFound, StaleHead
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import AppendResult, GraphEntry
from hermes.stores.postgres.database import connection_of, execute, fetch_row, fetch_value, take_connection
from hermes.stores.postgres.graph_rows import (
    GraphChanges,
    GraphRows,
    SavedGraph,
    SessionCipher,
    append_changes,
    changes_since,
    graph_from,
    needs_full_rewrite,
    sample_name,
)
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys, SealBroken

SQL = load_queries("graphs")
APPEND = SQL["append"] + SQL["append_rest"]
"""Appends to a list, if its head has not changed."""


class PostgresGraphs:
    """The port Graphs. A writer locks the session's row, so that of two writers on one head the second sees that the head has changed."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def append(self, tx: Transaction, session_id: UUID, head: str, entries: Sequence[GraphEntry]) -> AppendResult:
        owner = self._keyring.owner_of(session_id)
        without_tools = any(entry.without_tools for entry in entries)
        if owner is not None and entries and not without_tools:
            done = await self._append_at_once(tx, session_id, head, entries, await self._keyring.of(tx, owner))
            if done is not None:
                return done
        before = await lock_session(tx, session_id, head)
        self._keyring.note_owner(session_id, before.user_id)
        cipher = SessionCipher(await self._keyring.of(tx, before.user_id), session_id)
        if not entries:
            return AppendResult(head)
        # The entries are appended to a graph that starts where the stored list ends: the graph decides what append means, not this store.
        graph = continue_graph(head, before.live)
        if not without_tools:
            extend_graph(graph, entries)
        if without_tools or await is_sampled_before(tx, session_id, entries, cipher):
            # Rare: only the whole graph can tell which context the sample had, and whether it is the same sample in the same place.
            whole = await self.load(tx, session_id)
            extend_graph(whole, entries)
            await self.save(tx, session_id, head, whole)
            return AppendResult.to(whole, len(entries))
        history = history_of(graph)
        chats = 0
        if any(node.chat is not None for node in history.nodes):
            chats = await fetch_value(tx, SQL["count_chats"], {"session_id": session_id})
        changes = append_changes(history, before.length, chats, cipher)
        await write_changes(tx, session_id, changes, before._replace(head=graph.head, length=before.length + len(graph), mark=uuid4()))
        return AppendResult.to(graph, len(graph))

    async def _append_at_once(
        self, tx: Transaction, session_id: UUID, head: str, entries: Sequence[GraphEntry], keys: DataKeys
    ) -> AppendResult | None:
        """Append in one statement. None if that is impossible: the head has changed, a sample is known, or a chat is attached."""
        graph = continue_graph(head, 0)
        row = append_row(session_id, head, graph, entries, keys)
        if row is None or not await execute(tx, APPEND, row):
            return None
        return AppendResult.to(graph, len(graph))

    async def compact(self, tx: Transaction, session_id: UUID, head: str, count: int, entries: Sequence[GraphEntry]) -> AppendResult:
        await lock_session(tx, session_id, head)
        whole = await self.load(tx, session_id)
        whole.replace(slice(0, count), [], kind=COMPACTION)
        extend_graph(whole, entries)
        await self.save(tx, session_id, head, whole)
        return AppendResult.to(whole, len(entries))

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        cursor = (await take_connection(tx)).cursor(binary=True, row_factory=class_row(GraphRows))
        rows = await (await cursor.execute(SQL["load"], {"session_id": session_id})).fetchone()
        if rows is None:
            raise NotFound(f"there is no session {session_id}")
        cipher = SessionCipher(await self._keyring.of(tx, rows.user_id), session_id)
        try:
            return graph_from(rows, session_id, cipher)
        except SealBroken as error:
            raise DataDamaged(str(error)) from error

    async def save(self, tx: Transaction, session_id: UUID, head: str, graph: MessageGraph) -> str:
        history = history_of(graph)
        saved = history.base
        if not isinstance(saved, SavedGraph) or saved.session_id != session_id:
            raise ValueError(f"only a graph that was loaded from session {session_id}, or a copy of one, can be saved in it")
        before = await lock_session(tx, session_id, head)
        cipher = SessionCipher(await self._keyring.of(tx, before.user_id), session_id)  # first: an erasure gives the rest a new mark
        if before.mark != saved.mark:
            raise StaleHead
        mark = uuid4()
        with history.lock:
            is_rewritten = needs_full_rewrite(history, saved)
            changes, now_saved = changes_since(history, SavedGraph(saved.mark, session_id) if is_rewritten else saved, cipher, mark)
            status = GraphStatus(before.user_id, graph.head, len(graph), history.live, mark)
        if changes.is_empty and not is_rewritten:
            return status.head
        if is_rewritten:
            await execute(tx, SQL["drop_all"], {"session_id": session_id})
        await write_changes(tx, session_id, changes, status)
        history.base = now_saved
        return status.head


def append_row(session_id: UUID, head: str, graph: MessageGraph, entries: Sequence[GraphEntry], keys: DataKeys) -> dict[str, Any] | None:
    """The values of the statement that appends to a list of which only the head is known; None if a chat is attached to a message.

    `graph` continues from that head and is empty; this call adds the entries to it."""
    extend_graph(graph, entries)
    history = history_of(graph)
    if any(node.chat is not None for node in history.nodes):
        return None
    changes = append_changes(history, 0, 0, SessionCipher(keys, session_id))
    names, _, indices, responses, overlays, bodies = map(list, zip(*changes.samples, strict=True)) if changes.samples else ([],) * 6
    return {
        "session_id": session_id,
        "head": head,
        "new_head": graph.head,
        "count": len(graph),
        "mark": uuid4(),
        "addresses": list(changes.messages),
        "bodies": list(changes.messages.values()),
        "overlays": list(changes.overlays),
        "overlay_bodies": list(changes.overlays.values()),
        "nodes": b"".join(changes.nodes),
        "names": names,
        "indices": indices,
        "responses": responses,
        "sample_overlays": overlays,
        "sample_bodies": bodies,
    }


class GraphStatus(NamedTuple):
    """The columns of a session that change with its graph, and its user, who stays."""

    user_id: UUID
    head: str
    length: int
    live: int
    mark: UUID


async def lock_session(tx: Transaction, session_id: UUID, head: str) -> GraphStatus:
    """Lock a session and return its status. Raises StaleHead if its head is another one."""
    status = await fetch_row(tx, GraphStatus, SQL["lock"], {"session_id": session_id})
    if status is None:
        raise NotFound(f"there is no session {session_id}")
    if status.head != head:
        raise StaleHead
    return status


def extend_graph(graph: MessageGraph, entries: Sequence[GraphEntry]) -> None:
    for entry in entries:
        call = call_with_sample_id(entry)
        if call is not None and entry.without_tools:
            turn = graph.prepare(call.tools, keep_reasoning=entry.keep_reasoning, system=entry.system, leave_out_tools=True)
            graph.commit(turn, entry.message, call, adopt=True)
        elif call is not None and (entry.keep_reasoning != "none" or entry.system):
            graph.commit(graph.prepare(call.tools, keep_reasoning=entry.keep_reasoning, system=entry.system), entry.message, call)
        elif call is not None:
            graph.append(entry.message, call=call)
        else:
            graph.append(entry.message, sampled=entry.is_sampled)


def call_with_sample_id(entry: GraphEntry) -> CallRecord | None:
    """The entry's call with the entry's sample id. Raises ValueError if the call has a different one."""
    if entry.sample_id is None:
        return entry.call
    call = entry.call or CallRecord()
    if call.sample_id not in (None, entry.sample_id):
        raise ValueError("the entry and its call have different sample ids")
    return replace(call, sample_id=entry.sample_id)


async def is_sampled_before(tx: Transaction, session_id: UUID, entries: Sequence[GraphEntry], cipher: SessionCipher) -> bool:
    """Whether one of these sample ids is in the session's graph already."""
    names = [sample_name(call.sample_id, cipher) for call in map(call_with_sample_id, entries) if call is not None and call.sample_id]
    if not names:
        return False
    return bool(await fetch_value(tx, SQL["known_samples"], {"session_id": session_id, "names": names}))


async def write_changes(tx: Transaction, session_id: UUID, changes: GraphChanges, status: GraphStatus) -> None:
    """Write the changes and the new status of the graph in one round trip."""
    async with connection_of(tx).pipeline():
        for query, values in (*statements(changes), ("move_session", status._asdict())):
            await execute(tx, SQL[query], {"session_id": session_id, **values})


def statements(changes: GraphChanges) -> list[tuple[str, dict[str, Any]]]:
    """The queries that write these changes, with their values."""
    todo: list[tuple[str, dict[str, Any]]] = []
    if changes.chats:
        todo.append(("add_chats", {"first": changes.first_chat, "bodies": changes.chats}))
    if changes.gone:
        todo.append(("drop_messages", {"addresses": changes.gone}))
    for query, known in (("add_messages", changes.messages), ("add_overlays", changes.overlays)):
        if known:
            todo.append((query, {"addresses": list(known), "bodies": list(known.values())}))
    if changes.nodes or changes.splices:
        todo.append(("add_log", {"nodes": b"".join(changes.nodes), "splices": changes.splices}))
    if changes.versions:
        columns = columns_of(("numbers", "successors", "kinds", "splices"), changes.versions)
        todo.append(("put_versions", {"first": changes.first_version, **columns}))
    if changes.samples:
        todo.append(("add_samples", columns_of(("names", "heads", "indices", "responses", "overlays", "bodies"), changes.samples)))
    if changes.moved:
        todo.append(("move_samples", columns_of(("names", "heads"), changes.moved)))
    if changes.notes:
        todo.append(("add_notes", {"bodies": changes.notes}))
    if changes.erased is not None:
        todo.append(("erase", {"erased": changes.erased}))
    return todo


def columns_of(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
