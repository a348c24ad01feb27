"""A session's plan: its calls, its rows, ready to be written in any format.

This is all that a format sees. Formats are small modules in `formats/`; each has a writer class with this shape:

    class Writer:
        def __init__(self, folder: Path, settings: ExportSettings) -> None: ...
        def write(self, plan: SessionPlan) -> Iterable[Placement]: ...   # write one session; say where each call is trained
        def close(self) -> None: ...                                     # finish the files

A call for which `write` yields no placement is entered in the ledger as excluded, for its own reasons or for the format's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hermes.trajectories.calls import Call, Policies
from hermes.trajectories.ledger import Placement
from hermes.trajectories.rows import Row, linear_rows, loss_scale
from hermes.trajectories.source import Session


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What an export was asked for; all of it is in the ledger's manifest."""

    format: str = "parquet"
    policies: Policies = field(default_factory=Policies)
    source: str = "hermes-agent"
    """What the `source` column of the ShareGPT format says."""


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """One rollout in one tokenizer's tokens."""

    rollout: str
    tokenizer: str
    calls: tuple[Call, ...]
    rows: tuple[Row, ...]
    first_row: int
    """The number of its first row in the export."""
    loss_scale: float

    def numbered(self) -> Iterator[tuple[int, Row]]:
        return enumerate(self.rows, start=self.first_row)

    def placements(self) -> Iterator[Placement]:
        """Say where each call is trained when every row is written as it is, one after the other."""
        for number, row in self.numbered():
            for call in row.calls:
                yield Placement(call, {"row": number, "start": call.start, "end": call.end})


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """One session, ready to be written."""

    session: Session
    calls: tuple[Call, ...]
    """Every sample, trainable or not, in the order of sampling."""
    rollouts: tuple[RolloutPlan, ...]

    @property
    def rows(self) -> int:
        return sum(len(rollout.rows) for rollout in self.rollouts)


class Writer(Protocol):
    """What a format's writer does."""

    untrained: str
    """Why this format leaves out a call that could be trained elsewhere."""
    rows: int
    """How many rows were written so far; the ledger's `row` counts them from 0."""

    def write(self, plan: SessionPlan) -> Iterable[Placement]: ...
    def close(self) -> None: ...


class Format(Protocol):
    """A format: makes a writer for a folder."""

    def __call__(self, folder: Path, settings: ExportSettings) -> Writer: ...


def plan_session(session: Session, calls: Sequence[Call], first_row: int) -> SessionPlan:
    """Group calls by rollout and tokenizer (tokens of two tokenizers mean nothing to each other) and plan the rows of each."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        groups.setdefault((call.rollout, call.tokenizer), []).append(call)
    totals: dict[str, list[Call]] = {}
    for call in calls:
        totals.setdefault(call.rollout, []).append(call)
    rollouts = []
    for (rollout, tokenizer), members in groups.items():
        rows = tuple(linear_rows(members))
        rollouts.append(RolloutPlan(rollout, tokenizer, tuple(members), rows, first_row, loss_scale(totals[rollout])))
        first_row += len(rows)
    return SessionPlan(session, tuple(calls), tuple(rollouts))
