"""Durable work on PostgreSQL: Procrastinate's jobs, deferred in the caller's transaction, and workers that can lose a fight.

What Procrastinate leaves to us: a killed worker's jobs are found and given to somebody else; a worker that was paused and wakes up does
not end a job that is no longer its own; the next job of a conversation starts when the one before it ends, not at the next poll; a worker
goes on after an outage of the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import procrastinate
import psycopg
import structlog
from procrastinate import exceptions, jobs, manager
from procrastinate.connector import BaseConnector
from procrastinate.job_context import JobContext
from procrastinate.worker import Worker

from hermes.ports.errors import ClaimLost, StoreUnavailable
from hermes.ports.job_queue import JobHandlers
from hermes.ports.transactions import Transaction
from hermes.stores.postgres.database import POSTGRES_ERRORS, Database, connection_of
from hermes.stores.postgres.queries import load_queries
from hermes.tasks import end_tasks, stack_frames, stop_if_cancelled

log = structlog.get_logger()

SQL = load_queries("job_queue")
TURNS, DELIVERIES, MEMORY = "turns", "deliveries", "memory"
MAX_WAIT_S = 30.0
STOP_REPEAT_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works. Seconds, so that tests can make them short."""

    concurrency: int = 32
    poll_s: float = 1.0
    """How late a delayed job may be noticed; new ones are announced."""
    heartbeat_s: float = 2.0
    stalled_after_s: float = 10.0
    sweep_s: float = 2.0
    drain_s: float = 30.0
    lost_after_s: float = 60.0
    """A waiting message without any job is given a new one after so long."""
    news_waits_s: Sequence[float] = (0.5, 2.0, 8.0)
    """Between the tries to write news into a history. Short, because turns wait behind it; what is given up goes along with the next."""
    memory_concurrency: int = 2
    """Messages that are learnt from at once. Few: each may ask a model, and none of them is urgent."""
    memory_waits_s: Sequence[float] = (2.0, 10.0, 60.0, 180.0)
    """Between the tries to learn from a message; after the last one it is given up."""


class PostgresJobQueue:
    """The port Work, and the workers behind it."""

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

    async def defer_news(self, tx: Transaction, conversation_id: UUID) -> None:
        # Under the lock of turns, and in their queue: what waits behind it must not wait for anything slower than a turn.
        lock, once = f"in:{conversation_id}", f"news:{conversation_id}"
        await self._defer_one(tx, conversation_id, "news", queue=TURNS, lock=lock, queueing_lock=once)

    async def defer_memory(self, tx: Transaction, turn_id: UUID, user_id: UUID) -> None:
        task = self._app.configure_task("memory", queue=MEMORY, lock=f"memory:{user_id}", connection=connection_of(tx))
        with translate_queue_errors():
            await task.defer_async(id=str(turn_id))

    async def _defer_one(self, tx: Transaction, conversation_id: UUID, task: str, *, queueing_lock: str, **options: Any) -> None:
        """Defer a job, unless one like it waits already."""
        if await (await connection_of(tx).execute(SQL["is_waiting"], {"queueing_lock": queueing_lock})).fetchone() is not None:
            return
        configured = self._app.configure_task(task, queueing_lock=queueing_lock, connection=connection_of(tx), **options)
        try:
            with translate_queue_errors():
                async with connection_of(tx).transaction():
                    await configured.defer_async(id=str(conversation_id))
        except exceptions.AlreadyEnqueued:
            return  # somebody else deferred it between the look and the insert

    async def waiting(self, tx: Transaction) -> dict[str, int]:
        """How many jobs wait, by queue."""
        return {TURNS: 0, DELIVERIES: 0, MEMORY: 0, **dict(await (await connection_of(tx).execute(SQL["waiting"])).fetchall())}

    async def run(self, hands: JobHandlers, options: WorkerOptions, sweeps: Callable[[], Awaitable[None]] | None = None) -> None:
        """Work until cancelled; then take no new job, and let those under way end for `drain_s`.

        `sweeps` is called now and then, beside the sweep of stalled jobs."""
        running_jobs = RunningJobs()
        app = new_app(self._app.connector)  # one for each run: a task's name can be given to one function only
        app.task(name="turn", queue=TURNS, retry=JobRetry(), pass_context=True)(running_jobs.track(hands.turn))
        app.task(name="delivery", queue=DELIVERIES, retry=JobRetry(), pass_context=True)(running_jobs.track(hands.delivery))
        for name, queue, work, waits_s in (
            ("news", TURNS, hands.news, options.news_waits_s),
            ("memory", MEMORY, hands.memory, options.memory_waits_s),
        ):
            task = running_jobs.track(work, max_tries=len(waits_s) + 1)
            app.task(name=name, queue=queue, retry=JobRetry(waits_s), pass_context=True)(task)
        async with self._beating(running_jobs, options), asyncio.TaskGroup() as group:
            group.create_task(self._serve(app, TURNS, options.concurrency, options))
            group.create_task(self._serve(app, DELIVERIES, options.concurrency, options))  # they mostly wait for platforms
            group.create_task(self._serve(app, MEMORY, options.memory_concurrency, options))
            group.create_task(self._sweep(running_jobs, options, sweeps))

    async def _serve(self, app: procrastinate.App, queue: str, concurrency: int, options: WorkerOptions) -> None:
        """Run one queue's worker. It ends when the database is away for long; then it begins again as a new one."""
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
                # Nothing that one look finds may end the looking: it is what brings everything else back.
                log.warning("sweep_failed", error=type(error).__name__)
            stop_if_cancelled()

    @asynccontextmanager
    async def _beating(self, running_jobs: RunningJobs, options: WorkerOptions) -> AsyncIterator[None]:
        """Give signs of life until the last job has ended. Procrastinate stops giving its own when it begins to drain, and a turn that
        takes longer than that would be given to another worker while it still runs here."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(options.heartbeat_s)
                with suppress(StoreUnavailable):
                    async with self._database.begin() as tx:
                        await connection_of(tx).execute(SQL["beat"], {"workers": sorted(running_jobs.workers)})
                stop_if_cancelled()

        beating = asyncio.create_task(beat(), name="work beat")
        try:
            yield
        finally:
            await end_tasks(beating)

    async def sweep(self, running_jobs: RunningJobs, options: WorkerOptions) -> None:
        """Give the jobs of dead workers to somebody else, and a job to every message that has none."""
        async with self._database.begin() as tx:
            doing = await (await connection_of(tx).execute(SQL["doing"], {"workers": sorted(running_jobs.workers)})).fetchall()
            orphans = running_jobs.orphans({row[0] for row in doing})
            wanted = {"stalled_after_s": options.stalled_after_s, "orphans": orphans}
            freed = [row[0] for row in await (await connection_of(tx).execute(SQL["sweep"], wanted)).fetchall()]
        async with self._database.begin() as tx:
            lost = await (await connection_of(tx).execute(SQL["lost_turns"], {"older_than_s": options.lost_after_s})).fetchall()
            for turn_id, conversation_id in lost:
                await self.defer_turn(tx, turn_id, conversation_id)
        if freed:
            log.warning("stalled_jobs_freed", jobs=len(freed), orphans=len(orphans))
        if lost:
            log.warning("lost_turns_deferred", turns=len(lost))


@asynccontextmanager
async def open_job_queue(database: Database) -> AsyncIterator[PostgresJobQueue]:
    """Hold the job queue of a database."""
    app = new_app(procrastinate.PsycopgConnector())
    async with app.open_async(database.pool):
        yield PostgresJobQueue(database, app)


@contextmanager
def translate_queue_errors() -> Iterator[None]:
    """Attribute what the queue says of a lost connection to the store."""
    try:
        yield
    except exceptions.AlreadyEnqueued:
        raise
    except exceptions.ConnectorException as error:
        raise StoreUnavailable(f"PostgreSQL cannot be used: {type(error.__cause__ or error).__name__}") from error


async def run_until_cancelled(worker: Worker) -> None:
    """Run a worker until it ends by itself, or the caller is cancelled; then until it has drained.

    It is told to stop and not cancelled: while it begins, the pool of connections may lose a cancellation, and it would work for ever."""
    running = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]  # procrastinate leaves it untyped
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            worker.stop()  # type: ignore[no-untyped-call]  # and again: its first step forgets what it was told before
            await asyncio.wait([running], timeout=STOP_REPEAT_S)
        if not running.cancelled():
            running.exception()  # of no use any more, and asyncio would report it as never seen
        raise
    finally:
        running.cancel()


def new_app(connector: BaseConnector) -> procrastinate.App:
    app = procrastinate.App(connector=connector)
    app.job_manager = OwnedJobManager(connector)
    return app


class OwnedJobManager(manager.JobManager):
    """Ends and retries jobs only while they are this worker's own."""

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:  # noqa: ARG002, FBT001  # its signature
        await self._change(job, "finish" if delete_job else "give_up")

    async def retry_job(
        self,
        job: jobs.Job,
        retry_at: datetime | None = None,
        priority: int | None = None,  # noqa: ARG002  # Procrastinate's signature; our jobs keep what they have
        queue: str | None = None,  # noqa: ARG002
        lock: str | None = None,  # noqa: ARG002
    ) -> None:
        # As a time to wait, because the queue compares with the database's clock, and this one may be another.
        wait_s = (retry_at - datetime.now(UTC)).total_seconds() if retry_at else 0.0
        await self._change(job, "retry", wait_s=max(0.0, wait_s))

    async def _change(self, job: jobs.Job, query: str, **values: Any) -> None:
        rows = await self.connector.execute_query_all_async(query=SQL[query].decode(), id=job.id, worker_id=job.worker_id, **values)
        if not rows:
            log.warning("job_was_taken_over", job_id=job.id, task=job.task_name)


class JobRetry(procrastinate.BaseRetryStrategy):
    """Every failure is tried again: a turn counts its own attempts, and ends with an apology. Until then the same job keeps its place.

    With `waits_s` the pauses are these; when it is enough, the task says."""

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
    """What this process is working on, to tell its orphans: jobs that count as under way although their end could not be written down."""

    running: set[int] = field(default_factory=set)
    workers: set[int] = field(default_factory=set)
    _suspects: set[int] = field(default_factory=set)

    def track(
        self, work: Callable[[UUID], Awaitable[None]], *, max_tries: int | None = None
    ) -> Callable[[JobContext, str], Awaitable[None]]:
        """Make a task of it that the shift knows about. After `max_tries` it is given up: said once, and done with."""

        def is_given_up(job: jobs.Job, tries: int) -> bool:
            if max_tries is None or tries < max_tries:
                return False
            log.warning("job_given_up", task=job.task_name, id=job.task_kwargs["id"], tries=tries)
            return True

        async def task(context: JobContext, id: str) -> None:  # noqa: A002  # the name of the job's one argument
            job = context.job
            if is_given_up(job, job.attempts):
                return  # it never came to an end: whoever tried was killed
            if job.worker_id is not None:
                self.workers.add(job.worker_id)
            if job.id is not None:
                self.running.add(job.id)
            try:
                await work(UUID(id))
            except ClaimLost:
                log.warning("job_fenced", task=job.task_name, id=id)
                raise
            except Exception as error:  # the worker loop: noted once, and tried again
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
        """Of the jobs that count as ours, those that were not under way at this look nor at the one before."""
        idle = doing - self.running
        found = sorted(idle & self._suspects)
        self._suspects = idle
        return found
