"""Compress files: this process reads chunks and writes them in their order; the workers of the engine compress them.

Memory does not grow with the input. If the process is killed at any point, the same call resumes the run and pays for nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from hermes.trajectories.compress.analysis import Analysis
from hermes.trajectories.compress.chunks import Chunk, InputPosition, read_chunks
from hermes.trajectories.compress.model_queue import ModelQueue
from hermes.trajectories.compress.output import OutputPaths
from hermes.trajectories.compress.paid_summaries import PaidSummaries
from hermes.trajectories.compress.run import CompressJob, CompressRun, open_run
from hermes.trajectories.compress.worker import ChunkOutcome, compress_chunk
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.sampling_model import SamplingModel


@dataclass(frozen=True, slots=True)
class CompressProgress:
    """How far a run came, for a progress display."""

    bytes_read: int = 0
    trajectories: int = 0
    tokens_saved: int = 0
    micro_usd: int = 0


@dataclass(frozen=True, slots=True)
class CompressReport:
    """What a run did."""

    metrics: Mapping[str, Any]
    problems: list[str]
    """The first ones; the metrics say how many there are."""
    is_resumed: bool
    places: OutputPaths

    @property
    def is_clean(self) -> bool:
        """Whether every row could be read, and every row that was too long could be compressed."""
        summary = self.metrics["summary"]
        return not summary["trajectories_rejected"] and not summary["trajectories_failed"]


def compress_files(
    job: CompressJob, engine: ChunkEngine, *, restarts: bool = False, on_step: Callable[[CompressProgress], None] = lambda _: None
) -> CompressReport:
    """Compress without a model; see `compress_files_with_model`."""
    with open_run(job, restarts=restarts) as run:
        if run.found.metrics is None:
            with closing(
                engine.map(partial(compress_chunk, work=job.work), read_chunks(job.inputs, run.place, job.chunk_bytes))
            ) as results:
                for chunk, done in results:
                    run.write(chunk, done)
                    on_step(_run_progress(run, job))
        return _finish_run(run, 0)


async def compress_files_with_model(
    model: SamplingModel,
    job: CompressJob,
    engine: ChunkEngine,
    *,
    budget_micro_usd: int | None = None,
    at_once: int | None = None,
    restarts: bool = False,
    on_step: Callable[[CompressProgress], None] = lambda _: None,
) -> CompressReport:
    """Compress with a model's summaries; the model takes at most `at_once` requests at a time.

    The output appears whole or not at all. The same call resumes an interrupted run. Raises TrajectorySettingsError if the output
    exists, or if an unfinished run has another input or other settings. Raises SummaryBudgetSpent when the budget is used up; the same
    call with a larger budget resumes the run."""
    with open_run(job, restarts=restarts) as run:
        paid_summaries = PaidSummaries(model, run.checkpoint_file, run.found, budget_micro_usd)

        def report_progress() -> None:
            on_step(_run_progress(run, job, paid_summaries.micro_usd))

        def write(chunk: Chunk, done: ChunkOutcome) -> None:
            run.write(chunk, done)
            report_progress()

        if run.found.metrics is None:
            # Smaller chunks: the rows of a few chunks keep a model busy.
            chunks = read_chunks(job.inputs, run.place, job.chunk_bytes // 8)
            with closing(engine.map(partial(compress_chunk, work=job.work), chunks)) as results:
                try:
                    await ModelQueue(job.work, paid_summaries, at_once=at_once, on_row=report_progress).ask_all(results, write)
                finally:
                    run.save_checkpoint()
        return _finish_run(run, paid_summaries.micro_usd)


def _finish_run(run: CompressRun, micro_usd: int) -> CompressReport:
    if run.found.metrics is not None:  # the process was killed between the last row and the last file
        run.publish(run.found.metrics)
        return CompressReport(run.found.metrics, run.problems, run.is_resumed, run.job.places)
    return CompressReport(run.finish(micro_usd), run.problems, run.is_resumed, run.job.places)


def _run_progress(run: CompressRun, job: CompressJob, micro_usd: int = 0) -> CompressProgress:
    return CompressProgress(_bytes_read(run.place, job), run.totals.trajectories, run.totals.tokens_saved, micro_usd)


def _bytes_read(place: InputPosition, job: CompressJob) -> int:
    """Return how many bytes of the input the run has read."""
    return sum(each.path.stat().st_size for each in job.inputs[: place.file]) + place.offset


def analysis_progress(found: Analysis, job: CompressJob) -> CompressProgress:
    """Return how far an analysis came."""
    return CompressProgress(_bytes_read(found.end, job), found.totals.trajectories, found.totals.tokens_saved)
