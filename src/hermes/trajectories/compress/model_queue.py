"""Ask a model for the summaries of many rows at once, within a budget, and write the rows in their order.

A failing or slow model loses no row: if a row takes too long, or the model raises an unexpected error, the row is summarised without a
model; if that fails too, it is written as it was. Each answer is paid for once: it is on disk before the run uses it, and a resumed run
gets the answers that it paid for again, in the order in which the model gave them. Only a spent budget stops the run; a later call resumes
it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from hermes.graph.message import thaw
from hermes.trajectories.compress.chunks import Chunk
from hermes.trajectories.compress.model_summary import ModelSummariser
from hermes.trajectories.compress.run import CompressRun
from hermes.trajectories.compress.summariser import ExtractiveSummariser, Summary, SummaryRequest, pause_timeouts, time_limit
from hermes.trajectories.compress.worker import ChunkOutcome, RawRow, RowOutcome, RowStatus, compress_row
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.sampling_model import ModelFailed, SampledMessage, SampleRequest, SamplingModel


async def compress_files_with_model(
    model: SamplingModel,
    run: CompressRun,
    engine: ChunkEngine,
    *,
    budget_micro_usd: int | None = None,
    at_once: int | None = None,
    restarts: bool = False,
    on_step: Callable[[CompressRun], None] = lambda _: None,
) -> None:
    """Compress all files of a run with a model's summaries, as `compress_files` does; the model takes at most `at_once` requests at a time.

    Raises SummaryBudgetSpent when the budget is used up; the same call with a larger budget resumes the run."""
    with run.open(restarts=restarts):
        if not run.metrics:
            paid_summaries = PaidSummaries(model, run, budget_micro_usd)
            # Smaller chunks: the rows of a few chunks keep a model busy.
            with closing(run.map_chunks(engine, run.chunk_bytes // 8)) as results:
                try:
                    await ModelQueue(run, paid_summaries, at_once=at_once, on_step=on_step).ask_all(results)
                finally:
                    run.save_checkpoint()
        run.finish()


class SummaryBudgetSpent(Exception):
    """The budget does not allow another answer. No trajectory failed: the run stops, and a later call with a larger budget resumes it."""


class PaidSummaries:
    """Asks a model for all rows of a run, and records what each answer cost."""

    def __init__(self, model: SamplingModel, run: CompressRun, budget_micro_usd: int | None = None) -> None:
        self._model, self._run, self._budget = model, run, budget_micro_usd
        self.stop_reason = ""
        """Why no more requests are sent; empty as long as the budget allows them."""
        self._under_way, self._has_answered = 0, run.highest_micro_usd > 0
        self._changed = asyncio.Condition()

    def model_for(self, file: int, row: int) -> SamplingModel:
        """Return the model as one row's summariser uses it."""
        return _RowModel(self, file, row, self._model.name)

    async def sample(self, request: SampleRequest, file: int, row: int) -> SampledMessage:
        """Return an answer that is paid now, or was paid before the run was interrupted.

        Raises ModelFailed, and SummaryBudgetSpent when the budget does not allow another answer. Whether it does may be known only when
        the answers under way have come: that wait counts against no time limit."""
        key = _request_key(request, file, row)
        if self._run.paid.get(key):
            return self._run.paid[key].pop(0)
        async with pause_timeouts(), self._changed:
            await self._changed.wait_for(lambda: self.stop_reason or self._can_pay() or not self._under_way)
            if not self.stop_reason and not self._can_pay():
                self.stop_reason = f"the budget of {(self._budget or 0) / 1_000_000:g} USD is used up"
            if self.stop_reason:
                raise SummaryBudgetSpent(self.stop_reason)
            self._under_way += 1
        try:
            return await self._ask(request, key, file, row)
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def _can_pay(self) -> bool:
        """Whether one more answer fits the budget, beside those under way. Each may cost as much as the most expensive one so far.

        The cost of the first answer is not known, so no other request is sent with it."""
        if self._budget is None:
            return True
        if not self._has_answered:
            return not self._under_way and self._run.micro_usd < self._budget
        return self._run.micro_usd + (self._under_way + 1) * self._run.highest_micro_usd <= self._budget

    async def _ask(self, request: SampleRequest, key: str, file: int, row: int) -> SampledMessage:
        try:
            sampled = await self._model.sample(request)
        except ModelFailed as error:
            if error.is_spent:
                self.stop_reason = str(error)
                raise SummaryBudgetSpent(self.stop_reason) from None
            raise
        self._has_answered = True
        self._run.record_payment(key, file, row, sampled, {name: thaw(value) for name, value in sampled.message.items()})
        return sampled


class _RowModel:
    """The model as one row's summariser uses it."""

    def __init__(self, paid_summaries: PaidSummaries, file: int, row: int, name: str) -> None:
        self._paid_summaries, self._file, self._row = paid_summaries, file, row
        self.name = name

    async def sample(self, request: SampleRequest) -> SampledMessage:
        return await self._paid_summaries.sample(request, self._file, self._row)


def _request_key(request: SampleRequest, file: int, row: int) -> str:
    """Return a key for a request: the row, and a digest of the sample id and of all that is sent."""
    fields: Mapping[str, Any] = {
        "sample_id": request.sample_id,
        "messages": [dict(message) for message in request.messages],
        "tools": list(request.tools),
        "sampling": dict(request.sampling),
        "max_tokens": request.max_tokens,
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), default=repr)
    return f"{file}:{row}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


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
        self, run: CompressRun, paid_summaries: PaidSummaries, *, at_once: int | None, on_step: Callable[[CompressRun], None]
    ) -> None:
        """`at_once`: how many requests the model takes at a time. A row that waits inside the model uses up its own time limit."""
        self._run, self._work, self._paid_summaries, self._on_step = run, run.work, paid_summaries, on_step
        max_requests = run.work.settings.processing.max_concurrent_requests
        self._slots = asyncio.Semaphore(max_requests if at_once is None else min(max_requests, at_once))
        self._running: set[asyncio.Task[RowAnswer]] = set()

    async def ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]]) -> None:
        """Ask for all waiting rows, and write each chunk when it and all chunks before it are complete.

        Raises SummaryBudgetSpent when the budget is used up; by then every paid answer is on disk."""
        try:
            await self._ask_all(results)
        except SummaryBudgetSpent:
            await asyncio.gather(*self._running, return_exceptions=True)  # their answers are being paid for
            raise
        finally:
            for task in self._running:
                task.cancel()

    async def _ask_all(self, results: Iterator[tuple[Chunk, ChunkOutcome]]) -> None:
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
                self._run.write(first.chunk, first.collect())
                self._on_step(self._run)

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
            self._on_step(self._run)
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
