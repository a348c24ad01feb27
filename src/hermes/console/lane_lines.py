"""Gives every segment of a layout its lane, from the top, and notes in each row which lines the gutter shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hermes.console.lane_rows import MAX_LANES, START, LaneRow, LaneSegment


def give_lanes(segments: Sequence[LaneSegment], places: Sequence[int]) -> None:
    """Give each segment the lowest lane that is free from its first row to its last; MAX_LANES if there is none.

    `places` are the rows' numbers by their ids."""
    free_from = [-1] * MAX_LANES
    for segment in sorted(segments, key=lambda segment: span_of(segment, places)[0]):
        start, end = span_of(segment, places)
        lane = next((lane for lane in range(1, MAX_LANES) if free_from[lane] <= start), None)
        if lane is not None:
            segment.lane, free_from[lane] = lane, end


def span_of(segment: LaneSegment, places: Sequence[int]) -> tuple[int, int]:
    """Return the rows between which a segment needs its lane to itself. It leaves in the lower half of the first one and ends in the upper
    half of the second, so that another segment may leave where this one ends."""
    start = places[segment.leaves] if segment.leaves != START else places[segment.rows[0]] - 1
    return start, places[segment.joins] if segment.joins is not None else places[segment.rows[-1]] + 1


def draw_lines(rows: Sequence[LaneRow], segments: Sequence[LaneSegment], places: Sequence[int], current: Sequence[int]) -> None:
    """Note in each row which lanes pass by, end in it and leave it."""
    for segment in segments:
        if segment.leaves != START:
            rows[places[segment.leaves]].leaves += (segment,)
        if segment.joins is not None:
            rows[places[segment.joins]].joins += (segment,)
        for at, row in enumerate(segment.rows):
            drawn = rows[places[row]]
            drawn.has_above = at > 0 or segment.leaves != START
            drawn.has_below = at < len(segment.rows) - 1 or segment.joins is not None
    first, last = (places[current[0]], places[current[-1]]) if current else (0, -1)
    passing = PassingLanes(segments, places)
    for number, drawn in enumerate(rows):
        passing.go_to(number)
        lanes, drawn.hidden = passing.lanes, passing.hidden
        if drawn.segment is None:
            drawn.has_above, drawn.has_below, drawn.through = number > first, number < last, lanes
        else:
            drawn.through = tuple(lane for lane in ((0, *lanes) if first < number < last else lanes) if lane != drawn.lane)


class PassingLanes:
    """The lanes of segments that are open at a row, while the rows are gone through from the top."""

    def __init__(self, segments: Sequence[LaneSegment], places: Sequence[int]) -> None:
        self.lanes: tuple[int, ...] = ()
        self.hidden = 0
        self._open: set[int] = set()
        self._starting: dict[int, list[int]] = defaultdict(list)
        self._ending: dict[int, list[int]] = defaultdict(list)
        for segment in segments:
            start, end = span_of(segment, places)
            if start + 1 < end:
                self._starting[start + 1].append(segment.lane)  # from the row below the one that it leaves
                self._ending[end].append(segment.lane)

    def go_to(self, number: int) -> None:
        ending, starting = self._ending.get(number, ()), self._starting.get(number, ())
        if not ending and not starting:
            return
        self.hidden += starting.count(MAX_LANES) - ending.count(MAX_LANES)
        self._open.difference_update(ending)
        self._open.update(starting)
        self.lanes = tuple(sorted(self._open - {MAX_LANES}))
