"""The table of a batch: a row for each turn, a cell for each model; sums for each model; and the same as CSV. Pure, and without content."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from uuid import UUID

from hermes.console.amounts import quote_formula
from hermes.ports.replays import Replay, ReplayBatch, ReplaySource, ReplayState

CSV_COLUMNS = ("state", "diverged", "same_tools", "same_text", "likeness", "ms", "tokens_in", "tokens_out", "usd", "error")


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A turn and what each model made of it, in the order of the models."""

    source: ReplaySource
    cells: Sequence[Replay | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSums:
    """What one model made of all turns."""

    model: str
    asked: int
    answered: int
    diverged: int
    failed: int
    refused: int
    same_tools: int
    same_text: int
    likeness: float | None
    """The mean of the answers that can be compared."""
    p50_ms: int | None
    p95_ms: int | None
    tokens_in: int
    tokens_out: int
    micro_usd: int


@dataclass(frozen=True, slots=True)
class BatchTable:
    """A batch as operators read it."""

    batch: ReplayBatch
    rows: Sequence[BatchRow]
    sums: Sequence[ModelSums]
    original: ModelSums
    """The recorded turns, beside the models."""

    def to_csv(self) -> str:
        """Return the table as CSV. A cell that a spreadsheet would take for a formula is quoted."""
        out = io.StringIO()
        writer = csv.writer(out)
        head = ["turn_id", "at", "outcome", "model", "ms", "tokens_in", "tokens_out", "usd"]
        writer.writerow([*head, *(quote_formula(f"{model} {column}") for model in self.batch.models for column in CSV_COLUMNS)])
        for row in self.rows:
            source = row.source
            known = [source.id, source.at.astimezone(UTC).isoformat(timespec="seconds"), source.outcome, source.model]
            known += [source.latency_ms, source.tokens_in, source.tokens_out, usd_text(source.micro_usd)]
            cells = [value for replay in row.cells for value in csv_cells(replay)]
            writer.writerow([quote_formula(str(value)) for value in (*known, *cells)])
        return out.getvalue()


def build_table(batch: ReplayBatch, replays: Sequence[Replay], sources: Mapping[UUID, ReplaySource]) -> BatchTable:
    """Put the replays of a batch in rows. Turns of people who were forgotten meanwhile are left out."""
    found = {(replay.source_id, replay.model): replay for replay in replays}
    order = [sources[each] for each in dict.fromkeys(replay.source_id for replay in replays) if each in sources]
    rows = [BatchRow(source, [found.get((source.id, model)) for model in batch.models]) for source in order]
    sums = [sum_model(model, [replay for replay in replays if replay.model == model]) for model in batch.models]
    return BatchTable(batch, rows, sums, sum_recorded(order))


def sum_model(model: str, replays: Sequence[Replay]) -> ModelSums:
    done = [replay for replay in replays if replay.state is ReplayState.DONE]
    alike = [replay.likeness for replay in done if replay.likeness is not None]
    times = sorted(replay.latency_ms for replay in done if replay.latency_ms is not None)
    return ModelSums(
        model=model,
        asked=len(replays),
        answered=sum(not replay.is_diverged for replay in done),
        diverged=sum(bool(replay.is_diverged) for replay in done),
        failed=sum(replay.state is ReplayState.FAILED for replay in replays),
        refused=sum(replay.state is ReplayState.REFUSED for replay in replays),
        same_tools=sum(bool(replay.same_tools) for replay in done),
        same_text=sum(bool(replay.same_text) for replay in done),
        likeness=sum(alike) / len(alike) if alike else None,
        p50_ms=percentile(times, 50),
        p95_ms=percentile(times, 95),
        tokens_in=sum(replay.tokens_in or 0 for replay in done),
        tokens_out=sum(replay.tokens_out or 0 for replay in done),
        micro_usd=sum(replay.micro_usd or 0 for replay in replays),
    )


def sum_recorded(sources: Sequence[ReplaySource]) -> ModelSums:
    answered = [source for source in sources if source.outcome == "answered"]
    times = sorted(source.latency_ms for source in answered)
    return ModelSums(
        model="",
        asked=len(sources),
        answered=len(answered),
        diverged=0,
        failed=len(sources) - len(answered),
        refused=0,
        same_tools=0,
        same_text=0,
        likeness=None,
        p50_ms=percentile(times, 50),
        p95_ms=percentile(times, 95),
        tokens_in=sum(source.tokens_in for source in sources),
        tokens_out=sum(source.tokens_out for source in sources),
        micro_usd=sum(source.micro_usd for source in sources),
    )


def percentile(ordered: Sequence[int], percent: int) -> int | None:
    """The value that so many per cent of the values do not exceed; None without values."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def csv_cells(replay: Replay | None) -> list[object]:
    if replay is None:
        return [""] * len(CSV_COLUMNS)
    flags = [flag_text(flag) for flag in (replay.is_diverged, replay.same_tools, replay.same_text)]
    likeness = "" if replay.likeness is None else f"{replay.likeness:.3f}"
    numbers = ["" if number is None else number for number in (replay.latency_ms, replay.tokens_in, replay.tokens_out)]
    return [replay.state, *flags, likeness, *numbers, usd_text(replay.micro_usd), replay.error or ""]


def flag_text(flag: bool | None) -> str:  # noqa: FBT001  # a value of a row
    return "" if flag is None else "yes" if flag else "no"


def usd_text(micro_usd: int | None) -> str:
    return "" if micro_usd is None else f"{micro_usd / 1_000_000:.6f}"
