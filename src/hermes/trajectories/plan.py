"""A session's plan: its calls, its rows, ready to be written in any format.

This is all that a format sees. Formats are small modules in `formats/`; each has a writer class with this shape:

    class Writer:
        def __init__(self, folder: Path | None, settings: ExportSettings) -> None: ...
        def write(self, plan: SessionPlan) -> Iterable[Placement]: ...   # write one session; say where each call is trained
        def close(self) -> None: ...                                     # finish the files

A call for which `write` yields no placement is entered in the ledger as excluded, for its own reasons or for the format's.

A writer opens nothing itself: it writes into `files`, which know how to become a part of an export that several processes make
(`hermes.trajectories.formats.export_files`). So a format that is right in one process is right in many."""

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
    """What an export was asked for; all of it is in the ledger's manifest."""

    format: str = "parquet"
    policies: SamplePolicies = field(default_factory=SamplePolicies)
    source: str = "hermes-agent"
    """What the `source` column of the ShareGPT format says."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """One rollout in one tokenizer's tokens."""

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
        """Say where each call is trained when every row is written as it is, one after the other."""
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
    """Something that a writer writes into: one file, or several with numbers. Made without a folder, it keeps what it is given."""

    def part(self) -> Any:
        """Return what was kept, as something that can be pickled."""
        ...

    def take(self, part: Any, first_row: int) -> None:
        """Write what another one kept, as if it had been written here: its rows are counted from `first_row` on."""
        ...


class FormatWriter(Protocol):
    """What a format's writer does."""

    untrained: str
    """Why this format leaves out a call that could be trained elsewhere."""
    rows: int
    """How many rows were written so far; the ledger's `row` counts them from 0."""

    @property
    def files(self) -> Sequence[ExportFile]:
        """What it writes into, always in the same order."""
        ...

    def write(self, plan: SessionPlan) -> Iterable[Placement]: ...

    def close(self) -> None:
        """Finish the files; a second time does nothing."""
        ...


class ExportFormat(Protocol):
    """A format: makes a writer for a folder, or for none, to write a part."""

    def __call__(self, folder: Path | None, settings: ExportSettings) -> FormatWriter: ...


def plan_session(session: ExportSession, calls: Sequence[SampledCall], first_row: int) -> SessionPlan:
    """Group calls by rollout and tokenizer (tokens of two tokenizers mean nothing to each other) and plan the rows of each."""
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
