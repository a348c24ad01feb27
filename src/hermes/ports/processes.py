"""The processes of Hermes as they report themselves, and what happened to them: one row each, and a list of events.

A process writes its row by a coroutine on its own event loop. A row whose beat is old therefore means one of three things: the process was
killed, its event loop is blocked, or it cannot reach the store. `hermes up` decides by other beats, which do not need the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from hermes.ports.runtime import Transaction


class ProcessRole(StrEnum):
    """What a process does."""

    SERVE = "serve"
    WORKER = "worker"
    COMMAND = "command"
    """A command of the operator that does a chore."""


class ProcessState(StrEnum):
    """How a process is, by its row."""

    LIVE = "live"
    STALLED = "stalled"
    """It gave no beat for too long: it is dead, frozen, blocked, or cut off from the store."""
    SILENT = "silent"
    """It gives its beat, but no turn ends while turns wait."""
    STOPPED = "stopped"


class RestartReason(StrEnum):
    """Why `hermes up` started a process again."""

    DIED = "died"
    STALLED = "stalled"
    SILENT = "silent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBeat:
    """What a process says about itself with each beat."""

    process_id: UUID
    role: ProcessRole
    host: str
    pid: int
    version: str
    turn_ended_s: float | None = None
    """Seconds since a turn ended in this process; None: none did yet."""
    running: int = 0
    """Jobs that it is doing."""
    slots_used: int = 0
    slots_waiting: int = 0
    loop_lag_ms: int = 0
    is_silent: bool = False
    vault_folder: UUID | None = None
    """What names the folder in which this process finds the vault; None: it finds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """The row of a process."""

    id: UUID
    role: ProcessRole
    host: str
    pid: int
    version: str
    started_at: datetime
    beat_at: datetime
    beat_age_s: float
    """Seconds since its last beat, by the store's clock."""
    progress_at: datetime | None
    """When a turn ended in it last."""
    running: int
    slots_used: int
    slots_waiting: int
    loop_lag_ms: int
    silent_at: datetime | None
    stopped_at: datetime | None

    def state(self, stalled_after_s: float) -> ProcessState:
        """How the process is, if a beat may be at most so old."""
        if self.stopped_at is not None:
            return ProcessState.STOPPED
        if self.beat_age_s > stalled_after_s:
            return ProcessState.STALLED
        return ProcessState.LIVE if self.silent_at is None else ProcessState.SILENT


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRestart:
    """A process that `hermes up` replaced."""

    process_id: UUID | None
    """None if it ended before its first beat."""
    role: ProcessRole
    host: str
    pid: int
    reason: RestartReason
    code: int | None
    """Its exit code; the negative number of a signal if a signal ended it."""
    restarts: int
    """How often a process of this place was replaced within the last minutes, this time included."""
    is_crash_loop: bool = False
    """Whether it is replaced so often that `hermes up` now tries it slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """Something that happened to a process."""

    number: int
    type: str
    """process_started, process_stopped, process_stalled, process_recovered, process_silent, process_restarted, process_crash_loop."""
    process: UUID | None
    facts: Mapping[str, object]
    at: datetime


class Processes(Protocol):
    """The rows of all processes. Fails closed. Ages use the store's clock, so that all hosts agree on which process is late."""

    async def beat(self, tx: Transaction, beat: ProcessBeat, *, stalled_after_s: float | None = None) -> Sequence[ProcessRecord]:
        """Write the process's own row, in one statement. The first beat is the event `process_started`.

        Also find the other processes that gave no beat for `stalled_after_s`, and return those that no beat found before: each one is
        returned to one caller, with the event `process_stalled`, until it gives a beat again (`process_recovered`). None: look for none.
        Commands are never among them: a person may suspend a terminal.
        A process that is late itself, by half of `stalled_after_s`, finds none: after an outage of the store every row is old."""
        ...

    async def stop(self, tx: Transaction, process_id: UUID) -> None:
        """Note that a process ended by itself: `process_stopped`. A second call changes nothing."""
        ...

    async def record_restart(self, tx: Transaction, restart: ProcessRestart) -> None:
        """Note that a process was replaced: its row counts as stopped, and the events are `process_restarted`, for a stalled process also
        `process_stalled` if no beat found it before, and in a crash loop also `process_crash_loop`."""
        ...

    async def all(self, tx: Transaction) -> Sequence[ProcessRecord]:
        """Return every process of the last day, those that run first, each by role and start."""
        ...

    async def events(self, tx: Transaction, *, limit: int = 100) -> Sequence[ProcessEvent]:
        """Return the newest events, the newest first."""
        ...

    async def prune(self, tx: Transaction, *, rows_older_than_s: float, events_older_than_s: float) -> int:
        """Delete the rows of processes that gave no beat for so long, and old events; return how many rows."""
        ...
