"""Durable jobs on PostgreSQL with Procrastinate: deferred in the caller's transaction, and run by workers that may be killed or paused.

The tables, the way to defer a job and the announcements are Procrastinate's; the workers are our own (`job_worker.py`). The jobs of a
killed worker go to another worker. A worker that was paused and wakes up does not end a job that now belongs to another worker. The next
job of a conversation starts when the job before it ends, not at the next poll. A worker goes on after an outage of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import procrastinate
import psycopg
from procrastinate import exceptions

from hermes.event_log import get_logger
from hermes.ports.errors import StoreUnavailable
from hermes.ports.inbox import Claim, UnreadableMessage
from hermes.ports.runtime import JobHandlers, Transaction, Transactions
from hermes.stores.postgres.database import Database, connection_of, execute, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.inbox import PostgresInbox, StartRow
from hermes.stores.postgres.job_worker import LOST_DATABASE, Job, JobTask, JobWorker, RunningJobs
from hermes.stores.postgres.queries import load_queries
from hermes.tasks import end_tasks, stop_if_cancelled

log = get_logger(__name__)

SQL = load_queries("job_queue")
TURNS, DELIVERIES, MEMORY = "turns", "deliveries", "memory"
MAX_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The limits and intervals of a worker. Intervals are in seconds, so that tests can make them short."""

    concurrency: int = 32
    poll_s: float = 1.0
    """How late a worker may notice a delayed job; PostgreSQL announces new jobs at once."""
    heartbeat_s: float = 2.0
    stalled_after_s: float = 10.0
    sweep_s: float = 2.0
    drain_s: float = 30.0
    lost_after_s: float = 60.0
    """A message that has waited so long without a job gets a new one."""
    proactive_waits_s: Sequence[float] = (0.5, 2.0, 8.0)
    """Between the tries to write proactive messages into a history. Short, because turns wait behind them; after the last try they are
    written with the next proactive message."""
    memory_concurrency: int = 2
    """How many messages a worker learns from at once. Few: each may ask a model, and none is urgent."""
    memory_waits_s: Sequence[float] = (2.0, 10.0, 60.0, 180.0)
    """Between the tries to learn from a message; after the last try the worker gives it up."""


class PostgresJobQueue:
    """The port JobQueue, and the workers that run the jobs."""

    def __init__(self, database: Database, app: procrastinate.App) -> None:
        self._database, self._app = database, app

    async def defer_turn(self, tx: Transaction, turn_id: UUID, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        delay: dict[str, Any] = {"schedule_in": {"seconds": in_s}} if in_s else {}
        task = self._app.configure_task("turn", queue=TURNS, lock=f"in:{conversation_id}", connection=connection_of(tx), **delay)
        with translate_queue_errors():
            await task.defer_async(id=str(turn_id))

    async def defer_delivery(self, tx: Transaction, conversation_id: UUID, *, in_s: float = 0.0) -> None:
        lock = f"out:{conversation_id}"
        delay: dict[str, Any] = {"schedule_in": {"seconds": in_s}} if in_s else {}
        await self._defer_one(tx, conversation_id, "delivery", queue=DELIVERIES, lock=lock, queueing_lock=lock, **delay)

    async def defer_proactive(self, tx: Transaction, conversation_id: UUID) -> None:
        # Under the lock of turns, and in their queue: what waits behind it must not wait for anything slower than a turn.
        lock, once = f"in:{conversation_id}", f"news:{conversation_id}"
        await self._defer_one(tx, conversation_id, "news", queue=TURNS, lock=lock, queueing_lock=once)

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        task = self._app.configure_task("memory", queue=MEMORY, lock=f"memory:{user_id}", connection=connection_of(tx))
        with translate_queue_errors():
            await task.defer_async(id=str(turn_id))

    async def _defer_one(self, tx: Transaction, conversation_id: UUID, task: str, *, queueing_lock: str, **options: Any) -> None:
        """Defer a job, unless a job with the same `queueing_lock` waits already."""
        if await execute(tx, SQL["is_waiting"], {"queueing_lock": queueing_lock}):
            return
        configured = self._app.configure_task(task, queueing_lock=queueing_lock, connection=connection_of(tx), **options)
        try:
            with translate_queue_errors():
                async with connection_of(tx).transaction():
                    await configured.defer_async(id=str(conversation_id))
        except exceptions.AlreadyEnqueued:
            return  # another process deferred it between the check and the insert

    async def waiting(self, tx: Transaction) -> dict[str, int]:
        """The number of waiting jobs by queue."""
        return {TURNS: 0, DELIVERIES: 0, MEMORY: 0, **dict(await fetch_rows(tx, QueueLength, SQL["waiting"]))}

    async def oldest_turn_s(self, tx: Transaction) -> float | None:
        """How many seconds the oldest turn has waited that a worker could begin now; None if none waits."""
        waited_s: float | None = await fetch_value(tx, SQL["oldest_turn"])
        return waited_s

    async def run(
        self,
        handlers: JobHandlers,
        options: WorkerOptions,
        sweeps: Callable[[], Awaitable[None]] | None = None,
        *,
        claims: TurnClaims | None = None,
    ) -> None:
        """Run jobs until cancelled; then take no new job, and give the running jobs `drain_s` to end.

        `sweeps` is called after each sweep of stalled jobs. `claims` claims turns with the fetch of their jobs; without it, the handler
        claims each."""
        running_jobs = RunningJobs()
        turns = {
            "turn": JobTask(handlers.turn, retry_wait_s),
            "news": JobTask(handlers.proactive, one_of(options.proactive_waits_s), len(options.proactive_waits_s) + 1),
        }
        deliveries = {"delivery": JobTask(handlers.delivery, retry_wait_s)}
        memory = {"memory": JobTask(handlers.memory, one_of(options.memory_waits_s), len(options.memory_waits_s) + 1)}
        async with self._beating(running_jobs, options), asyncio.TaskGroup() as group:
            for queue, tasks, concurrency in (
                (TURNS, turns, options.concurrency),
                (DELIVERIES, deliveries, options.concurrency),  # they mostly wait for platforms
                (MEMORY, memory, options.memory_concurrency),
            ):
                worker = partial(
                    JobWorker,
                    database=self._database,
                    manager=self._app.job_manager,
                    queue=queue,
                    tasks=tasks,
                    running_jobs=running_jobs,
                    concurrency=concurrency,
                    poll_s=options.poll_s,
                    drain_s=options.drain_s,
                    stalled_after_s=options.stalled_after_s,
                    starts=partial(claims.fetch, self._database) if claims is not None and queue == TURNS else None,
                )
                group.create_task(self._serve(worker, queue, options))
            group.create_task(self._sweep(running_jobs, options, sweeps))

    async def _serve(self, new_worker: Callable[[], JobWorker], queue: str, options: WorkerOptions) -> None:
        """Run one queue's worker. It ends if the database is away; then this starts a new worker."""
        while True:
            try:
                await new_worker().run()
            except LOST_DATABASE as error:
                log.warning("worker_lost_database", queue=queue, error=type(error).__name__)
            stop_if_cancelled()
            await asyncio.sleep(options.poll_s)

    async def _sweep(self, running_jobs: RunningJobs, options: WorkerOptions, sweeps: Callable[[], Awaitable[None]] | None) -> None:
        while True:
            await asyncio.sleep(options.sweep_s)
            try:
                await self.sweep(running_jobs, options)
                if sweeps is not None:
                    await sweeps()
            except (StoreUnavailable, psycopg.Error) as error:
                # No error of one sweep may end the sweeping: after a failure it is the sweeps that restart all other work.
                log.warning("sweep_failed", error=type(error).__name__)
            stop_if_cancelled()

    @asynccontextmanager
    async def _beating(self, running_jobs: RunningJobs, options: WorkerOptions) -> AsyncIterator[None]:
        """Write heartbeats until the last job has ended, also while this process drains: otherwise another worker would be given a long
        turn while it still runs here."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(options.heartbeat_s)
                with suppress(StoreUnavailable):
                    async with self._database.begin() as tx:
                        await execute(tx, SQL["beat"], {"workers": sorted(running_jobs.workers)})
                stop_if_cancelled()

        beating = asyncio.create_task(beat(), name="work beat")
        try:
            yield
        finally:
            await end_tasks(beating)

    async def sweep(self, running_jobs: RunningJobs, options: WorkerOptions) -> None:
        """Free the jobs of dead workers for other workers, and defer a job for every message that has none."""
        async with self._database.begin() as tx:
            orphans = running_jobs.orphans({*await fetch_values(tx, SQL["doing"], {"workers": sorted(running_jobs.workers)})})
            limits = {"stalled_after_s": options.stalled_after_s, "orphans": orphans}
            freed = await execute(tx, SQL["sweep"], limits)
        async with self._database.begin() as tx:
            lost = await fetch_rows(tx, LostTurn, SQL["lost_turns"], {"older_than_s": options.lost_after_s})
            for turn in lost:
                await self.defer_turn(tx, turn.turn_id, turn.conversation_id)
        if freed:
            log.warning("stalled_jobs_freed", jobs=freed, orphans=len(orphans))
        if lost:
            log.warning("lost_turns_deferred", turns=len(lost))


@dataclass(frozen=True, slots=True)
class TurnClaims:
    """Claims turns with the fetch of their jobs: one trip and one commit instead of two."""

    inbox: PostgresInbox
    process_id: UUID
    per_minute: int
    run: Callable[[UUID, Claim | UnreadableMessage], Awaitable[bool | None]]
    """Drives a turn that is claimed."""
    reads: Transactions | None = None
    """For the keys of a message, which this process mostly has; None: the database of the jobs."""

    async def fetch(self, database: Database, worker_id: int, limit: int) -> list[Job]:
        async with database.once() as tx:
            found = await self.inbox.start_turns(tx, TURNS, worker_id, limit, worker=self.process_id, per_minute=self.per_minute)
        return [
            Job(*job[:4], worker_id, None if job.claimed is None else partial(self._drive, database, job.subject_id, job.claimed))
            for job in found
        ]

    async def _drive(self, database: Database, turn_id: UUID, row: StartRow) -> bool | None:
        async with (self.reads or database).once() as tx:
            claim = await self.inbox.read_claim(tx, row)
        return await self.run(turn_id, claim)


class QueueLength(NamedTuple):
    """How many jobs of a queue wait."""

    queue_name: str
    jobs: int


class LostTurn(NamedTuple):
    """A message that waits without a job."""

    turn_id: UUID
    conversation_id: UUID


@asynccontextmanager
async def open_job_queue(database: Database) -> AsyncIterator[PostgresJobQueue]:
    """Open the job queue of a database until the block ends."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    async with app.open_async(database.pool):
        yield PostgresJobQueue(database, app)


@contextmanager
def translate_queue_errors() -> Iterator[None]:
    """Raise StoreUnavailable in place of the queue's errors about a lost connection."""
    try:
        yield
    except exceptions.AlreadyEnqueued:
        raise
    except exceptions.ConnectorException as error:
        raise StoreUnavailable(f"PostgreSQL cannot be used: {type(error.__cause__ or error).__name__}") from error


def retry_wait_s(attempts: int) -> float:
    """The pause of jobs that are never given up. A turn counts its own attempts and ends with an apology; until then the same job keeps its
    place."""
    return min(0.5 * 2.0 ** min(attempts, 10), MAX_WAIT_S)


def one_of(waits_s: Sequence[float]) -> Callable[[int], float]:
    return lambda attempts: waits_s[min(attempts, len(waits_s) - 1)]
