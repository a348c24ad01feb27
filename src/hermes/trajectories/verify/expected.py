"""What a format's files hold for a session, and the classes that compute it; one class for each format.

An expectation is added session by session, in the order of the export. For each it returns the values that each file holds next and
where each sample is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from hermes.graph import MessageGraph
from hermes.trajectories.verify.source_samples import SourceSample


@dataclass(slots=True)
class ExpectedSession:
    """What the files hold for one session."""

    values: list[tuple[str, Any]] = field(default_factory=list)
    """File and value: a row, a line, a document, or a sample of slime's."""
    placed: dict[SourceSample, dict[str, Any]] = field(default_factory=dict)
    """Where each sample is trained, as the ledger says it."""
    off_policy: set[int] = field(default_factory=set)
    """Rows that differ from what was sent, whatever their samples are."""


class Expectation(Protocol):
    """Computes what one format's files hold."""

    untrained: str
    """The reason with which the format leaves out a sample that others train."""
    schemas: ClassVar[Mapping[str, pa.Schema]]
    """The columns of each Parquet file."""
    fixed: ClassVar[Mapping[str, Any]]
    """The files that hold the same value in every export."""
    rows: int
    """How many rows there are so far."""

    def __init__(self, source: str) -> None:
        """`source` is the setting of that name."""
        ...

    def files(self) -> Sequence[str]:
        """Return the names of all files, once all sessions were added."""
        ...

    def add(self, session: str, samples: Sequence[SourceSample], graph: MessageGraph) -> ExpectedSession: ...


NOT_WRITTEN = "not written by this format"
