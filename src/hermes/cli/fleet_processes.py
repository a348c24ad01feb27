"""How the commands show processes and chores: as JSON, and as cells of a table."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from hermes.ports.processes import ProcessRecord
from hermes.ports.runtime import ChoreRecord


def process_json(process: ProcessRecord, stalled_after_s: float) -> dict[str, Any]:
    return {
        "id": str(process.id),
        "state": process.state(stalled_after_s),
        "role": process.role,
        "host": process.host,
        "pid": process.pid,
        "version": process.version,
        "started_at": process.started_at.isoformat(),
        "beat_at": process.beat_at.isoformat(),
        "beat_age_s": round(process.beat_age_s, 3),
        "progress_at": iso_time(process.progress_at),
        "running": process.running,
        "slots_used": process.slots_used,
        "slots_waiting": process.slots_waiting,
        "loop_lag_ms": process.loop_lag_ms,
        "stopped_at": iso_time(process.stopped_at),
    }


def chore_json(chore: ChoreRecord, by_id: Mapping[UUID, ProcessRecord]) -> dict[str, Any]:
    holder = by_id.get(chore.holder) if chore.holder else None
    return {
        "chore": chore.name,
        "is_running": chore.is_running,
        "holder": None if chore.holder is None else str(chore.holder),
        "role": None if holder is None else holder.role,
        "host": None if holder is None else holder.host,
        "pid": None if holder is None else holder.pid,
        "epoch": chore.epoch,
        "taken_at": iso_time(chore.taken_at),
        "held_until": iso_time(chore.held_until),
        "done_at": iso_time(chore.done_at),
        "failed": chore.failed,
    }


def holder_name(chore: ChoreRecord, by_id: Mapping[UUID, ProcessRecord]) -> str:
    """`worker bali-1 (42)`: the process that took the chore last."""
    holder = by_id.get(chore.holder) if chore.holder else None
    if holder is not None:
        return f"{holder.role} {holder.host} ({holder.pid})"
    return "unknown" if chore.holder is None else f"{str(chore.holder)[:8]} (gone)"


def iso_time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def show_time(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
