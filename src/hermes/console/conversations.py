"""Conversations for operators: the list, and the message graph of a session in windows of rows, closed or opened.

The layout of a graph is kept per process, by the session's mark: a further window reads only its own rows."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from hermes.console.access import AccessRefused, ConsoleAccess, Opened, Subject
from hermes.console.chat_shapes import calls_of, messages_of, shape_of
from hermes.console.conversation_diffs import GraphDiff, diff_graph, read_sides
from hermes.console.conversation_views import GraphView, RowContents, pair_turns
from hermes.console.graph_windows import GraphQuery, PreparedGraph, cut_window, view_window
from hermes.console.lane_rows import ReplayMark
from hermes.console.lanes import lay_out
from hermes.graph.stored_graph import history_of
from hermes.ports.conversations import (
    ConversationFilter,
    ConversationReader,
    ConversationRow,
    GraphShape,
    SessionFacts,
    SessionReplay,
    SessionTurn,
)
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.operators import Actor, Role
from hermes.ports.runtime import Transaction, Transactions

MAX_CACHED_ROWS = 100_000
"""Of all layouts that a process keeps; a row takes about half a kilobyte."""
EXPORT_ACTION = "conversation.export"


class Conversations:
    """Reads conversations for an operator."""

    def __init__(self, transactions: Transactions, reader: ConversationReader, access: ConsoleAccess) -> None:
        self._transactions, self._reader, self._access = transactions, reader, access
        self._layouts: OrderedDict[tuple[UUID, UUID, tuple[UUID, ...]], PreparedGraph] = OrderedDict()

    async def list(
        self, actor: Actor, wanted: ConversationFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[ConversationRow]:
        """Return sessions of the accounts that the operator sees, the newest first."""
        seen = ConversationFilter(
            platform=None if wanted.platform is None else wanted.platform.replace("\0", " "),
            user_id=wanted.user_id,
            conversation_id=wanted.conversation_id,
            accounts=actor.operator.accounts,
        )
        async with self._transactions.once() as tx:
            return await self._reader.list(tx, seen, before=before, limit=limit)

    async def find(self, actor: Actor, name: str) -> SessionFacts:
        """Return the session that a name stands for: the id of a session, turn, call or conversation, or for an operator a sender.

        Raises NotFound."""
        name, is_id = name.replace("\0", " "), False  # no store takes a zero byte
        with suppress(ValueError):
            is_id = bool(UUID(name))
        found = None
        async with self._transactions.begin() as tx:
            if "\x00" not in name and (is_id or actor.operator.role.covers(Role.OPERATOR)):  # a viewer sees no sender, and so finds none
                found = await self._reader.find(tx, name, accounts=actor.operator.accounts)
            facts = None if found is None else await self._reader.facts(tx, found, accounts=actor.operator.accounts)
        if facts is None:
            raise NotFound(f"there is no session, turn, call, conversation or sender {name!r}")
        return facts

    async def open(self, actor: Actor, facts: SessionFacts, reason: str = "") -> Opened:
        """Open what is said in a conversation; the audit log has it first. Raises AccessRefused."""
        return await self._access.open(actor, subject_of(facts), reason)

    async def find_opened(self, actor: Actor, facts: SessionFacts) -> Opened | None:
        return await self._access.find_opened(actor, subject_of(facts))

    async def permit_export(self, actor: Actor, facts: SessionFacts, *, is_open: bool, reason: str = "") -> None:
        """Note that an owner takes a conversation out of Hermes, as a file. Raises AccessRefused."""
        await self._access.permit(actor, Role.OWNER, EXPORT_ACTION, subject_of(facts), reason=reason, facts={"with_content": is_open})

    async def read(self, facts: SessionFacts, query: GraphQuery, opened: Opened | None = None) -> GraphView:
        """Return a window of a session's graph; with the right to its content, also what its messages say. Raises NotFound."""
        check_opened(opened, facts)
        if query.chat is not None:
            if facts.is_erased:  # this process may hold the key a while longer, if another one forgot the owner
                raise UserErased
            return await self._read_chat(facts, query, opened)
        async with self._transactions.begin() as tx:
            prepared = await self._prepare(tx, facts)
            window = cut_window(prepared, query)
            rows, shape = window.rows(), prepared.layout.shape
            addresses = [shape.addresses[row.node] for row in rows]
            is_erased = facts.is_erased
            read = RowContents()
            try:
                if opened is not None and not is_erased:
                    responses = [shape.samples[at].response for row in rows for at in row.samples]
                    read = await self._read_content(tx, facts, addresses, responses)
            except UserErased:
                is_erased = True
            if not read.is_open:
                read.sizes = await self._reader.sizes(tx, facts.session_id, addresses)
            turns = {turn.turn_id for row in rows if (turn := prepared.turns.get(row.node)) is not None}
            read.turn_costs = await self._reader.turn_costs(tx, list(turns)) if turns else {}
        return view_window(facts, window, read, is_erased=is_erased)

    async def diff(self, facts: SessionFacts, sides: str, opened: Opened | None = None, chat: int | None = None) -> GraphDiff:
        """Return the difference between two versions or two messages: `v1,now`, `m3,m17`. Raises ValueError for anything else."""
        check_opened(opened, facts)
        if facts.is_erased:
            opened = None
        async with self._transactions.begin() as tx:
            if chat is not None:
                prepared, read = await self._prepare_chat(tx, facts, chat, opened)
                return diff_graph(prepared.layout, read_sides(sides, prepared.layout), read)
            layout = (await self._prepare(tx, facts)).layout
            compared = read_sides(sides, layout)
            addresses = [layout.shape.addresses[layout.rows[row].node] for row in compared.rows()]
            read = RowContents()
            with suppress(UserErased):
                if opened is not None:
                    read.messages, read.is_open = await self._reader.messages(tx, facts.session_id, addresses), True
            if not read.is_open:
                read.sizes = await self._reader.sizes(tx, facts.session_id, addresses)
        return diff_graph(layout, compared, read)

    # --- layouts

    async def _prepare(self, tx: Transaction, facts: SessionFacts) -> PreparedGraph:
        replays = await self._reader.replays(tx, facts.session_id)
        key = (facts.session_id, facts.mark, tuple(replay.replay_id for replay in replays))
        prepared = self._layouts.get(key)
        if prepared is None:
            shape = await self._reader.shape(tx, facts.session_id)
            turns = pair_turns(shape, await self._reader.turns(tx, facts.session_id))
            # In a thread: a long graph takes tens of milliseconds, and this process also takes messages in.
            prepared = await asyncio.to_thread(prepare_graph, shape, turns, replays)
            self._keep(key, prepared)
            return prepared
        self._layouts.move_to_end(key)
        return replace(prepared, replays=replays)

    def _keep(self, key: tuple[UUID, UUID, tuple[UUID, ...]], prepared: PreparedGraph) -> None:
        for old in [known for known in self._layouts if known[0] == key[0]]:
            del self._layouts[old]
        self._layouts[key] = prepared
        rows = sum(len(known.layout.rows) for known in self._layouts.values())
        while rows > MAX_CACHED_ROWS and len(self._layouts) > 1:
            _, dropped = self._layouts.popitem(last=False)
            rows -= len(dropped.layout.rows)

    # --- content

    async def _read_content(
        self, tx: Transaction, facts: SessionFacts, addresses: Sequence[bytes], responses: Sequence[str]
    ) -> RowContents:
        reader, session_id = self._reader, facts.session_id
        messages = await reader.messages(tx, session_id, addresses)
        calls = await reader.calls(tx, session_id, responses) if responses else {}
        ids = {call.sample_id: call_id for call in calls.values() if (call_id := id_or_none(call.sample_id)) is not None}
        costs = await reader.costs(tx, session_id, list(ids.values())) if ids else {}
        notes = await reader.notes(tx, session_id) if responses else {}
        by_sample = {sample_id: costs[call_id] for sample_id, call_id in ids.items() if call_id in costs}
        return RowContents(messages=messages, calls=calls, costs=by_sample, notes=notes, is_open=True)

    async def _read_chat(self, facts: SessionFacts, query: GraphQuery, opened: Opened | None) -> GraphView:
        async with self._transactions.begin() as tx:
            prepared, read = await self._prepare_chat(tx, facts, query.chat or 0, opened)
        return view_window(facts, cut_window(prepared, query), read, chat=query.chat)

    async def _prepare_chat(
        self, tx: Transaction, facts: SessionFacts, number: int, opened: Opened | None
    ) -> tuple[PreparedGraph, RowContents]:
        if opened is None:
            raise AccessRefused("open the conversation first: even the shape of a chat inside a message is sealed")
        attached = await self._reader.chat(tx, facts.session_id, number)
        history = history_of(attached.graph)
        layout = await asyncio.to_thread(lay_out, shape_of(history))
        contents = RowContents(messages=messages_of(history, attached.chats), calls=calls_of(history), is_open=True)
        return PreparedGraph.of(layout), contents


def subject_of(facts: SessionFacts) -> Subject:
    """What an operator opens to read a session: its conversation."""
    return Subject(kind="conversation", id=str(facts.conversation_id), user_id=facts.user_id, account=facts.account)


def check_opened(opened: Opened | None, facts: SessionFacts) -> None:
    """Raise AccessRefused if the right is one to another conversation."""
    if opened is not None and (opened.subject.kind, opened.subject.id) != ("conversation", str(facts.conversation_id)):
        raise AccessRefused(f"{opened.subject.kind} {opened.subject.id} was opened, not conversation {facts.conversation_id}")


def prepare_graph(shape: GraphShape, turns: dict[int, SessionTurn], replays: Sequence[SessionReplay]) -> PreparedGraph:
    return PreparedGraph.of(lay_out(shape, replay_marks(shape, turns, replays)), turns, replays)


def replay_marks(shape: GraphShape, turns: dict[int, SessionTurn], replays: Iterable[SessionReplay]) -> list[ReplayMark]:
    """Return where replays leave the graph: before the first sample of their turn. A replay without a turn is listed only."""
    sampled: dict[UUID, int] = {}
    nodes = {shape.listed[sample.index] for sample in shape.samples if sample.head == shape.live and sample.index < len(shape.listed)}
    for node, turn in sorted(turns.items()):
        if node in nodes:
            sampled.setdefault(turn.turn_id, node)
    return [ReplayMark(replay.replay_id, sampled[replay.turn_id]) for replay in replays if replay.turn_id in sampled]


def id_or_none(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
