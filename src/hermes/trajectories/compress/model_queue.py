"""Rows that wait for a model: asked for many at once, written in their order, never lost to a model that fails or is slow.

A row that takes too long, or whose model fails in a way that nobody foresaw, is summarised without a model; if even that
fails, it is written as it was. Only when there is no money left does everything stop, to go on another day."""

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
"""So many are held at once, when the first of them takes long."""

RowAnswer = tuple[RowOutcome, ChunkOutcome]


@dataclass(slots=True)
class _WaitingChunk:
    """A chunk, and the rows of it that are being asked for, by their place among its outcomes."""

    chunk: Chunk
    done: ChunkOutcome
    asked: dict[int, asyncio.Task[RowAnswer]]

    def completed(self) -> ChunkOutcome:
        """Return what became of all rows; raise what asking for one of them raised."""
        for place, task in self.asked.items():
            outcome, numbers = task.result()
            self.done.outcomes[place] = replace(outcome, lead=self.done.outcomes[place].lead)
            self.done.totals.merge(numbers.totals)
            self.done.problems += numbers.problems
        return self.done


class ModelQueue:
    """Asks for the summaries of a run."""

    def __init__(
        self, work: CompressWork, paid_summaries: PaidSummaries, *, at_once: int | None = None, on_row: Callable[[], None] = lambda: None
    ) -> None:
        """`at_once`: the model takes no more. Whoever waited for it there would wait on their own clock."""
        self._work, self._paid_summaries, self._on_row = work, paid_summaries, on_row
        most = work.settings.processing.max_concurrent_requests
        self._slots = asyncio.Semaphore(most if at_once is None else min(most, at_once))
        self._running: set[asyncio.Task[RowAnswer]] = set()

    async def ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]], write: Callable[[Chunk, ChunkOutcome], None]) -> None:
        """Ask for all rows that wait, and write chunk after chunk as soon as it and those before it are complete.

        Raises Spent when there is no money left; by then everything that was paid for is on disk."""
        try:
            await self._ask_all(results, write)
        except SummaryBudgetSpent:
            await asyncio.gather(*self._running, return_exceptions=True)  # these are paid for
            raise
        finally:
            for task in self._running:
                task.cancel()

    async def _ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]], write: Callable[[Chunk, ChunkOutcome], None]) -> None:
        begun: deque[_WaitingChunk] = deque()
        is_all = False
        while begun or not is_all:
            if not is_all and not self._paid_summaries.spent and len(self._running) < MAX_WAITING_ROWS and len(begun) < MAX_WAITING_CHUNKS:
                found = await _next_result(results)
                is_all = found is None
                if found is not None:
                    begun.append(self._begin(*found))
            elif self._running:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            while begun and all(task.done() for task in begun[0].asked.values()):
                first = begun.popleft()
                write(first.chunk, first.completed())

    def _begin(self, chunk: Chunk, done: ChunkOutcome) -> _WaitingChunk:
        begun = _WaitingChunk(chunk, done, {})
        for place, outcome in enumerate(done.outcomes):
            if outcome.status is RowStatus.WAITING:
                raw = RawRow(outcome.line, chunk.name, outcome.number)
                begun.asked[place] = task = asyncio.create_task(self._ask(raw, chunk.file))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        return begun

    async def _ask(self, raw: RawRow, file: int) -> RowAnswer:
        processing, counter = self._work.settings.processing, self._work.counter()
        async with self._slots:
            done = ChunkOutcome()
            outcome, reason = RowOutcome(RowStatus.WRITTEN, raw.line), ""
            try:
                # The clock starts when the row has its slot, and the till stops it: waiting for others is not the row's fault.
                async with time_limit(processing.per_trajectory_timeout):
                    summariser = ModelSummariser(self._paid_summaries.model_for(file, raw.number), self._work.settings)
                    outcome = await compress_row(raw, self._work, counter, done, summariser=summariser)
                reason = done.problems[-1] if done.totals.failed else ""
            except SummaryBudgetSpent:
                raise
            except TimeoutError:
                reason = f"nothing in {processing.per_trajectory_timeout:g} s"
            except Exception as error:  # noqa: BLE001  # a model is somebody's program: whatever it raises, the row is not lost
                reason = f"{type(error).__name__}: {error}"
            if reason:
                done = ChunkOutcome()
                outcome = await compress_row(raw, self._work, counter, done, summariser=FallbackSummariser(reason))
            self._on_row()
            return outcome, done


async def _next_result(results: Iterator[tuple[Chunk, ChunkOutcome]]) -> tuple[Chunk, ChunkOutcome] | None:
    """Return what comes next, worked on in a thread; None at the end."""
    fetching = asyncio.create_task(asyncio.to_thread(next, results, None))
    try:
        return await asyncio.shield(fetching)
    except asyncio.CancelledError:
        await asyncio.wait([fetching])  # whoever stops closes the results, and a generator that is being worked in cannot be closed
        raise


class FallbackSummariser:
    """The extractive summariser, in the place of a model; says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def summarise(self, piece: SummaryRequest) -> Summary:
        summary = await ExtractiveSummariser().summarise(piece)
        return replace(summary, how=f"extractive (model failed: {self._reason})", errors=1)
