"""A session's plan: its calls and its rows, ready to be written in any format.

A format sees nothing else. Formats are small modules in `formats/`; each has a writer class with this shape:

    class Writer:
        def __init__(self, folder: Path | None, settings: ExportSettings) -> None: ...
        def write(self, plan: SessionPlan) -> Iterable[Placement]: ...   # write one session; say where each call is trained
        def close(self) -> None: ...                                     # finish the files

A call for which `write` yields no placement is entered in the ledger as excluded, for its own reasons or for the format's.

A writer opens no file itself: it writes into `files`, which can also be parts of an export that several processes make
(`hermes.trajectories.formats.export_files`). So a format that is correct in one process is correct in many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from hermes.trajectories.calls import SampledCall, SamplePolicies
from hermes.trajectories.ledger import Placement
from hermes.trajectories.rows import Row, linear_rows, loss_scale
from hermes.trajectories.source import ExportSession


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """The settings of an export; all of them are in the ledger's manifest."""

    format: str = "parquet"
    policies: SamplePolicies = field(default_factory=SamplePolicies)
    source: str = "hermes-agent"
    """The `source` of every ShareGPT row, and the agent's name in ATIF."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """The calls of one rollout that share a tokenizer, and their rows."""

    rollout: str
    tokenizer: str
    calls: tuple[SampledCall, ...]
    rows: tuple[Row, ...]
    first_row: int
    """The number of its first row in the export."""
    loss_scale: float

    def numbered_rows(self) -> Iterator[tuple[int, Row]]:
        return enumerate(self.rows, start=self.first_row)

    def placements(self) -> Iterator[Placement]:
        """Yield where each call is trained, if the format writes every row unchanged and in order."""
        for number, row in self.numbered_rows():
            for call in row.calls:
                yield Placement(call, {"row": number, "start": call.start, "end": call.end})


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One session, ready to be written."""

    session: ExportSession
    calls: tuple[SampledCall, ...]
    """Every sample, trainable or not, in the order of sampling."""
    rollouts: tuple[RolloutPlan, ...]

    @property
    def rows(self) -> int:
        return sum(len(rollout.rows) for rollout in self.rollouts)


class ExportFile(Protocol):
    """What a writer writes into: one file, or several numbered files. Without a folder, it keeps the rows in memory as a part."""

    def part(self) -> Any:
        """Return what was kept in memory; it can be pickled."""
        ...

    def take(self, part: Any, first_row: int) -> None:
        """Write the part of another file, as if its rows had been written here; they are numbered from `first_row` on."""
        ...


class FormatWriter(Protocol):
    """The writer of one format."""

    untrained: str
    """The ledger's reason for a call that this format leaves out though other formats train it."""
    rows: int
    """How many rows were written so far; the ledger's `row` counts them from 0."""

    @property
    def files(self) -> Sequence[ExportFile]:
        """The files it writes into, always in the same order."""
        ...

    def write(self, plan: SessionPlan) -> Iterable[Placement]: ...

    def close(self) -> None:
        """Finish the files; a second time does nothing."""
        ...


class ExportFormat(Protocol):
    """A format: makes a writer for a folder, or, with None, for a part of an export."""

    def __call__(self, folder: Path | None, settings: ExportSettings) -> FormatWriter: ...


def plan_session(session: ExportSession, calls: Sequence[SampledCall], first_row: int) -> SessionPlan:
    """Group calls by rollout and tokenizer (one row cannot hold the tokens of two tokenizers), and plan the rows of each group."""
    groups: dict[tuple[str, str], list[SampledCall]] = {}
    for call in calls:
        groups.setdefault((call.rollout, call.tokenizer), []).append(call)
    totals: dict[str, list[SampledCall]] = {}
    for call in calls:
        totals.setdefault(call.rollout, []).append(call)
    rollouts = []
    for (rollout, tokenizer), members in groups.items():
        rows = tuple(linear_rows(members))
        rollouts.append(RolloutPlan(rollout, tokenizer, tuple(members), rows, first_row, loss_scale(totals[rollout])))
        first_row += len(rows)
    return SessionPlan(session, tuple(calls), tuple(rollouts))
