"""The rows of processes and their events, in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from hermes.ports.processes import ProcessBeat, ProcessEvent, ProcessRecord, ProcessRestart, ProcessRole, RestartReason
from hermes.ports.runtime import Transaction
from hermes.testing.memory.runtime import to_time


@dataclass(slots=True)
class ProcessRow:
    """A process, by the clock of a test."""

    beat: ProcessBeat
    started_at: float
    beat_at: float
    is_stalled: bool = False
    silent_at: float | None = None
    stopped_at: float | None = None


@dataclass(slots=True)
class MemoryProcesses:
    """The port Processes."""

    clock: Callable[[], float] = time.monotonic
    rows: dict[UUID, ProcessRow] = field(default_factory=dict)
    told: list[ProcessEvent] = field(default_factory=list)

    async def beat(self, _: Transaction, beat: ProcessBeat, *, stalled_after_s: float | None = None) -> list[ProcessRecord]:
        now = self.clock()
        row = self.rows.get(beat.process_id)
        judges = row is not None and stalled_after_s is not None and row.beat_at > now - stalled_after_s / 2
        if row is None:
            row = self.rows[beat.process_id] = ProcessRow(beat, now, now)
            self._tell("process_started", beat, version=beat.version)
        elif row.is_stalled:
            self._tell("process_recovered", beat, version=beat.version)
        if beat.is_silent and row.silent_at is None:
            self._tell("process_silent", beat, version=beat.version)
        row.silent_at = (row.silent_at if row.silent_at is not None else now) if beat.is_silent else None
        row.beat, row.beat_at, row.is_stalled, row.stopped_at = beat, now, False, None
        found = []
        for other in self.rows.values():
            is_late = stalled_after_s is not None and other.beat_at < now - stalled_after_s and other.beat.role is not ProcessRole.COMMAND
            if judges and is_late and other.stopped_at is None and not other.is_stalled:
                other.is_stalled = True
                self._tell("process_stalled", other.beat, beat_age_s=round(now - other.beat_at, 1))
                found.append(self._record(other))
        return found

    async def stop(self, _: Transaction, process_id: UUID) -> None:
        row = self.rows.get(process_id)
        if row is not None and row.stopped_at is None:
            row.stopped_at = self.clock()
            self._tell("process_stopped", row.beat)

    async def record_restart(self, _: Transaction, restart: ProcessRestart) -> None:
        row = self.rows.get(restart.process_id) if restart.process_id is not None else None
        facts = {name: value for name in ("reason", "code", "restarts") if (value := getattr(restart, name)) is not None}
        if restart.reason is RestartReason.STALLED and not (row is not None and row.is_stalled):
            self._tell("process_stalled", restart, **facts)
        self._tell("process_restarted", restart, **facts)
        if restart.is_crash_loop:
            self._tell("process_crash_loop", restart, **facts)
        if row is not None and row.stopped_at is None:
            row.stopped_at = self.clock()

    async def all(self, _: Transaction) -> list[ProcessRecord]:
        rows = sorted(self.rows.values(), key=lambda row: (row.stopped_at is not None, row.beat.role, row.started_at, row.beat.process_id))
        return [self._record(row) for row in rows]

    async def events(self, _: Transaction, *, limit: int = 100) -> list[ProcessEvent]:
        return self.told[::-1][:limit]

    async def prune(self, _: Transaction, *, rows_older_than_s: float, events_older_than_s: float) -> int:
        now = self.clock()
        self.told = [event for event in self.told if event.at >= to_time(now - events_older_than_s)]
        old = [process_id for process_id, row in self.rows.items() if row.beat_at < now - rows_older_than_s]
        for process_id in old:
            del self.rows[process_id]
        return len(old)

    def _tell(self, event: str, process: ProcessBeat | ProcessRestart, **facts: object) -> None:
        known: Mapping[str, object] = {"role": process.role, "host": process.host, "pid": process.pid, **facts}
        number = self.told[-1].number + 1 if self.told else 1
        self.told.append(ProcessEvent(number=number, type=event, process=process.process_id, facts=known, at=to_time(self.clock())))

    def _record(self, row: ProcessRow) -> ProcessRecord:
        beat, now = row.beat, self.clock()
        record = ProcessRecord(
            id=beat.process_id,
            role=beat.role,
            host=beat.host,
            pid=beat.pid,
            version=beat.version,
            started_at=to_time(row.started_at),
            beat_at=to_time(row.beat_at),
            beat_age_s=now - row.beat_at,
            progress_at=None if beat.turn_ended_s is None else to_time(row.beat_at - beat.turn_ended_s),
            running=beat.running,
            slots_used=beat.slots_used,
            slots_waiting=beat.slots_waiting,
            loop_lag_ms=beat.loop_lag_ms,
            silent_at=None if row.silent_at is None else to_time(row.silent_at),
            stopped_at=None,
        )
        return record if row.stopped_at is None else replace(record, stopped_at=to_time(row.stopped_at))
