"""Replays and their batches on PostgreSQL. What was changed and what came of it is sealed with the key of the turn's user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from hermes.graph import MessageGraph
from hermes.ports.errors import NotFound, UserErased
from hermes.ports.replays import (
    EffectReader,
    GraphReader,
    NewReplay,
    Replay,
    ReplayBatch,
    ReplayChange,
    ReplayContent,
    ReplayFilter,
    ReplayOutcome,
    ReplaySource,
    ReplayState,
)
from hermes.ports.runtime import Transaction
from hermes.ports.sessions import Effect
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.keyring import Keyring, damage_named
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("replays")
MAX_ATTEMPTS = 3
NOT_REPLAYABLE = ("erased", "expired", "never asked a model", "no answer was recorded")
"""Reasons of a refusal that do not go away."""


class PostgresReplays:
    """The port Replays."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring

    async def sources(self, tx: Transaction, ids: Sequence[UUID]) -> Sequence[ReplaySource]:
        found = {row.id: row for row in await fetch_rows(tx, ReplaySource, SQL["sources"], {"ids": [*ids]})}
        return [found[each] for each in ids if each in found]

    async def newest_turns(self, tx: Transaction, wanted: ReplayFilter, limit: int) -> Sequence[UUID]:
        row = {**filter_columns(wanted), "limit": limit}
        return await fetch_values(tx, SQL["newest_failed" if wanted.status == "failed" else "newest_turns"], row)

    async def add_batch(self, tx: Transaction, batch_id: UUID, *, by: str, models: Sequence[str], title: str) -> None:
        await execute(tx, SQL["add_batch"], {"id": batch_id, "by": by, "models": [*models], "title": title})

    async def add(self, tx: Transaction, new: NewReplay) -> None:
        source = new.source
        row: dict[str, Any] = {
            "id": new.id,
            "batch_id": new.batch_id,
            "turn_id": source.turn_id,
            "call_id": source.call_id,
            "session_id": source.session_id,
            "user_id": source.user_id,
            "account": source.account,
            "context_id": source.context_id,
            "by": new.by,
            "model": new.model,
            "change": None,
            "state": ReplayState.REFUSED if new.why_not else ReplayState.WAITING,
            "error": new.why_not or None,
        }
        if not new.why_not:
            keys = await self._keyring.of(tx, source.user_id)
            row["change"] = keys.seal(seal_label(new.id, "change"), json.dumps(asdict(new.change)).encode())
        await execute(tx, SQL["add"], row)

    async def claim(self, tx: Transaction, *, stale_s: float, at_once: int, ids: Sequence[UUID] | None = None) -> Replay | None:
        limits = {"stale_s": stale_s, "at_once": at_once, "max_attempts": MAX_ATTEMPTS, "ids": None if ids is None else [*ids]}
        await execute(tx, SQL["lock_claims"])
        await execute(tx, SQL["give_up"], limits)
        await execute(tx, SQL["end_batch"], {"batch_id": None})
        claimed: UUID | None = await fetch_value(tx, SQL["claim"], limits)
        return None if claimed is None else await self.get(tx, claimed)

    async def has_waiting(self, tx: Transaction, *, stale_s: float) -> bool:
        return bool(await fetch_value(tx, SQL["has_waiting"], {"stale_s": stale_s}))

    async def renew(self, tx: Transaction, claimed: Replay) -> bool:
        return await execute(tx, SQL["renew"], claim_columns(claimed)) > 0

    async def give_back(self, tx: Transaction, claimed: Replay) -> None:
        await execute(tx, SQL["give_back"], claim_columns(claimed))

    async def note(self, tx: Transaction, claimed: Replay, progress: bytes) -> None:
        keys = await self._keyring.of(tx, claimed.user_id)
        await execute(tx, SQL["note"], {**claim_columns(claimed), "result": keys.seal(seal_label(claimed.id, "result"), progress)})

    async def finish(self, tx: Transaction, claimed: Replay, outcome: ReplayOutcome) -> None:
        if claimed.batch_id is not None:
            # First, as in `claim`: of the last two replays that end together, the later one sees the other's end.
            await execute(tx, SQL["lock_claims"])
        await execute(tx, SQL["finish"], {**claim_columns(claimed), **asdict(outcome)})
        if claimed.batch_id is not None:
            await self.end_if_done(tx, claimed.batch_id)

    async def end_if_done(self, tx: Transaction, batch_id: UUID) -> None:
        await execute(tx, SQL["end_batch"], {"batch_id": batch_id})

    async def get(self, tx: Transaction, replay_id: UUID) -> Replay:
        found = await fetch_row(tx, read_replay, SQL["get"], {"id": replay_id})
        if found is None:
            raise NotFound(f"there is no replay {replay_id}")
        return found

    async def open(self, tx: Transaction, replay: Replay) -> ReplayContent:
        row = await fetch_row(tx, SealedReplay, SQL["open"], {"id": replay.id})
        if row is None:
            raise UserErased
        if row.change is None:
            return ReplayContent(ReplayChange(), None)
        with damage_named():
            keys = await self._keyring.of(tx, replay.user_id)
            change = read_change(json.loads(keys.open(seal_label(replay.id, "change"), row.change)))
            return ReplayContent(change, None if row.result is None else keys.open(seal_label(replay.id, "result"), row.result))

    async def list(
        self, tx: Transaction, *, accounts: frozenset[str] | None, before: tuple[datetime, UUID] | None = None, limit: int = 50
    ) -> Sequence[Replay]:
        at, before_id = before or (None, None)
        row = {"accounts": sorted_or_none(accounts), "at": at, "before_id": before_id, "limit": limit}
        return await fetch_rows(tx, read_replay, SQL["list"], row)

    async def of_source(self, tx: Transaction, source: ReplaySource, *, limit: int = 50) -> Sequence[Replay]:
        row = {"turn_id": source.turn_id, "call_id": source.call_id, "session_id": source.session_id, "limit": limit}
        return await fetch_rows(tx, read_replay, SQL["of_source"], row)

    async def of_batch(self, tx: Transaction, batch_id: UUID, *, accounts: frozenset[str] | None) -> Sequence[Replay]:
        return await fetch_rows(tx, read_replay, SQL["of_batch"], {"batch_id": batch_id, "accounts": sorted_or_none(accounts)})

    async def get_batch(self, tx: Transaction, batch_id: UUID, *, accounts: frozenset[str] | None) -> ReplayBatch:
        found = await fetch_rows(tx, read_batch, SQL["batches"], {"id": batch_id, "accounts": sorted_or_none(accounts), "limit": 1})
        if not found:
            raise NotFound(f"there is no batch {batch_id}")
        return found[0]

    async def batches(self, tx: Transaction, *, accounts: frozenset[str] | None, limit: int = 50) -> Sequence[ReplayBatch]:
        return await fetch_rows(tx, read_batch, SQL["batches"], {"id": None, "accounts": sorted_or_none(accounts), "limit": limit})

    async def stop(self, tx: Transaction, batch_id: UUID) -> int:
        return await execute(tx, SQL["stop"], {"batch_id": batch_id})

    async def resume(self, tx: Transaction, batch_id: UUID) -> int:
        return len(await fetch_values(tx, SQL["resume"], {"batch_id": batch_id, "final": [*NOT_REPLAYABLE]}))

    async def note_kept(self, tx: Transaction, replay_id: UUID, response_id: str) -> None:
        await execute(tx, SQL["note_kept"], {"id": replay_id, "response_id": response_id})


@dataclass(frozen=True, slots=True)
class SealedRecords:
    """The ports EffectReader and GraphReader: what a turn asked and got. Raises DataDamaged for all that cannot be opened."""

    effects: EffectReader
    graphs: GraphReader

    async def effect(self, tx: Transaction, turn_id: UUID, step: str, index: int) -> Effect | None:
        with damage_named():
            return await self.effects.effect(tx, turn_id, step, index)

    async def load(self, tx: Transaction, session_id: UUID) -> MessageGraph:
        with damage_named():
            return await self.graphs.load(tx, session_id)


class SealedReplay(NamedTuple):
    """The sealed columns of a replay."""

    change: bytes | None
    result: bytes | None


def read_replay(*, state: str, **columns: Any) -> Replay:
    return Replay(state=ReplayState(state), **columns)


def read_batch(*, models: Sequence[str], **columns: Any) -> ReplayBatch:
    return ReplayBatch(models=tuple(models), **columns)


def read_change(written: dict[str, Any]) -> ReplayChange:
    tools = written["tools"]
    return ReplayChange(
        system=written["system"],
        tools=None if tools is None else tuple(tools),
        sampling=written["sampling"],
        run_tools=tuple(written["run_tools"]),
    )


def filter_columns(wanted: ReplayFilter) -> dict[str, Any]:
    row = {**asdict(wanted), "accounts": sorted_or_none(wanted.accounts)}
    return {**row, "is_answered": None if wanted.status is None else wanted.status == "answered"}


def claim_columns(claimed: Replay) -> dict[str, Any]:
    return {"id": claimed.id, "attempt": claimed.attempt}


def sorted_or_none(names: frozenset[str] | None) -> list[str] | None:
    return None if names is None else sorted(names)


def seal_label(replay_id: UUID, part: str) -> str:
    return f"replays/{replay_id}/{part}"
