"""A session's plan: its calls in rollouts, ready to be written in any format.

A format sees nothing else. Formats are small modules in `formats/`; each has a writer class with this shape:

    class Writer:
        def __init__(self, folder: Path | None, settings: ExportSettings) -> None: ...
        def write(self, plan: SessionPlan) -> Iterable[Placement]: ...   # write one session; say where each call is trained
        def close(self) -> None: ...                                     # finish the files

A call for which `write` yields no placement is entered in the ledger as excluded, for its own reasons or for the format's.

A writer opens no file itself: it writes into `files`, which can also be parts of an export that several processes make
(`hermes.trajectories.formats.files`). So a format that is correct in one process is correct in many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
    is_bare: bool = False
    """Whether rows of ShareGPT hold the founding keys and nothing else."""


@dataclass(eq=False)  # never changed; `frozen` would slow its constructor down. Without slots: `rows` is made when a format asks for it
class RolloutPlan:
    """The calls of one rollout that share a tokenizer."""

    rollout: str
    tokenizer: str
    calls: tuple[SampledCall, ...]
    loss_scale: float

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The calls as linear rows. A format that writes trees or text does not ask for them."""
        return tuple(linear_rows(self.calls))


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class SessionPlan:
    """One session, ready to be written."""

    session: ExportSession
    calls: tuple[SampledCall, ...]
    """Every sample, trainable or not, in the order of sampling."""
    rollouts: tuple[RolloutPlan, ...]


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


def plan_session(session: ExportSession, calls: Sequence[SampledCall]) -> SessionPlan:
    """Group calls by rollout and tokenizer: one row cannot hold the tokens of two tokenizers."""
    groups: dict[tuple[str, str], list[SampledCall]] = {}
    trained: dict[str, int] = {}
    for call in calls:
        groups.setdefault((call.rollout, call.tokenizer), []).append(call)
        trained[call.rollout] = trained.get(call.rollout, 0) + call.trained
    rollouts = [
        RolloutPlan(rollout, tokenizer, tuple(members), loss_scale(trained[rollout])) for (rollout, tokenizer), members in groups.items()
    ]
    return SessionPlan(session, tuple(calls), tuple(rollouts))
