"""Keep the row of this process up to date, and report what it learns about others: those that gave no beat, those that were replaced."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from hermes import __version__
from hermes.gateway.slots import Slots
from hermes.ops.work_activity import WorkActivity
from hermes.ports.errors import StoreUnavailable
from hermes.ports.processes import ProcessBeat, Processes, ProcessRestart, ProcessRole, RestartReason
from hermes.ports.runtime import Alerts, Transactions
from hermes.stores.postgres.job_queue import PostgresJobQueue
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

TakeNews = Callable[[], Sequence[Mapping[str, Any]]]
"""Returns what `hermes up` said about other processes since the last call, each as `restart_news` wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReporter:
    """Writes the row of this process every `heartbeat_s`."""

    process_id: UUID
    transactions: Transactions
    processes: Processes
    work: PostgresJobQueue
    alerts: Alerts
    activity: WorkActivity
    slots: Slots
    heartbeat_s: float
    stalled_after_s: float
    find_vault_folder: Callable[[], UUID | None] = lambda: None
    """Returns what names the folder of vaults. Touches the disk."""

    @asynccontextmanager
    async def beating(self, role: ProcessRole) -> AsyncIterator[None]:
        """Write the row until the block ends, and then that the process stopped. While the store is away, nothing is written."""
        owner = asyncio.current_task()
        beating = asyncio.create_task(self._run(role, lambda: owner is not None and owner.cancelling() > 0), name="process row")
        try:
            yield
        finally:
            await end_tasks(beating)
            with suppress(StoreUnavailable):
                async with self.transactions.once() as tx:
                    await self.processes.stop(tx, self.process_id)

    async def _run(self, role: ProcessRole, is_stopping: Callable[[], bool]) -> None:
        was_silent, last = False, time.monotonic()
        vault_folder = await asyncio.to_thread(self.find_vault_folder)
        judges_at = last + self.stalled_after_s
        while True:
            try:
                await self._beat(role, vault_folder, judges=time.monotonic() >= judges_at)
                # After an outage of the store, or a pause of the whole machine, every row is old. The others get time for a beat first.
                now = time.monotonic()
                if now - last > self.stalled_after_s / 2:
                    judges_at = now + self.stalled_after_s
                last = now
                await self._look(is_working=role is ProcessRole.WORKER and not is_stopping())
            except StoreUnavailable as error:
                self.activity.look(None)
                log.warning("process_beat_failed", error=type(error).__name__)
            if self.activity.is_silent and not was_silent:
                self.alerts.alert("process_silent", **self._name(role), running=self.activity.running)
            elif was_silent and not self.activity.is_silent:
                self.alerts.end("process_silent", **self._name(role))
            was_silent = self.activity.is_silent
            stop_if_cancelled()
            await asyncio.sleep(self.heartbeat_s)

    async def _beat(self, role: ProcessRole, vault_folder: UUID | None, *, judges: bool) -> None:
        beat = ProcessBeat(
            process_id=self.process_id,
            role=role,
            host=host_name(),
            pid=os.getpid(),
            version=__version__,
            turn_ended_s=self.activity.turn_ended_s,
            running=self.activity.running,
            slots_used=self.slots.used,
            slots_waiting=self.slots.waiting,
            loop_lag_ms=round(self.activity.loop_lag_s() * 1_000),
            is_silent=self.activity.is_silent,
            vault_folder=vault_folder,
        )
        async with self.transactions.once() as tx:
            late = await self.processes.beat(tx, beat, stalled_after_s=self.stalled_after_s if judges else None)
        for other in late:
            self.alerts.alert(
                "process_stalled", role=str(other.role), host=other.host, pid=other.pid, beat_age_s=round(other.beat_age_s, 1)
            )

    async def _look(self, *, is_working: bool) -> None:
        """See whether turns wait that this worker could begin. A worker in which turns end need not ask."""
        oldest_wait_s = None
        if is_working and not self.activity.has_progress:
            async with self.transactions.once() as tx:
                oldest_wait_s = await self.work.oldest_turn_s(tx)
        self.activity.look(oldest_wait_s)

    def _name(self, role: ProcessRole) -> dict[str, object]:
        return {"role": str(role), "host": host_name(), "pid": os.getpid()}

    # --- what the parent says

    @asynccontextmanager
    async def following(self, take_news: TakeNews) -> AsyncIterator[None]:
        """Record and report the restarts that `hermes up` tells of, until the block ends. The parent itself has no store."""
        following = asyncio.create_task(self._follow(take_news), name="parent news")
        try:
            yield
        finally:
            await end_tasks(following)

    async def _follow(self, take_news: TakeNews) -> None:
        unwritten: list[ProcessRestart] = []
        while True:
            for news in take_news():
                restart = read_restart(news)
                unwritten.append(restart)
                self._alert(restart)
            try:
                while unwritten:
                    async with self.transactions.once() as tx:
                        await self.processes.record_restart(tx, unwritten[0])
                    unwritten.pop(0)
            except StoreUnavailable:
                stop_if_cancelled()  # written later: news are few
            await asyncio.sleep(1.0)

    def _alert(self, restart: ProcessRestart) -> None:
        """Alert the operator. A silent process did so itself, when it noticed."""
        facts: dict[str, object] = {"role": str(restart.role), "host": restart.host, "pid": restart.pid}
        facts |= {"code": restart.code, "restarts": restart.restarts}
        if restart.reason is RestartReason.DIED:
            self.alerts.alert("process_died", **facts)
        elif restart.reason is RestartReason.STALLED:
            self.alerts.alert("process_stalled", **facts)
        if restart.is_crash_loop:
            self.alerts.alert("process_crash_loop", **facts)


def restart_news(restart: ProcessRestart) -> dict[str, Any]:
    """Return a restart as JSON, for the process that records it."""
    return {
        "process_id": None if restart.process_id is None else str(restart.process_id),
        "role": restart.role,
        "host": restart.host,
        "pid": restart.pid,
        "reason": restart.reason,
        "code": restart.code,
        "restarts": restart.restarts,
        "is_crash_loop": restart.is_crash_loop,
    }


def read_restart(news: Mapping[str, Any]) -> ProcessRestart:
    """Read what `restart_news` wrote."""
    process_id = news["process_id"]
    return ProcessRestart(
        process_id=None if process_id is None else UUID(process_id),
        role=ProcessRole(news["role"]),
        host=news["host"],
        pid=news["pid"],
        reason=RestartReason(news["reason"]),
        code=news["code"],
        restarts=news["restarts"],
        is_crash_loop=news["is_crash_loop"],
    )


def host_name() -> str:
    return socket.gethostname()
