"""The journal on PostgreSQL: effects by turn, step and index; requests and results sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.errors import ClaimLost, NotFound
from hermes.ports.inbox import Claim
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Effect, EffectProgress, JournalEvent
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("journal")
EFFECT = "effect"
EFFECT_NAMES: Mapping[str, str] = {"call_model": "llm_called", "run_tools": "tool_invoked"}
"""The event name that a reader of the journal sees for an effect of this step."""


class PostgresJournal:
    """The port Journal."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        keys = await self._keyring.of(tx, claim.user_id)
        row = {**effect_key(claim, step, index), "conversation_id": claim.conversation_id, "epoch": claim.epoch, "attempt": claim.attempt}
        row["request"] = keys.seal(seal_label(claim.turn_id, step, index, "request"), request)
        if await (await connection_of(tx).execute(SQL["begin"], row)).fetchone() is not None:
            return Effect(EffectProgress.NEW, request, None)
        known = await (await connection_of(tx).execute(SQL["known"], row)).fetchone()
        if known is None:
            raise ClaimLost  # nothing was inserted and no row was in conflict: the claim's epoch is no longer the newest
        sealed_request, sealed_result = known
        first_request = keys.open(seal_label(claim.turn_id, step, index, "request"), sealed_request)
        if sealed_result is None:
            # A worker that has lost its claim must not repeat an effect that its successor may be running now.
            await self._hold(tx, claim)
            return Effect(EffectProgress.STARTED, first_request, None)
        return Effect(EffectProgress.DONE, first_request, keys.open(seal_label(claim.turn_id, step, index, "result"), sealed_result))

    async def finish(self, tx: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        keys = await self._keyring.of(tx, claim.user_id)
        row = {**effect_key(claim, step, index), "facts": Jsonb(dict(facts))}
        row["result"] = keys.seal(seal_label(claim.turn_id, step, index, "result"), result)
        if await (await connection_of(tx).execute(SQL["finish"], row)).fetchone() is not None:
            return result
        known = await (await connection_of(tx).execute(SQL["known"], row)).fetchone()
        if known is None:
            raise NotFound(f"{step}[{index}] was never begun")
        return keys.open(seal_label(claim.turn_id, step, index, "result"), known[1])

    async def has_result(self, tx: Transaction, claim: Claim, step: str, index: int) -> bool:
        known = await (await connection_of(tx).execute(SQL["known"], effect_key(claim, step, index))).fetchone()
        return known is not None and known[1] is not None

    async def note(self, tx: Transaction, claim: Claim, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        types, facts = [type_ for type_, _ in events], [Jsonb(dict(fields)) for _, fields in events]
        await connection_of(tx).execute(SQL["note"], {"turn_id": claim.turn_id, "attempt": claim.attempt, "types": types, "facts": facts})

    async def add(self, tx: Transaction, turn_id: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        await connection_of(tx).execute(SQL["add"], {"turn_id": turn_id, "type": type_, "facts": Jsonb(dict(facts))})

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        row = await (await connection_of(tx).execute(SQL["effect"], {"turn_id": turn_id, "step": step, "index": index})).fetchone()
        if row is None:
            return None
        user_id, request, result = row
        keys = await self._keyring.of(tx, user_id)
        opened = keys.open(seal_label(turn_id, step, index, "request"), request)
        if result is None:
            return Effect(EffectProgress.STARTED, opened, None)
        return Effect(EffectProgress.DONE, opened, keys.open(seal_label(turn_id, step, index, "result"), result))

    async def read(self, tx: Transaction, turn_id: UUID) -> Sequence[JournalEvent]:
        rows = await (await connection_of(tx).execute(SQL["read"], {"turn_id": turn_id})).fetchall()
        return [
            JournalEvent(step, index, EFFECT_NAMES.get(step, EFFECT) if type_ == EFFECT else type_, *rest)
            for step, index, type_, *rest in rows
        ]

    async def _hold(self, tx: Transaction, claim: Claim) -> None:
        row = {"conversation_id": claim.conversation_id, "epoch": claim.epoch}
        if await (await connection_of(tx).execute(SQL["hold"], row)).fetchone() is None:
            raise ClaimLost


def effect_key(claim: Claim, step: str, index: int) -> dict[str, Any]:
    return {"turn_id": claim.turn_id, "step": step, "index": index}


def seal_label(turn_id: UUID, step: str, index: int, part: str) -> str:
    return f"journal/{turn_id}/{step}/{index}/{part}"
