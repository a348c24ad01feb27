"""What a drawn graph consists of: rows, segments of versions, and the way of each version through the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hermes.ports.conversations import GraphShape

MAX_LANES = 8
START = 0
"""The row before the first one: where every version begins. It is not drawn."""
REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class ReplayMark:
    """A replay, and the sample that it asks again."""

    replay_id: UUID
    node: int
    """The node of the sampled message."""


@dataclass(slots=True)
class LaneSegment:
    """A part of a version that the version after it does not have: from one shared row to another."""

    version: int
    """The place of the version; -1 for a replay."""
    kind: str
    leaves: int
    """The row before it; START at the beginning."""
    rows: list[int]
    joins: int | None
    """The row after it; None if the version ends in it."""
    lane: int = MAX_LANES
    replay_id: UUID | None = None


@dataclass(slots=True)
class LaneRow:
    """One message, and what the gutter shows beside it. Tuples, not lists: a long graph has very many rows, and an empty tuple is none."""

    number: int
    """Its place from the top, from 0."""
    node: int
    """-1 for a replay."""
    owner: int
    """The place of the newest version that has it; the number of kept versions for the current list; -1 for a replay."""
    lane: int
    segment: LaneSegment | None
    """None in lane 0."""
    has_above: bool = False
    has_below: bool = False
    through: tuple[int, ...] = ()
    """Lanes that pass by."""
    joins: tuple[LaneSegment, ...] = ()
    """Segments that end in this row, from above."""
    leaves: tuple[LaneSegment, ...] = ()
    """Segments that leave it, downwards."""
    hidden: int = 0
    """How many segments have no lane here."""
    samples: tuple[int, ...] = ()
    """The samples of this message in this place, by their number in the shape."""
    copied: tuple[int, ...] = ()
    """Samples of this message under another context: the versions' places."""
    ends: tuple[int, ...] = ()
    """Versions that end here although a newer one goes on, by place."""

    @property
    def is_crossing(self) -> bool:
        """Whether lanes leave or end here."""
        return bool(self.joins or self.leaves)


class RowSplice:
    """next version's rows[start:stop] stand where this version has `rows`."""

    __slots__ = ("rows", "start", "stop")

    def __init__(self, start: int, stop: int, rows: list[int]) -> None:
        self.start, self.stop, self.rows = start, stop, rows


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """All rows from the top, and the way of each version through them."""

    shape: GraphShape
    rows: Sequence[LaneRow]
    segments: Sequence[LaneSegment]
    current: Sequence[int]
    splices: Sequence[Sequence[RowSplice]]
    """By the place of the version."""
    place_of_row: Sequence[int]
    """A row's number by its id; segments and splices name rows by ids."""
    lanes: int
    """How many lanes are in use at most."""

    def path(self, place: int) -> list[int]:
        """Return the numbers of a version's rows, in its order; of the current list for the number of kept versions."""
        path = list(self.current)
        for splices in reversed(self.splices[place:]):
            path = undo_splices(path, splices)
        return [self.place_of_row[row] for row in path]

    def row(self, identity: int) -> LaneRow:
        return self.rows[self.place_of_row[identity]]


def undo_splices(path: Sequence[int], splices: Sequence[RowSplice]) -> list[int]:
    """Return a version's rows from those of the version after it."""
    own: list[int] = []
    done = 0
    for splice in splices:
        own += path[done : splice.start]
        own += splice.rows
        done = splice.stop
    own += path[done:]
    return own
