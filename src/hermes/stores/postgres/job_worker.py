"""A worker of one queue of jobs, on Procrastinate's tables.

It fetches as many jobs at once as it can run, and looks again when PostgreSQL announces a job. Procrastinate's own worker fetches one job
in each statement, asks once more to learn that there is none, and sleeps until its next poll if a job comes in between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from procrastinate import exceptions
from procrastinate.jobs import Notification
from procrastinate.manager import JobManager

from hermes.event_log import get_logger
from hermes.ports.errors import ClaimLost, StoreUnavailable
from hermes.stores.postgres.database import POSTGRES_ERRORS, Database, execute, fetch_rows
from hermes.stores.postgres.queries import load_queries
from hermes.tasks import end_tasks, stack_frames, stop_if_cancelled

log = get_logger(__name__)

SQL = load_queries("job_queue")
WRITE_ERRORS = (StoreUnavailable, psycopg.Error)
LOST_DATABASE = (exceptions.ConnectorException, *POSTGRES_ERRORS, *WRITE_ERRORS)

MAX_JOBS_AT_ONCE = 8
"""Jobs in one fetch: the first one waits until the last one is begun."""
UNKNOWN_WAIT_S = 10.0
"""The pause of a job that only a newer Hermes knows: both versions may run during an update."""


class Job(NamedTuple):
    """A job that was fetched."""

    id: int
    task_name: str
    subject_id: UUID
    """The only argument of the job: the id of a turn or a conversation."""
    attempts: int
    """How often it was tried before."""
    worker_id: int
    run: Callable[[], Awaitable[bool | None]] | None = None
    """Runs what was begun when the job was fetched; None: the job's task runs all of it."""


job_id = attrgetter("id")
StartJobs = Callable[[int, int], Awaitable[Sequence[Job]]]
"""Fetches jobs for a worker, at most so many, and begins their work in the same transaction."""


class JobTask(NamedTuple):
    """What a worker does for the jobs of one name."""

    run: Callable[[UUID], Awaitable[bool | None]]
    """Returns True if its last transaction has ended the job as well."""
    wait_s: Callable[[int], float]
    """The pause before a job is tried again that was tried so often before and failed once more."""
    max_tries: int | None = None
    """The worker gives a job up after so many tries; None: the task itself decides when."""

    def is_given_up(self, job: Job, tries: int) -> bool:
        if self.max_tries is None or tries < self.max_tries:
            return False
        log.warning("job_given_up", task=job.task_name, id=str(job.subject_id), tries=tries)
        return True


@dataclass(slots=True)
class RunningJobs:
    """The jobs that this process runs. By them it finds its orphans: jobs that the database still counts as running, because their end
    could not be written."""

    running: set[int] = field(default_factory=set)
    workers: set[int] = field(default_factory=set)
    _suspects: set[int] = field(default_factory=set)

    def orphans(self, doing: set[int]) -> list[int]:
        """Of the jobs that the database counts as running here, those that ran neither at this call nor at the call before."""
        idle = doing - self.running
        found = sorted(idle & self._suspects)
        self._suspects = idle
        return found


@dataclass(slots=True, kw_only=True)
class JobWorker:
    """Runs the jobs of one queue."""

    database: Database
    manager: JobManager
    queue: str
    tasks: Mapping[str, JobTask]
    running_jobs: RunningJobs
    concurrency: int
    poll_s: float
    drain_s: float
    stalled_after_s: float
    starts: StartJobs | None = None
    """Fetches jobs and begins their work with it; None: they are only fetched."""
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Run jobs until cancelled; then take no new job, give the running ones `drain_s` to end, and cancel those that have not.

        Raises one of LOST_DATABASE if the database goes away for longer than a statement waits."""
        await self.manager.prune_stalled_workers(self.stalled_after_s)
        worker_id = await self.manager.register_worker()
        self.running_jobs.workers.add(worker_id)
        listening = asyncio.create_task(self.manager.listen_for_jobs(on_notification=self._hear, queues=[self.queue]), name="job listener")
        listening.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                stop_if_cancelled()
                if listening.done():
                    listening.result()  # it ends only by an error
                # Cleared before the look: a job that is announced after it wakes this worker again.
                self._wake.clear()
                limit = min(self.concurrency - len(self._running), MAX_JOBS_AT_ONCE)
                if limit and await self._start_jobs(worker_id, limit) == limit:
                    continue
                await self._sleep()
        finally:
            await end_tasks(listening)
            await self._drain()
            await self.manager.unregister_worker(worker_id)

    async def _hear(self, *, channel: str, notification: Notification) -> None:  # noqa: ARG002  # Procrastinate's signature
        self._wake.set()

    async def _sleep(self) -> None:
        try:
            async with asyncio.timeout(self.poll_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _start_jobs(self, worker_id: int, limit: int) -> int:
        """Fetch up to `limit` jobs and start them; return how many. If the caller is cancelled meanwhile, the fetched jobs start all the
        same: they belong to this worker now."""
        fetching = asyncio.create_task(self._fetch(worker_id, limit))
        try:
            await asyncio.shield(fetching)
        finally:
            jobs = await fetching
            for job in jobs:
                self._start(job)
        return len(jobs)

    async def _fetch(self, worker_id: int, limit: int) -> list[Job]:
        if self.starts is not None:
            try:
                return sorted(await self.starts(worker_id, limit), key=job_id)
            except WRITE_ERRORS as error:
                # Fetched alone, each waits for its own locks and meets its own error. If the database is away, that raises too.
                log.info("jobs_not_begun", queue=self.queue, error=type(error.__cause__ or error).__name__)
        async with self.database.once() as tx:
            found = await fetch_rows(tx, Job, SQL["fetch"], {"queue": self.queue, "worker_id": worker_id, "limit": limit})
        return sorted(found, key=job_id)

    def _start(self, job: Job) -> None:
        self.running_jobs.running.add(job.id)
        running = asyncio.create_task(self._run(job), name=f"job {job.task_name}")
        self._running.add(running)
        running.add_done_callback(self._note_end)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if len(self._running) >= self.concurrency:
            self._wake.set()  # others may wait because this worker was full
        self._running.discard(task)

    async def _run(self, job: Job) -> None:
        try:
            await self._write_end(job, await self._try(job))
        except WRITE_ERRORS as error:
            # The job stays marked as running. The next sweeps find it as an orphan, and free it.
            log.warning("job_end_not_written", task=job.task_name, job_id=job.id, error=type(error).__name__)
        finally:
            self.running_jobs.running.discard(job.id)

    async def _try(self, job: Job) -> tuple[str, dict[str, Any]] | None:
        """Run a job; return the query that writes its end, with its values; None if its task has ended it."""
        task = self.tasks.get(job.task_name)
        if task is None:
            log.warning("job_unknown", task=job.task_name)
            return "retry", {"wait_s": UNKNOWN_WAIT_S}
        if task.is_given_up(job, job.attempts):
            return "finish", {}  # every worker that tried it was killed
        try:
            return None if await (task.run(job.subject_id) if job.run is None else job.run()) else ("finish", {})
        except ClaimLost:
            log.warning("job_fenced", task=job.task_name, id=str(job.subject_id))
        except asyncio.CancelledError:
            return "retry", {"wait_s": 0.0}  # its time to drain is over: another worker takes it at once
        except Exception as error:  # noqa: BLE001  # the worker loop: logged once, and tried again
            log.warning(
                "job_failed",
                task=job.task_name,
                id=str(job.subject_id),
                tries=job.attempts + 1,
                error=type(error).__name__,
                at=stack_frames(error),
            )
            if task.is_given_up(job, job.attempts + 1):
                return "finish", {}
        # As a time to wait, because the queue uses the database's clock, which may differ from this machine's.
        return "retry", {"wait_s": task.wait_s(job.attempts)}

    async def _write_end(self, job: Job, end: tuple[str, dict[str, Any]] | None) -> None:
        if end is not None:
            await end_job(self.database, job, end[0], **end[1])

    async def _drain(self) -> None:
        if not self._running:
            return
        try:
            await asyncio.wait(self._running, timeout=self.drain_s)
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)


async def end_job(database: Database, job: Job, query: str, **values: Any) -> None:
    """End a job, or put it back, only while it belongs to this worker."""
    async with database.once() as tx:
        if not await execute(tx, SQL[query], {"id": job.id, "worker_id": job.worker_id, **values}):
            log.warning("job_was_taken_over", job_id=job.id, task=job.task_name)
