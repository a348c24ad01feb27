"""The end of an ordinary turn and of its model calls on PostgreSQL: one call each of a function, which migrations 0038 and 0046 explain."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from hermes.graph.stored_graph import continue_graph
from hermes.ports.errors import ClaimLost, UserErased
from hermes.ports.inbox import Claim
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import AppendResult
from hermes.ports.turn_end import CallEnd, TurnEnd, appended_meta
from hermes.stores.postgres.database import fetch_shared
from hermes.stores.postgres.delivery_tracking import seal_body
from hermes.stores.postgres.graphs import append_row
from hermes.stores.postgres.journal import effect_key, seal_label
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.model_calls import call_columns
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("turn_end")


class PostgresTurnEnds:
    """The port TurnEnds."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def end(self, tx: Transaction, claim: Claim, end: TurnEnd) -> AppendResult | None:
        owner = self._keyring.owner_of(end.session_id)
        if owner is None or any(entry.without_tools for entry in end.entries):
            return None
        try:
            graph_keys, user_keys = await self._keyring.of(tx, owner), await self._keyring.of(tx, claim.user_id)
        except UserErased:
            return None
        graph = continue_graph(end.head, 0)
        row = append_row(end.session_id, end.head, graph, end.entries, graph_keys)
        if row is None:
            return None
        appended = AppendResult.to(graph, len(graph))
        parts = [seal_body(user_keys, claim.turn_id, number, "", body) for number, body in enumerate(end.parts)]
        values = row | turn_columns(claim, end, parts, appended)
        # The balance is the lock that turns of other conversations need too.
        [(outcome,)] = await fetch_shared(tx, SQL["end"], values, order=str(claim.user_id))
        if outcome == "claim lost":
            raise ClaimLost
        return appended if outcome == "ended" else None

    async def end_call(self, tx: Transaction, claim: Claim, end: CallEnd) -> bytes:
        keys = await self._keyring.of(tx, claim.user_id)
        place = effect_key(claim, end.step, end.index)
        label = seal_label(claim.turn_id, end.step, end.index, "result")
        row = place | {"attempt": claim.attempt, "epoch": claim.epoch, "facts": Jsonb(dict(end.facts)), "us": int(end.facts.get("us", 0))}
        row |= {"result": keys.seal(label, end.result), **call_columns(end.call)}
        [(known,)] = await fetch_shared(tx, SQL["end_call"], row)
        return end.result if known is None else keys.open(label, known)


def turn_columns(claim: Claim, end: TurnEnd, parts: list[dict[str, Any]], appended: AppendResult) -> dict[str, Any]:
    """The values beside those of the graph."""
    envelope = claim.envelope
    return {
        "turn_id": claim.turn_id,
        "conversation_id": claim.conversation_id,
        "epoch": claim.epoch,
        "attempt": claim.attempt,
        "notes": Jsonb([[note.type, dict(note.facts), note.began_ago_us, note.ended_ago_us] for note in end.notes]),
        "user_id": claim.user_id,
        "platform": envelope.event.platform,
        "meta": Jsonb({**end.meta, **appended_meta(appended)}),
        "seq": claim.seq,
        "thread": envelope.thread,
        "reply_to": envelope.message_id or None if envelope.is_shared else None,
        "state": end.state,
        "parts": [part["body"] for part in parts],
        "are_messages": [part["is_message"] for part in parts],
        "is_learned": end.is_learned,
    }
