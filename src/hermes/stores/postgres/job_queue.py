"""Durable jobs on PostgreSQL with Procrastinate: deferred in the caller's transaction, and run by workers that may be killed or paused.

This module adds what Procrastinate does not do. The jobs of a killed worker go to another worker. A worker that was paused and wakes up
does not end a job that now belongs to another worker. The next job of a conversation starts when the job before it ends, not at the next
poll. A worker goes on after an outage of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import procrastinate
import psycopg
import structlog
from procrastinate import exceptions, jobs, manager
from procrastinate.connector import BaseConnector
from procrastinate.job_context import JobContext
from procrastinate.worker import Worker

from hermes.ports.errors import ClaimLost, StoreUnavailable
from hermes.ports.runtime import JobHandlers, Transaction
from hermes.stores.postgres.database import POSTGRES_ERRORS, Database, connection_of, execute, fetch_rows, fetch_value, fetch_values
from hermes.stores.postgres.queries import load_queries
from hermes.tasks import end_tasks, stack_frames, stop_if_cancelled

log = structlog.get_logger()

SQL = load_queries("job_queue")
TURNS, DELIVERIES, MEMORY = "turns", "deliveries", "memory"
MAX_WAIT_S = 30.0
STOP_REPEAT_S = 1.0


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

    async def run(self, handlers: JobHandlers, options: WorkerOptions, sweeps: Callable[[], Awaitable[None]] | None = None) -> None:
        """Run jobs until cancelled; then take no new job, and give the running jobs `drain_s` to end.

        `sweeps` is called after each sweep of stalled jobs."""
        running_jobs = RunningJobs()
        app = new_app(self._app.connector)  # a new app for each run: in one app a task's name can have one function only
        app.task(name="turn", queue=TURNS, retry=JobRetry(), pass_context=True)(running_jobs.track(handlers.turn))
        app.task(name="delivery", queue=DELIVERIES, retry=JobRetry(), pass_context=True)(running_jobs.track(handlers.delivery))
        for name, queue, work, waits_s in (
            ("news", TURNS, handlers.proactive, options.proactive_waits_s),
            ("memory", MEMORY, handlers.memory, options.memory_waits_s),
        ):
            task = running_jobs.track(work, max_tries=len(waits_s) + 1)
            app.task(name=name, queue=queue, retry=JobRetry(waits_s), pass_context=True)(task)
        async with self._beating(running_jobs, options), asyncio.TaskGroup() as group:
            group.create_task(self._serve(app, TURNS, options.concurrency, options))
            group.create_task(self._serve(app, DELIVERIES, options.concurrency, options))  # they mostly wait for platforms
            group.create_task(self._serve(app, MEMORY, options.memory_concurrency, options))
            group.create_task(self._sweep(running_jobs, options, sweeps))

    async def _serve(self, app: procrastinate.App, queue: str, concurrency: int, options: WorkerOptions) -> None:
        """Run one queue's worker. It ends if the database is away for long; then this starts a new worker."""
        while True:
            worker = Worker(
                app,
                name=queue,
                queues=[queue],
                concurrency=concurrency,
                fetch_job_polling_interval=options.poll_s,
                shutdown_graceful_timeout=options.drain_s,
                update_heartbeat_interval=options.heartbeat_s,
                stalled_worker_timeout=options.stalled_after_s,
                install_signal_handlers=False,
                delete_jobs="successful",
            )
            try:
                await run_until_cancelled(worker)
                log.warning("worker_stopped", queue=queue)
            except (exceptions.ConnectorException, *POSTGRES_ERRORS) as error:
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
        """Write heartbeats until the last job has ended. Procrastinate stops its own heartbeats when it begins to drain, so another worker
        would be given a long turn while it still runs here."""

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
    app = new_app(procrastinate.PsycopgConnector())
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


async def run_until_cancelled(worker: Worker) -> None:
    """Run a worker until it ends by itself, or the caller is cancelled; then until it has drained.

    The worker is asked to stop, not cancelled: while it starts, the pool of connections may lose a cancellation, and the worker would run
    for ever."""
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]  # procrastinate leaves it untyped
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            worker.stop()  # type: ignore[no-untyped-call]  # repeated: a worker that is just starting loses an earlier stop
            await asyncio.wait([running], timeout=STOP_REPEAT_S)
        if not running.cancelled():
            running.exception()  # not needed any more; without this call asyncio would report it as never retrieved
        raise
    finally:
        running.cancel()


def new_app(connector: BaseConnector) -> procrastinate.App:
    app = procrastinate.App(connector=connector)
    app.job_manager = OwnedJobManager(connector)
    return app


class OwnedJobManager(manager.JobManager):
    """Ends and retries a job only while it belongs to this worker."""

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:  # noqa: ARG002, FBT001  # its signature
        await self._change(job, "finish" if delete_job else "give_up")

    async def retry_job(
        self,
        job: jobs.Job,
        retry_at: datetime | None = None,
        priority: int | None = None,  # noqa: ARG002  # Procrastinate's signature; our jobs keep their priority, queue and lock
        queue: str | None = None,  # noqa: ARG002
        lock: str | None = None,  # noqa: ARG002
    ) -> None:
        # Sent as a time to wait, because the queue uses the database's clock, which may differ from this machine's.
        wait_s = (retry_at - datetime.now(UTC)).total_seconds() if retry_at else 0.0
        await self._change(job, "retry", wait_s=max(0.0, wait_s))

    async def _change(self, job: jobs.Job, query: str, **values: Any) -> None:
        rows = await self.connector.execute_query_all_async(query=SQL[query].decode(), id=job.id, worker_id=job.worker_id, **values)
        if not rows:
            log.warning("job_was_taken_over", job_id=job.id, task=job.task_name)


class JobRetry(procrastinate.BaseRetryStrategy):
    """Retries a job after every failure. A turn counts its own attempts and ends with an apology; until then the same job keeps its place.

    `waits_s` gives the pauses; the task itself decides when to give up."""

    def __init__(self, waits_s: Sequence[float] = ()) -> None:
        self._waits_s = waits_s

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> procrastinate.RetryDecision:
        wait_s = 0.0 if isinstance(exception, asyncio.CancelledError) else self._wait_s(job.attempts)
        return procrastinate.RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=wait_s))

    def _wait_s(self, attempts: int) -> float:
        if self._waits_s:
            return self._waits_s[min(attempts, len(self._waits_s) - 1)]
        return min(0.5 * 2.0 ** min(attempts, 10), MAX_WAIT_S)


@dataclass(slots=True)
class RunningJobs:
    """The jobs that this process runs. By them it finds its orphans: jobs that the database still counts as running, because their end
    could not be written."""

    running: set[int] = field(default_factory=set)
    workers: set[int] = field(default_factory=set)
    _suspects: set[int] = field(default_factory=set)

    def track(
        self, work: Callable[[UUID], Awaitable[None]], *, max_tries: int | None = None
    ) -> Callable[[JobContext, str], Awaitable[None]]:
        """Make a task of `work` whose runs are counted here. After `max_tries` it gives up: it logs so once and ends the job."""

        def is_given_up(job: jobs.Job, tries: int) -> bool:
            if max_tries is None or tries < max_tries:
                return False
            log.warning("job_given_up", task=job.task_name, id=job.task_kwargs["id"], tries=tries)
            return True

        async def task(context: JobContext, id: str) -> None:  # noqa: A002  # the name of the job's only argument
            job = context.job
            if is_given_up(job, job.attempts):
                return  # every worker that tried it was killed
            if job.worker_id is not None:
                self.workers.add(job.worker_id)
            if job.id is not None:
                self.running.add(job.id)
            try:
                await work(UUID(id))
            except ClaimLost:
                log.warning("job_fenced", task=job.task_name, id=id)
                raise
            except Exception as error:  # the worker loop: logged once, and tried again
                log.warning(
                    "job_failed", task=job.task_name, id=id, tries=job.attempts + 1, error=type(error).__name__, at=stack_frames(error)
                )
                if not is_given_up(job, job.attempts + 1):
                    raise
            finally:
                if job.id is not None:
                    self.running.discard(job.id)

        return task

    def orphans(self, doing: set[int]) -> list[int]:
        """Of the jobs that the database counts as running here, those that ran neither at this call nor at the call before."""
        idle = doing - self.running
        found = sorted(idle & self._suspects)
        self._suspects = idle
        return found
