"""Conversations for operators, on PostgreSQL: their shapes without a key, and of what they say only the messages that are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import class_row

from hermes.graph.message import METADATA
from hermes.graph.node import AttachedChat
from hermes.graph.stored_graph import restore_chat
from hermes.ports.conversations import (
    MAX_COUNTED,
    AttachedGraph,
    CallCost,
    ConversationFilter,
    ConversationRow,
    GraphMessage,
    GraphShape,
    GraphWrite,
    SampleCall,
    SessionFacts,
    SessionReplay,
    SessionTurn,
    ShapeHunk,
    ShapeSample,
    ShapeVersion,
    TurnCost,
)
from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transaction
from hermes.stores.postgres.database import fetch_row, fetch_rows, fetch_value, fetch_values, take_connection
from hermes.stores.postgres.graph_rows import ADDRESS_BYTES, DIGEST_BYTES, BodyKind, SessionCipher, parse_bodies, replay_log
from hermes.stores.postgres.keyring import Keyring, damage_named
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("conversations")
LIST, LIST_OF = SQL["list"] + SQL["list_rest"], SQL["list_of"] + SQL["list_rest"]
SEALED_BYTES = 33 + DIGEST_BYTES
"""What sealing adds to a message: head, nonce, tag, and the digest before it."""


class PostgresConversations:
    """The port ConversationReader."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    # --- without a key

    async def list(
        self, tx: Transaction, wanted: ConversationFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[ConversationRow]:
        row = {
            "platform": wanted.platform,
            "user_id": wanted.user_id,
            "conversation_id": wanted.conversation_id,
            "accounts": names_of(wanted.accounts),
            "before": before,
            "limit": limit,
            "most": MAX_COUNTED + 1,
        }
        is_narrow = wanted.user_id is not None or wanted.conversation_id is not None
        return await fetch_rows(tx, ConversationRow, LIST_OF if is_narrow else LIST, row)

    async def find(self, tx: Transaction, name: str, *, accounts: frozenset[str] | None = None) -> UUID | None:
        as_id = None
        with suppress(ValueError):
            as_id = UUID(name)
        found: UUID | None = await fetch_value(tx, SQL["find"], {"id": as_id, "name": name, "accounts": names_of(accounts)})
        return found

    async def facts(self, tx: Transaction, session_id: UUID, *, accounts: frozenset[str] | None = None) -> SessionFacts | None:
        return await fetch_row(tx, SessionFacts, SQL["facts"], {"session_id": session_id, "accounts": names_of(accounts)})

    async def shape(self, tx: Transaction, session_id: UUID) -> GraphShape:
        cursor = (await take_connection(tx)).cursor(binary=True, row_factory=class_row(ShapeRows))
        rows = await (await cursor.execute(SQL["shape"], {"session_id": session_id})).fetchone()
        if rows is None:
            raise NotFound(f"there is no session {session_id}")
        return shape_from(rows)

    async def sizes(self, tx: Transaction, session_id: UUID, addresses: Sequence[bytes]) -> Mapping[bytes, int]:
        rows = await fetch_rows(tx, MessageSize, SQL["sizes"], {"session_id": session_id, "addresses": list(addresses)})
        return {row.address: max(0, row.size - SEALED_BYTES) for row in rows}

    async def turns(self, tx: Transaction, session_id: UUID) -> Sequence[SessionTurn]:
        return await fetch_rows(tx, SessionTurn, SQL["turns"], {"session_id": session_id})

    async def turn_costs(self, tx: Transaction, turn_ids: Sequence[UUID]) -> Mapping[UUID, TurnCost]:
        return {cost.turn_id: cost for cost in await fetch_rows(tx, TurnCost, SQL["turn_costs"], {"turn_ids": list(turn_ids)})}

    async def replays(self, tx: Transaction, session_id: UUID) -> Sequence[SessionReplay]:
        return await fetch_rows(tx, SessionReplay, SQL["replays"], {"session_id": session_id})

    async def costs(self, tx: Transaction, session_id: UUID, calls: Sequence[UUID]) -> Mapping[UUID, CallCost]:
        rows = await fetch_rows(tx, CallCost, SQL["costs"], {"session_id": session_id, "calls": list(calls)})
        return {cost.call_id: cost for cost in rows}

    # --- what users and models wrote

    async def messages(self, tx: Transaction, session_id: UUID, addresses: Sequence[bytes]) -> Mapping[bytes, GraphMessage]:
        rows = await fetch_rows(tx, SealedGraphMessage, SQL["messages"], {"session_id": session_id, "addresses": list(addresses)})
        bodies = await self._open(tx, session_id, BodyKind.MESSAGE, [row.body for row in rows])
        values = parse_bodies([body[DIGEST_BYTES:] for body in bodies])
        return {row.address: read_message(value) for row, value in zip(rows, values, strict=True)}

    async def calls(self, tx: Transaction, session_id: UUID, responses: Sequence[str]) -> Mapping[str, SampleCall]:
        wanted = {"session_id": session_id, "responses": [bytes.fromhex(response) for response in responses]}
        rows = await fetch_rows(tx, SealedSample, SQL["calls"], wanted)
        bodies = await self._open(tx, session_id, BodyKind.SAMPLE, [row.body for row in rows])
        return {row.response.hex(): read_call(body) for row, body in zip(rows, bodies, strict=True)}

    async def notes(self, tx: Transaction, session_id: UUID) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        sealed = await fetch_values(tx, SQL["notes"], {"session_id": session_id})
        found: dict[str, list[Mapping[str, Any]]] = {}
        for response, note in parse_bodies(await self._open(tx, session_id, BodyKind.NOTE, sealed)):
            found.setdefault(response, []).append(note)
        return found

    async def chat(self, tx: Transaction, session_id: UUID, number: int) -> AttachedGraph:
        sealed = await fetch_values(tx, SQL["chats"], {"session_id": session_id, "number": number})
        if not 0 <= number < len(sealed):
            raise NotFound(f"session {session_id} has no attached chat {number}")
        chats: list[AttachedChat] = []
        for body in parse_bodies(await self._open(tx, session_id, BodyKind.CHAT, sealed)):  # a chat refers to those before it
            chats.append(restore_chat(body, chats))
        return AttachedGraph(chats[number].graph, {id(chat.history): at for at, chat in enumerate(chats)})

    async def _open(self, tx: Transaction, session_id: UUID, kind: BodyKind, sealed: Sequence[bytes]) -> Sequence[bytes]:
        """Open sealed bodies of a session. Raises NotFound, UserErased and DataDamaged."""
        owner: UUID | None = await fetch_value(tx, SQL["owner"], {"session_id": session_id})
        if owner is None:
            raise NotFound(f"there is no session {session_id}")
        with damage_named():
            return SessionCipher(await self._keyring.of(tx, owner), session_id).open_all(kind, sealed)


@dataclass(frozen=True, slots=True)
class ShapeRows:
    """The rows of a session's graph without their bodies. None means no rows."""

    live: int
    log_nodes: list[bytes] | None
    log_splices: list[Any] | None
    versions: list[Any] | None
    heads: list[int] | None
    indices: list[int] | None
    responses: list[bytes] | None


class MessageSize(NamedTuple):
    """How long a sealed message is."""

    address: bytes
    size: int


class SealedGraphMessage(NamedTuple):
    """A message as it is stored."""

    address: bytes
    body: bytes


class SealedSample(NamedTuple):
    """A sample as it is stored."""

    response: bytes
    body: bytes


def names_of(accounts: frozenset[str] | None) -> list[str] | None:
    return None if accounts is None else sorted(accounts)


def shape_from(rows: ShapeRows) -> GraphShape:
    addresses, listed = replay_log(rows.log_nodes or (), rows.log_splices or ())
    versions = [
        ShapeVersion(number, successor, kind, splice["tail"], splice["end"], [ShapeHunk(*hunk) for hunk in splice["hunks"]])
        for number, successor, kind, splice in rows.versions or ()
    ]
    places = zip(rows.heads or (), rows.indices or (), rows.responses or (), strict=True)
    samples = [ShapeSample(head, index, response.hex()) for head, index, response in places]
    log = zip(rows.log_nodes or (), rows.log_splices or (), strict=True)
    writes = [GraphWrite(len(packed) // ADDRESS_BYTES, splices is None) for packed, splices in log]
    return GraphShape(rows.live, addresses, listed, versions, samples, writes)


def read_message(value: Any) -> GraphMessage:
    """Read what `encode_node` wrote."""
    if isinstance(value, list):
        _, role, _, *chat = value
        return GraphMessage(role, {}, is_erased=True, chat=chat[0] if chat else None)
    attached = (value.get(METADATA) or {}).get("chat")
    fields = {name: field for name, field in value.items() if name != METADATA}
    return GraphMessage(value["role"], fields, chat=attached["graph"] if isinstance(attached, dict) else None)


def read_call(body: bytes) -> SampleCall:
    """Read the names and numbers of a stored sample; its tokens stay where they are."""
    name, _, call = body.partition(b"\n")
    record = json.loads(call) if call else {}
    usage, extra = record.get("usage") or {}, record.get("extra") or {}
    return SampleCall(json.loads(name), record.get("model"), record.get("finish_reason"), usage, extra)
