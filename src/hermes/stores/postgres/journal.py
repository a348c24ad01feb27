"""What turns did, on PostgreSQL: the journal of their effects and events, the effects of their tools, and the log of answered turns.

Requests and results are sealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.errors import ClaimLost, NotFound
from hermes.ports.events import EFFECT_NAMES
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Effect, EffectProgress, EmptiedBatch, JournalEvent, JournalNote
from hermes.ports.timeline import RunRecord, TurnTimeline, build_timeline
from hermes.ports.tools import EffectRecord, ToolUser
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_shared, fetch_values
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.queries import load_queries
from hermes.stores.seal import DataKeys

if TYPE_CHECKING:
    from hermes.ports.inbox import Claim, ClaimedTurn

SQL, TOOL_EFFECTS = load_queries("journal"), load_queries("tool_effects")
EFFECT = "effect"


class PostgresJournal:
    """The port Journal."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def begin(self, tx: Transaction, claim: Claim, step: str, index: int, request: bytes) -> Effect:
        keys = await self._keyring.of(tx, claim.user_id)
        row = {**effect_key(claim, step, index), "conversation_id": claim.conversation_id, "epoch": claim.epoch, "attempt": claim.attempt}
        row["request"] = keys.seal(seal_label(claim.turn_id, step, index, "request"), request)
        if await fetch_shared(tx, SQL["begin"], row):
            return Effect(EffectProgress.NEW, request, None)
        known = await fetch_row(tx, EffectRow, SQL["known"], row)
        if known is None:
            raise ClaimLost  # nothing was inserted and no row was in conflict: the claim's epoch is no longer the newest
        effect = known.open(keys, claim.turn_id, step, index)
        # A worker that has lost its claim must not repeat an effect that its successor may be running now.
        if effect.progress is EffectProgress.STARTED and not await execute(tx, SQL["retake"], row):
            raise ClaimLost
        return effect

    async def finish(self, tx: Transaction, claim: Claim, step: str, index: int, result: bytes, *, facts: Mapping[str, Any]) -> bytes:
        keys = await self._keyring.of(tx, claim.user_id)
        row = {**effect_key(claim, step, index), "attempt": claim.attempt, "epoch": claim.epoch}
        row |= {"facts": Jsonb(dict(facts)), "us": int(facts.get("us", 0))}
        row["result"] = keys.seal(seal_label(claim.turn_id, step, index, "result"), result)
        if await execute(tx, SQL["finish"], row):
            return result
        known = await fetch_row(tx, EffectRow, SQL["known"], row)
        if known is None or known.result is None:
            raise NotFound(f"{step}[{index}] was never begun")
        return keys.open(seal_label(claim.turn_id, step, index, "result"), known.result)

    async def has_result(self, tx: Transaction, claim: Claim, step: str, index: int) -> bool:
        known = await fetch_row(tx, EffectRow, SQL["known"], effect_key(claim, step, index))
        return known is not None and known.result is not None

    async def note(self, tx: Transaction, claim: Claim, notes: Sequence[JournalNote]) -> None:
        await execute(tx, SQL["note"], note_columns(claim, notes))

    async def note_failed(self, tx: Transaction, claim: ClaimedTurn, notes: Sequence[JournalNote]) -> None:
        await execute(tx, SQL["note_failed"], note_columns(claim, notes))

    async def add(self, tx: Transaction, turn_id: UUID, type_: str, facts: Mapping[str, Any]) -> None:
        await execute(tx, SQL["add"], {"turn_id": turn_id, "type": type_, "facts": Jsonb(dict(facts))})

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        known = await fetch_row(tx, read_owned_effect, SQL["effect"], {"turn_id": turn_id, "step": step, "index": index})
        if known is None:
            return None
        user_id, row = known
        return row.open(await self._keyring.of(tx, user_id), turn_id, step, index)

    async def read(self, tx: Transaction, turn_id: UUID) -> Sequence[JournalEvent]:
        return await fetch_rows(tx, read_journal_event, SQL["read"], {"turn_id": turn_id})

    async def empty(self, tx: Transaction, *, ended_before: datetime, after_id: int, limit: int) -> EmptiedBatch:
        row = {"ended_before": ended_before, "after_id": after_id, "limit": limit}
        [batch] = await fetch_rows(tx, EmptiedBatch, SQL["empty"], row)
        return batch


class PostgresTimelines:
    """The port TurnTimelines."""

    async def read(self, tx: Transaction, turn_id: UUID) -> TurnTimeline | None:
        run = await fetch_row(tx, RunRecord, SQL["run"], {"turn_id": turn_id})
        events = await fetch_rows(tx, read_journal_event, SQL["read"], {"turn_id": turn_id})
        return None if run is None else build_timeline(turn_id, run, events)


def note_columns(claim: ClaimedTurn, notes: Sequence[JournalNote]) -> dict[str, Any]:
    return {
        "turn_id": claim.turn_id,
        "conversation_id": claim.conversation_id,
        "attempt": claim.attempt,
        "epoch": claim.epoch,
        "types": [note.type for note in notes],
        "facts": [Jsonb(dict(note.facts)) for note in notes],
        "began_ago": [note.began_ago_us for note in notes],
        "ended_ago": [note.ended_ago_us for note in notes],
    }


class EffectRow(NamedTuple):
    """An effect as it is stored."""

    request: bytes
    result: bytes | None

    def open(self, keys: DataKeys, turn_id: UUID, step: str, index: int) -> Effect:
        request = keys.open(seal_label(turn_id, step, index, "request"), self.request)
        if self.result is None:
            return Effect(EffectProgress.STARTED, request, None)
        return Effect(EffectProgress.DONE, request, keys.open(seal_label(turn_id, step, index, "result"), self.result))


def read_owned_effect(*, user_id: UUID, **columns: Any) -> tuple[UUID, EffectRow]:
    return user_id, EffectRow(**columns)


def read_journal_event(*, step: str, type: str, **columns: Any) -> JournalEvent:  # noqa: A002  # the column's name
    return JournalEvent(step=step, type=EFFECT_NAMES.get(step, EFFECT) if type == EFFECT else type, **columns)


def effect_key(claim: Claim, step: str, index: int) -> dict[str, Any]:
    return {"turn_id": claim.turn_id, "step": step, "index": index}


def seal_label(turn_id: UUID, step: str, index: int, part: str) -> str:
    return f"journal/{turn_id}/{step}/{index}/{part}"


class PostgresInteractions:
    """The port Interactions."""

    async def add(self, tx: Transaction, claim: Claim, session_id: UUID, meta: Mapping[str, Any]) -> None:
        row = {"turn_id": claim.turn_id, "account": claim.envelope.account, "user_id": claim.user_id, "session_id": session_id}
        await execute(tx, SQL["log"], {**row, "platform": claim.envelope.event.platform, "meta": Jsonb(dict(meta))})

    async def withdraw(self, tx: Transaction, turn_id: UUID) -> None:
        await execute(tx, SQL["withdraw"], {"turn_id": turn_id})


# --- effects of tools


class PostgresEffectRecords:
    """The port EffectRecords. The primary key makes a second `begin` of one effect wait for the first one's transaction, and then find
    its row."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def begin(self, tx: Transaction, user: ToolUser, index: int, name: str) -> EffectRecord:
        keys = await self._keyring.of(tx, user.user_id)
        row = {"turn_id": user.turn_id, "index": index, "user_id": user.user_id, "tool": name}
        if await execute(tx, TOOL_EFFECTS["begin"], row):
            return EffectRecord(is_new=True, text=None)
        known: list[bytes | None] = await fetch_values(tx, TOOL_EFFECTS["known"], row)
        if not known:
            raise NotFound(f"turn {user.turn_id} belongs to another user")
        return EffectRecord(is_new=False, text=None if known[0] is None else keys.open(tool_label(user, index), known[0]).decode())

    async def finish(self, tx: Transaction, user: ToolUser, index: int, text: str) -> None:
        keys = await self._keyring.of(tx, user.user_id)
        sealed = keys.seal(tool_label(user, index), text.encode("utf-8", "replace"))
        await execute(tx, TOOL_EFFECTS["finish"], {"turn_id": user.turn_id, "index": index, "user_id": user.user_id, "result": sealed})


def tool_label(user: ToolUser, index: int) -> str:
    return f"tools/{user.turn_id}/{index}"
