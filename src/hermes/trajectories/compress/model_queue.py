"""Ask a model for the summaries of many rows at once, and write the rows in their order. A failing or slow model loses no row.

If a row takes too long, or the model raises an unexpected error, the row is summarised without a model; if that fails too, it is
written as it was. Only a spent budget stops the run; a later call resumes it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from hermes.trajectories.compress.chunks import Chunk
from hermes.trajectories.compress.extractive_summary import ExtractiveSummariser
from hermes.trajectories.compress.model_summary import ModelSummariser
from hermes.trajectories.compress.paid_summaries import PaidSummaries, SummaryBudgetSpent
from hermes.trajectories.compress.summariser import Summary, SummaryRequest
from hermes.trajectories.compress.timeout import time_limit
from hermes.trajectories.compress.worker import ChunkOutcome, CompressWork, RawRow, RowOutcome, RowStatus, compress_row

MAX_WAITING_CHUNKS, MAX_WAITING_ROWS = 64, 1_000
"""So many chunks and rows are held in memory while the first of them waits for its summary."""

RowAnswer = tuple[RowOutcome, ChunkOutcome]


@dataclass(slots=True)
class _WaitingChunk:
    """A chunk, and the tasks that ask for its rows, by the index of the row's outcome."""

    chunk: Chunk
    done: ChunkOutcome
    tasks: dict[int, asyncio.Task[RowAnswer]]

    def collect(self) -> ChunkOutcome:
        """Return the outcomes of all rows; raise what a task raised."""
        for place, task in self.tasks.items():
            outcome, numbers = task.result()
            self.done.outcomes[place] = replace(outcome, lead=self.done.outcomes[place].lead)
            self.done.totals.merge(numbers.totals)
            self.done.problems += numbers.problems
        return self.done


class ModelQueue:
    """Asks a model for the summaries of a run."""

    def __init__(
        self, work: CompressWork, paid_summaries: PaidSummaries, *, at_once: int | None = None, on_row: Callable[[], None] = lambda: None
    ) -> None:
        """`at_once`: how many requests the model takes at a time. A row that waits inside the model uses up its own time limit."""
        self._work, self._paid_summaries, self._on_row = work, paid_summaries, on_row
        max_requests = work.settings.processing.max_concurrent_requests
        self._slots = asyncio.Semaphore(max_requests if at_once is None else min(max_requests, at_once))
        self._running: set[asyncio.Task[RowAnswer]] = set()

    async def ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]], write: Callable[[Chunk, ChunkOutcome], None]) -> None:
        """Ask for all waiting rows, and write each chunk when it and all chunks before it are complete.

        Raises SummaryBudgetSpent when the budget is used up; by then every paid answer is on disk."""
        try:
            await self._ask_all(results, write)
        except SummaryBudgetSpent:
            await asyncio.gather(*self._running, return_exceptions=True)  # their answers are being paid for
            raise
        finally:
            for task in self._running:
                task.cancel()

    async def _ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]], write: Callable[[Chunk, ChunkOutcome], None]) -> None:
        waiting: deque[_WaitingChunk] = deque()
        is_read = False
        while waiting or not is_read:
            has_room = len(self._running) < MAX_WAITING_ROWS and len(waiting) < MAX_WAITING_CHUNKS
            if not is_read and not self._paid_summaries.stop_reason and has_room:
                found = await _next_result(results)
                is_read = found is None
                if found is not None:
                    waiting.append(self._begin(*found))
            elif self._running:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            while waiting and all(task.done() for task in waiting[0].tasks.values()):
                first = waiting.popleft()
                write(first.chunk, first.collect())

    def _begin(self, chunk: Chunk, done: ChunkOutcome) -> _WaitingChunk:
        waiting = _WaitingChunk(chunk, done, {})
        for place, outcome in enumerate(done.outcomes):
            if outcome.status is RowStatus.WAITING:
                raw = RawRow(outcome.line, chunk.name, outcome.number)
                waiting.tasks[place] = task = asyncio.create_task(self._ask(raw, chunk.file))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        return waiting

    async def _ask(self, raw: RawRow, file: int) -> RowAnswer:
        processing, counter = self._work.settings.processing, self._work.counter()
        async with self._slots:
            done = ChunkOutcome()
            outcome, reason = RowOutcome(RowStatus.WRITTEN, raw.line), ""
            try:
                # The limit starts when the row has its slot, and PaidSummaries pauses it: a row is not charged for waiting for others.
                async with time_limit(processing.per_trajectory_timeout):
                    summariser = ModelSummariser(self._paid_summaries.model_for(file, raw.number), self._work.settings)
                    outcome = await compress_row(raw, self._work, counter, done, summariser=summariser)
                reason = done.problems[-1] if done.totals.failed else ""
            except SummaryBudgetSpent:
                raise
            except TimeoutError:
                reason = f"nothing in {processing.per_trajectory_timeout:g} s"
            except Exception as error:  # noqa: BLE001  # a model may be any code: the row must survive every error
                reason = f"{type(error).__name__}: {error}"
            if reason:
                done = ChunkOutcome()
                outcome = await compress_row(raw, self._work, counter, done, summariser=FallbackSummariser(reason))
            self._on_row()
            return outcome, done


async def _next_result(results: Iterator[tuple[Chunk, ChunkOutcome]]) -> tuple[Chunk, ChunkOutcome] | None:
    """Return the next result, which a thread fetches; None at the end."""
    fetching = asyncio.create_task(asyncio.to_thread(next, results, None))
    try:
        return await asyncio.shield(fetching)
    except asyncio.CancelledError:
        await asyncio.wait([fetching])  # the caller closes the results next, and a running generator cannot be closed
        raise


class FallbackSummariser:
    """The extractive summariser in place of a model; the summary says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def summarise(self, request: SummaryRequest) -> Summary:
        summary = await ExtractiveSummariser().summarise(request)
        return replace(summary, how=f"extractive (model failed: {self._reason})", errors=1)
