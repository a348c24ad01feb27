"""`--dry-run`: count and compress every row, write nothing, and ask no model.

A stand-in for the model counts its prompts and answers with as many words as were asked for. So requests and prompts are those of the
real run; only the length of the real answers is not known."""

from __future__ import annotations

import math
from collections import Counter as Histogram
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hermes.graph import CallRecord
from hermes.trajectories.compress.chunks import INPUT_START, Chunk, InputPosition, read_chunks
from hermes.trajectories.compress.metrics import Totals
from hermes.trajectories.compress.model_summary import ModelSummariser
from hermes.trajectories.compress.run import MAX_PROBLEMS, CompressRun
from hermes.trajectories.compress.summariser import ExtractiveSummariser, Summariser, Summary, SummaryRequest
from hermes.trajectories.compress.token_counter import TokenCounter
from hermes.trajectories.compress.worker import ChunkOutcome, CompressWork, RawRow, compress_row, run_uninterrupted
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.sampling_model import SampledMessage, SampleRequest

BUCKETS_PER_DOUBLING = 64
"""Buckets for each doubling of a length: quantiles are exact to about 1 percent, for any number of lengths."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(slots=True)
class TokenLengths:
    """How long trajectories are. Needs the same memory for ten of them and for ten million."""

    counts: Histogram[int] = field(default_factory=Histogram)
    least: int = 0
    most: int = 0
    total: int = 0
    number: int = 0

    def add(self, length: int) -> None:
        self.least = min(self.least, length) if self.number else length
        self.most = max(self.most, length)
        self.counts[int(math.log2(max(length, 1)) * BUCKETS_PER_DOUBLING)] += 1
        self.total += length
        self.number += 1

    def merge(self, other: TokenLengths) -> None:
        if other.number:
            self.least = min(self.least, other.least) if self.number else other.least
            self.most = max(self.most, other.most)
            self.counts += other.counts
            self.total += other.total
            self.number += other.number

    def quantile(self, share: float) -> int:
        """Return about the length that this share of the trajectories does not exceed."""
        left = share * self.number
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return min(self.most, max(self.least, round(2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING))))
        return self.most

    def doublings(self) -> list[tuple[int, int, int]]:
        """Return how many lengths lie between two powers of two: (from, to, number)."""
        found: Histogram[int] = Histogram()
        for bucket, number in self.counts.items():
            found[bucket // BUCKETS_PER_DOUBLING] += number
        return [(1 << power, 1 << (power + 1), found[power]) for power in range(min(found), max(found) + 1)] if found else []

    def to_dict(self) -> dict[str, Any]:
        return {
            "total": self.total,
            "mean": round(self.total / max(self.number, 1), 1),
            "min": self.least,
            **{f"p{round(share * 100)}": self.quantile(share) for share in QUANTILES},
            "max": self.most,
        }


@dataclass(slots=True)
class Analysis:
    """What a run would do with some rows."""

    totals: Totals = field(default_factory=Totals)
    before: TokenLengths = field(default_factory=TokenLengths)
    after: TokenLengths = field(default_factory=TokenLengths)
    summaries: int = 0
    summarised_tokens: int = 0
    """Tokens of the turns that summaries would replace."""
    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    """Estimated: every answer has the length that was asked for."""
    problems: list[str] = field(default_factory=list)
    end: InputPosition = INPUT_START
    """Where the next rows begin."""

    def merge(self, other: Analysis) -> None:
        self.totals.merge(other.totals)
        self.before.merge(other.before)
        self.after.merge(other.after)
        self.summaries += other.summaries
        self.summarised_tokens += other.summarised_tokens
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.answer_tokens += other.answer_tokens
        self.problems += other.problems[: MAX_PROBLEMS - len(self.problems)]

    def to_dict(self, target: int) -> dict[str, Any]:
        """Return the analysis as JSON values."""
        totals = self.totals
        over = totals.trajectories - totals.skipped_under_target - totals.failed
        return {
            "dry_run": True,
            "trajectories": totals.trajectories,
            "rejected": totals.rejected,
            "not_sampled": totals.left_out,
            "failed": totals.failed,
            "target_max_tokens": target,
            "tokens_estimated": totals.estimated > 0,
            "tokens": self.before.to_dict(),
            "histogram": [{"from": low, "to": high, "trajectories": number} for low, high, number in self.before.doublings()],
            "over_target": over,
            "brought_under": over - totals.still_over_limit,
            "still_over_limit": totals.still_over_limit,
            "tokens_after": self.after.to_dict(),
            "tokens_saved": totals.tokens_saved,
            "trimmed_results": totals.trimmed_results,
            "summaries": self.summaries,
            "tokens_to_summarise": self.summarised_tokens,
            "requests": self.requests,
            "prompt_tokens": self.prompt_tokens,
            "answer_tokens": self.answer_tokens,
        }


def analyse(run: CompressRun, engine: ChunkEngine, *, on_step: Callable[[CompressRun], None] = lambda _: None) -> Analysis:
    """Return what a run would do. Reads all of its input, writes nothing; the run's own totals and problems are those of the analysis."""
    found = Analysis(run.totals, problems=run.problems)
    for part in engine.map(partial(analyse_chunk, work=run.work), read_chunks(run.inputs, size=run.chunk_bytes)):
        found.merge(part)
        run.place = part.end
        on_step(run)
    return found


def analyse_chunk(chunk: Chunk, work: CompressWork) -> Analysis:
    """Return what a run would do with these rows."""
    return run_uninterrupted(partial(_analyse_rows, chunk, work))


async def _analyse_rows(chunk: Chunk, work: CompressWork) -> Analysis:
    found = Analysis(end=chunk.end)
    counter = work.counter()
    model = _CountingModel(counter)
    summariser = _CountingSummariser(ExtractiveSummariser() if work.model is None else ModelSummariser(model, work.settings))
    for number, line in enumerate(chunk.rows, start=chunk.first):
        raw = RawRow(line, chunk.name, number)
        if line.strip() and work.is_in_sample(raw):
            done = ChunkOutcome()
            await compress_row(raw, work, counter, done, summariser=summariser)
            if done.totals.trajectories:
                found.before.add(done.totals.tokens_before)
                found.after.add(done.totals.tokens_after)
            found.totals.merge(done.totals)
            found.problems += done.problems[: MAX_PROBLEMS - len(found.problems)]
        elif line.strip():
            found.totals.left_out += 1
    found.totals.rejected += bool(chunk.broken)
    found.summaries, found.summarised_tokens = summariser.summaries, summariser.tokens
    found.requests, found.prompt_tokens, found.answer_tokens = model.requests, model.prompt_tokens, model.answer_tokens
    return found


class _CountingSummariser:
    """Counts the requests to a summariser and their tokens, and passes them on."""

    def __init__(self, summariser: Summariser) -> None:
        self._summariser = summariser
        self.summaries = self.tokens = 0

    async def summarise(self, request: SummaryRequest) -> Summary:
        self.summaries += 1
        self.tokens += request.counter.count(request.messages)
        return await self._summariser.summarise(request)


class _CountingModel:
    """Stands in for a model: counts its prompts, and answers at the length that was asked for."""

    name = "dry run"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self.requests = self.prompt_tokens = self.answer_tokens = 0

    async def sample(self, request: SampleRequest) -> SampledMessage:
        self.requests += 1
        self.prompt_tokens += self._counter.count(request.messages, request.tools)
        # A prompt asks for half of max_tokens: the other half is a reserve for models that write too much.
        wanted = max(1, (request.max_tokens or 0) // 2)
        text = self._counter.head(str(request.messages[-1]["content"]), wanted)
        self.answer_tokens += self._counter.count_text(text)
        return SampledMessage({"role": "assistant", "content": text}, CallRecord(sample_id=request.sample_id))
