"""One pure function from rows to rows: `compress_lines`. All that decides about the result is in its arguments, and it can be pickled.

The same function runs in this process, in others, and on a cluster. Where a model is to be asked, it does everything but that:
rows that need a summary come back as waiting, with their text, for whoever has the model. Knows nothing about files."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache, partial
from itertools import groupby
from typing import Any, TypeVar

from hermes.graph import GraphError
from hermes.trajectories.compress.chunks import Chunk
from hermes.trajectories.compress.compaction import compact_to_target
from hermes.trajectories.compress.extractive_summary import ExtractiveSummariser
from hermes.trajectories.compress.metrics import Totals
from hermes.trajectories.compress.result import CompactionResult
from hermes.trajectories.compress.rows import TrajectoryRow, parse_row, read_row
from hermes.trajectories.compress.rows.change import RewrittenRow
from hermes.trajectories.compress.rows.sharegpt import estimate_row
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.summariser import Summariser
from hermes.trajectories.compress.token_counter import BYTES_PER_TOKEN, TOKENS_PER_MESSAGE, TokenCounter, load_counter
from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.turns import turns_of
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.foreign_sharegpt import BadRow

T = TypeVar("T")


def run_uninterrupted(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run to the end; raise KeyboardInterrupt after it if somebody pressed Ctrl-C meanwhile."""
    with _defer_interrupt():
        return asyncio.run(main())


@contextmanager
def _defer_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt


SETTINGS_NOT_COMPARED = frozenset(
    {
        *("processing.num_workers", "processing.max_concurrent_requests", "processing.per_trajectory_timeout"),
        *("summarization.max_retries", "summarization.retry_delay", "summarization.retry_delay_max", "summarization.timeout"),
        *("summarization.model", "summarization.api_key_env", "output.output_suffix", "metrics.output_file"),
    }
)
"""Settings that say how the work is done and not what comes out, or that are asked about elsewhere."""


class RowStatus(StrEnum):
    """What becomes of a row."""

    WRITTEN = "written"
    OVER_LIMIT = "over limit"
    """To a file of its own, because the settings say so."""
    REJECTED = "rejected"
    LEFT_OUT = "left out"
    WAITING = "waiting"
    """For a model's summary."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it stands in a file."""

    line: bytes
    name: str
    """The file's."""
    number: int

    @property
    def label(self) -> str:
        return f"{self.name}:{self.number}"


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """What becomes of one row, or of several with the same fate that follow each other."""

    status: RowStatus
    line: bytes
    """As it is to be written; as it was, for a row that waits."""
    lead: bytes = b""
    """What stands before it in a JSON file."""
    metrics: bytes = b""
    """A line of the metrics file for each of them."""
    number: int = 0
    """Which row it is, if it is one that waits."""


@dataclass(frozen=True)
class CompressWork:
    """What is done with every row."""

    settings: CompressionSettings = field(default_factory=CompressionSettings)
    model: str | None = None
    """Who is to write the summaries; None: nobody is asked."""
    percent: float = 100.0
    """So many of a hundred rows, chosen by `seed` and where they stand."""
    seed: int = 42

    def counter(self) -> TokenCounter:
        return _cached_counter(self.settings.tokenizer.name, self.settings.tokenizer.trust_remote_code)

    @cached_property
    def mark(self) -> str:
        """Names what decides about summaries, so that two runs over one file do not use a name twice."""
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:8]

    @cached_property
    def decisive(self) -> dict[str, Any]:
        """All that decides about the result, by name: a run goes on only with the same."""
        sections = {name: values for name, values in asdict(self.settings).items() if name != "live"}
        known = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
        chosen = {"model": self.model, "sample_percent": self.percent, "seed": self.seed}
        return {key: value for key, value in known.items() if key not in SETTINGS_NOT_COMPARED} | chosen

    @property
    def has_row_metrics(self) -> bool:
        """Whether there are metrics for every trajectory."""
        return self.settings.metrics.enabled and self.settings.metrics.per_trajectory

    def is_in_sample(self, row: RawRow) -> bool:
        """Whether a row is in the sample: by a hash of its place, so that it is the same one on any machine and in any order."""
        if self.percent >= 100:
            return True
        drawn = hashlib.blake2b(f"{self.seed}\0{row.label}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") < self.percent / 100 * 2**64


@dataclass(slots=True)
class ChunkOutcome:
    """What became of some rows, in their order."""

    outcomes: list[RowOutcome] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    problems: list[str] = field(default_factory=list)
    """One line each, for people."""


def compress_lines(lines: Sequence[bytes], work: CompressWork, *, name: str, first: int = 1, leads: Sequence[bytes] = ()) -> ChunkOutcome:
    """Compress some rows of the file `name` that follow each other, the first of them being row `first`; see Done.

    Untouched rows come back byte for byte. Nothing is dropped: what cannot be read is rejected, what cannot be compressed is
    written as it was, and both are named. The same rows and the same work give the same bytes, here and anywhere."""
    done = ChunkOutcome()
    run_uninterrupted(partial(_compress_each, lines, work, name, first, done))
    if leads:
        done.outcomes = [replace(outcome, lead=lead) for outcome, lead in zip(done.outcomes, leads, strict=True)]
    else:
        done.outcomes = _join_neighbours(done.outcomes)
    return done


async def _compress_each(lines: Sequence[bytes], work: CompressWork, name: str, first: int, done: ChunkOutcome) -> None:
    """Add what becomes of each line. Returns nothing: `asyncio.run` writes out whatever its coroutine returned, to no end."""
    counter = work.counter()
    for number, line in enumerate(lines, start=first):
        raw = RawRow(line, name, number)
        if not line.strip():
            outcome = RowOutcome(RowStatus.WRITTEN, line)
        elif work.is_in_sample(raw):
            outcome = await compress_row(raw, work, counter, done)
        else:
            outcome = RowOutcome(RowStatus.LEFT_OUT, b"")
            done.totals.left_out += 1
        done.outcomes.append(outcome)


def compress_chunk(chunk: Chunk, work: CompressWork) -> tuple[Chunk, ChunkOutcome]:
    """Compress a chunk; it comes back without its rows, which are in what was done with them."""
    done = compress_lines(chunk.rows, work, name=chunk.name, first=chunk.first, leads=chunk.leads)
    return chunk.without_rows(), done


async def compress_row(
    raw: RawRow, work: CompressWork, counter: TokenCounter, done: ChunkOutcome, *, summariser: Summariser | None = None
) -> RowOutcome:
    """Return what becomes of one row, and add its numbers to `done`. Without a summariser a row that needs a model waits."""
    tokens = turns = 0
    try:
        value = parse_row(raw.line)
        target = work.settings.compression.target_max_tokens if work.settings.processing.skip_under_target else -1
        can_glance = counter.is_estimate and work.settings.tokenizer.count_reasoning
        seen = estimate_row(value, BYTES_PER_TOKEN, TOKENS_PER_MESSAGE) if can_glance else None
        if seen is not None:
            tokens, at_most, turns = seen
            if at_most <= target:
                return _keep_short_row(raw, tokens, turns, work, done)
        row = read_row(raw.line, value)
        if seen is None or seen[0] <= target:  # else it is too long, most likely, and the engine counts again
            turns = len(turns_of(row.messages))
            tokens = TokenScale(work.settings, counter, row.tools).counted(row.messages)
            if tokens <= target:
                return _keep_short_row(raw, tokens, turns, work, done)
        if work.model is not None and summariser is None:
            return RowOutcome(RowStatus.WAITING, raw.line, number=raw.number)
        return await _compress_long_row(raw, row, work, counter, done, summariser=summariser or ExtractiveSummariser())
    except BadRow as error:
        return _reject_row(raw, error, work, done)
    except (TrajectoryError, GraphError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # One trajectory that nobody thought of must not cost the others.
        return _keep_failed_row(raw, CompactionResult(tokens, tokens, original_turns=turns, compressed_turns=turns), error, work, done)


async def _compress_long_row(
    raw: RawRow, row: TrajectoryRow, work: CompressWork, counter: TokenCounter, done: ChunkOutcome, *, summariser: Summariser
) -> RowOutcome:
    chat = row.chat()
    mark = hashlib.sha256(raw.line).hexdigest()[:12]  # another file may have this name too
    result = await compact_to_target(chat, work.settings, counter, summariser, sample_id=f"{raw.label}#{mark}@{work.mark}", tools=row.tools)
    numbers = result.to_dict()
    is_wanted = work.has_row_metrics
    written = row.written(chat, result, numbers if is_wanted else None) if result.was_compressed else RewrittenRow(raw.line)
    done.totals.add(result, asks=work.model is not None)
    done.totals.off_policy += bool(written.off_policy)
    status = RowStatus.OVER_LIMIT if result.still_over_limit and not work.settings.processing.save_over_limit else RowStatus.WRITTEN
    metrics = {"trajectory": raw.label, **numbers, "off_policy_turns": list(written.off_policy)}
    return RowOutcome(status, written.line, metrics=_json_line(metrics) if is_wanted else b"")


def _keep_short_row(raw: RawRow, tokens: int, turns: int, work: CompressWork, done: ChunkOutcome) -> RowOutcome:
    """Most rows are not touched, and have little to say."""
    done.totals.skip(tokens, turns, is_estimate=work.counter().is_estimate)
    if not work.has_row_metrics:
        return RowOutcome(RowStatus.WRITTEN, raw.line)
    about = (
        f'{{"trajectory": {json.dumps(raw.label)}, "original_tokens": {tokens}, "original_turns": {turns}, "skipped_under_target": true}}\n'
    )
    return RowOutcome(RowStatus.WRITTEN, raw.line, metrics=about.encode())


def _reject_row(raw: RawRow, error: Exception, work: CompressWork, done: ChunkOutcome) -> RowOutcome:
    done.totals.rejected += 1
    done.problems.append(f"{raw.name}, line {raw.number}: {error}")
    return RowOutcome(
        RowStatus.REJECTED, raw.line, metrics=_json_line({"trajectory": raw.label, "rejected": str(error)}) if work.has_row_metrics else b""
    )


def _keep_failed_row(raw: RawRow, as_it_was: CompactionResult, error: Exception, work: CompressWork, done: ChunkOutcome) -> RowOutcome:
    """Return a row as it was, flagged."""
    reason = str(error) if isinstance(error, TrajectoryError | GraphError) else f"{type(error).__name__}: {error}"
    done.totals.add(as_it_was)
    done.totals.failed += 1
    done.problems.append(f"{raw.name}, line {raw.number}: left as it was: {reason}")
    about = {"trajectory": raw.label, "original_tokens": as_it_was.original_tokens, "failed": reason}
    return RowOutcome(RowStatus.WRITTEN, raw.line, metrics=_json_line(about) if work.has_row_metrics else b"")


def _json_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _join_neighbours(outcomes: Iterable[RowOutcome]) -> list[RowOutcome]:
    """Join neighbours with the same fate: a few long texts travel faster than many short ones. Rows that wait stay alone."""
    found: list[RowOutcome] = []
    for status, group in groupby(outcomes, key=lambda outcome: outcome.status):
        members = list(group)
        if status is RowStatus.WAITING:
            found += members
        else:
            found.append(RowOutcome(status, b"".join(each.line for each in members), metrics=b"".join(each.metrics for each in members)))
    return found


@lru_cache(maxsize=2)
def _cached_counter(name: str, trust_remote_code: bool) -> TokenCounter:  # noqa: FBT001  # a setting, passed on
    """Load a tokenizer once in each process."""
    return load_counter(name, trust_remote_code=trust_remote_code)
