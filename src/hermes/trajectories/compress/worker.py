"""Compress rows: `compress_lines` is a pure function from rows to rows. Its arguments decide the result, and can be pickled.

The same function runs in this process, in worker processes and on a cluster. It never asks a model: with a model in the settings,
rows that need a summary come back as waiting, with their text, and the process that has the model asks it. Knows nothing about files."""

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
from hermes.trajectories.compress.compaction import CompactionResult, compact_to_target
from hermes.trajectories.compress.metrics import Totals
from hermes.trajectories.compress.row_change import RewrittenRow
from hermes.trajectories.compress.rows import TrajectoryRow, parse_row, read_row
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.sharegpt_rows import estimate_row
from hermes.trajectories.compress.summariser import ExtractiveSummariser, Summariser
from hermes.trajectories.compress.token_counter import BYTES_PER_TOKEN, TOKENS_PER_MESSAGE, TokenCounter, load_counter
from hermes.trajectories.compress.token_scale import TokenScale
from hermes.trajectories.compress.turns import turns_of
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.foreign_sharegpt import BadRow

T = TypeVar("T")


def run_uninterrupted(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; if the user pressed Ctrl-C meanwhile, raise KeyboardInterrupt after it.

    Otherwise Ctrl-C could come between the event loop and its coroutine. Works in the main thread, while SIGINT has Python's own
    handler."""
    with _defer_interrupt():
        return asyncio.run(main())


@contextmanager
def _defer_interrupt() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupts:
        raise KeyboardInterrupt


SETTINGS_NOT_COMPARED = frozenset(
    {
        *("processing.num_workers", "processing.engine", "processing.max_concurrent_requests", "processing.per_trajectory_timeout"),
        *("processing.sample_percent", "processing.seed"),
        *("summarization.max_retries", "summarization.retry_delay", "summarization.retry_delay_max", "summarization.timeout"),
        *("summarization.model", "summarization.api_key_env", "output.output_suffix", "metrics.output_file"),
    }
)
"""Settings that do not change the rows, or that are compared under another name, such as the model."""


class RowStatus(StrEnum):
    """Where a row goes."""

    WRITTEN = "written"
    OVER_LIMIT = "over limit"
    """To a separate file, as the settings ask for."""
    REJECTED = "rejected"
    LEFT_OUT = "left out"
    WAITING = "waiting"
    """For a summary of the model."""


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
    """The result for one row, or for consecutive rows with the same status."""

    status: RowStatus
    line: bytes
    """The bytes to write; for a waiting row, the bytes that were read."""
    lead: bytes = b""
    """The bytes before it, in a JSON file."""
    metrics: bytes = b""
    """One line of the metrics file for each row."""
    number: int = 0
    """The number of a waiting row."""


@dataclass(frozen=True)
class CompressWork:
    """What a run does with every row."""

    settings: CompressionSettings = field(default_factory=CompressionSettings)
    model: str | None = None
    """The model that writes the summaries; None: no model is asked."""

    def counter(self) -> TokenCounter:
        return _cached_counter(self.settings.tokenizer.name, self.settings.tokenizer.trust_remote_code)

    @cached_property
    def digest(self) -> str:
        """Stands for `decisive` in sample ids, so that runs with other settings over the same file use other ids."""
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:8]

    @cached_property
    def decisive(self) -> dict[str, Any]:
        """All values that decide the result, by name: a run is resumed only with the same values."""
        sections = {name: values for name, values in asdict(self.settings).items() if name != "live"}
        known = {f"{section}.{key}": value for section, values in sections.items() for key, value in values.items()}
        processing = self.settings.processing
        chosen = {"model": self.model, "sample_percent": processing.sample_percent, "seed": processing.seed}
        return {key: value for key, value in known.items() if key not in SETTINGS_NOT_COMPARED} | chosen

    @property
    def has_row_metrics(self) -> bool:
        """Whether each trajectory gets its own line of metrics."""
        return self.settings.metrics.enabled and self.settings.metrics.per_trajectory

    def is_in_sample(self, row: RawRow) -> bool:
        """Whether a row is in the sample. A hash of file name and row number decides: the same on any machine, in any order."""
        processing = self.settings.processing
        if processing.sample_percent >= 100:
            return True
        drawn = hashlib.blake2b(f"{processing.seed}\0{row.label}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") < processing.sample_percent / 100 * 2**64


@dataclass(slots=True)
class ChunkOutcome:
    """The outcomes of some rows, in their order."""

    outcomes: list[RowOutcome] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    problems: list[str] = field(default_factory=list)
    """One line each, for the user to read."""


def compress_lines(lines: Sequence[bytes], work: CompressWork, *, name: str, first: int = 1, leads: Sequence[bytes] = ()) -> ChunkOutcome:
    """Compress consecutive rows of the file `name`; the first of them is row `first`.

    Untouched rows come back byte for byte. No row is dropped: a row that cannot be read is rejected, a row that cannot be compressed is
    written as it was, and `problems` names both. The same rows and the same work give the same bytes on every machine."""
    done = ChunkOutcome()
    run_uninterrupted(partial(_compress_each, lines, work, name, first, done))
    if leads:
        done.outcomes = [replace(outcome, lead=lead) for outcome, lead in zip(done.outcomes, leads, strict=True)]
    else:
        done.outcomes = _join_neighbours(done.outcomes)
    return done


async def _compress_each(lines: Sequence[bytes], work: CompressWork, name: str, first: int, done: ChunkOutcome) -> None:
    """Add the outcome of each line to `done`. Returns nothing: `asyncio.run` would format the returned value for nothing."""
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
    """Compress a chunk. The chunk comes back without its rows: they are in the outcome."""
    done = compress_lines(chunk.rows, work, name=chunk.name, first=chunk.first, leads=chunk.leads)
    return chunk.without_rows(), done


async def compress_row(
    raw: RawRow, work: CompressWork, counter: TokenCounter, done: ChunkOutcome, *, summariser: Summariser | None = None
) -> RowOutcome:
    """Return the outcome of one row, and add its numbers to `done`. Without a summariser, a row that needs a model gets status WAITING."""
    tokens = turns = 0
    try:
        value = parse_row(raw.line)
        target = work.settings.compression.target_max_tokens if work.settings.processing.skip_under_target else -1
        can_estimate = counter.is_estimate and work.settings.tokenizer.count_reasoning
        estimate = estimate_row(value, BYTES_PER_TOKEN, TOKENS_PER_MESSAGE) if can_estimate else None
        if estimate is not None:
            tokens, at_most, turns = estimate
            if at_most <= target:
                return _keep_short_row(raw, tokens, turns, work, done)
        row = read_row(raw.line, value)
        if estimate is None or estimate[0] <= target:  # else it is most likely too long, and compact_to_target counts it anyway
            turns = len(turns_of(row.messages))
            tokens = TokenScale(work.settings, counter, row.tools).count(row.messages)
            if tokens <= target:
                return _keep_short_row(raw, tokens, turns, work, done)
        if work.model is not None and summariser is None:
            return RowOutcome(RowStatus.WAITING, raw.line, number=raw.number)
        return await _compress_long_row(raw, row, work, counter, done, summariser=summariser or ExtractiveSummariser())
    except BadRow as error:
        return _reject_row(raw, error, work, done)
    except (TrajectoryError, GraphError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # One trajectory of an unforeseen shape must not stop the others.
        return _keep_failed_row(raw, CompactionResult(tokens, tokens, original_turns=turns, compressed_turns=turns), error, work, done)


async def _compress_long_row(
    raw: RawRow, row: TrajectoryRow, work: CompressWork, counter: TokenCounter, done: ChunkOutcome, *, summariser: Summariser
) -> RowOutcome:
    chat = row.chat()
    row_digest = hashlib.sha256(raw.line).hexdigest()[:12]  # another input file may have the same name
    sample_id = f"{raw.label}#{row_digest}@{work.digest}"
    result = await compact_to_target(chat, work.settings, counter, summariser, sample_id=sample_id, tools=row.tools)
    numbers = result.to_dict()
    has_metrics = work.has_row_metrics
    written = row.rewrite(chat, result, numbers if has_metrics else None) if result.was_compressed else RewrittenRow(raw.line)
    done.totals.add(result, has_model=work.model is not None)
    done.totals.off_policy += bool(written.off_policy)
    status = RowStatus.OVER_LIMIT if result.still_over_limit and not work.settings.processing.save_over_limit else RowStatus.WRITTEN
    metrics = {"trajectory": raw.label, **numbers, "off_policy_turns": list(written.off_policy)}
    return RowOutcome(status, written.line, metrics=_json_line(metrics) if has_metrics else b"")


def _keep_short_row(raw: RawRow, tokens: int, turns: int, work: CompressWork, done: ChunkOutcome) -> RowOutcome:
    """Return a row as it was, with few metrics: most rows are short."""
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
    """Return a row as it was, and count it as failed."""
    reason = str(error) if isinstance(error, TrajectoryError | GraphError) else f"{type(error).__name__}: {error}"
    done.totals.add(as_it_was)
    done.totals.failed += 1
    done.problems.append(f"{raw.name}, line {raw.number}: left as it was: {reason}")
    about = {"trajectory": raw.label, "original_tokens": as_it_was.original_tokens, "failed": reason}
    return RowOutcome(RowStatus.WRITTEN, raw.line, metrics=_json_line(about) if work.has_row_metrics else b"")


def _json_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _join_neighbours(outcomes: Iterable[RowOutcome]) -> list[RowOutcome]:
    """Join consecutive rows with the same status: a few long texts pass between processes faster than many short ones.

    Waiting rows stay alone."""
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
