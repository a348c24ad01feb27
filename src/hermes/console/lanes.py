"""Lays a message graph out as rows and lanes, as `git log --graph` draws commits.

Every message is one row. Lane 0 is the current list. A kept version leaves it where it first differs, and comes back where it agrees again;
between, its own messages stand on a lane of their own, above those that took their place. A message that several versions have is drawn
once: a version is a path downwards through the rows. A lane that ends is free for the next one; beyond MAX_LANES the page shows a number.

Pure, and O(messages + differences). Knows addresses of messages, not what they say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hermes.console.lane_lines import draw_lines, give_lanes
from hermes.console.lane_rows import MAX_LANES, REPLAY, START, GraphLayout, LaneRow, LaneSegment, ReplayMark, RowSplice, undo_splices
from hermes.ports.conversations import GraphShape, ShapeHunk, ShapeSample, ShapeVersion

LABEL_GAP = 1 << 40


def lay_out(shape: GraphShape, replays: Sequence[ReplayMark] = ()) -> GraphLayout:
    """Return the rows and lanes of a graph."""
    return LaneDrawing(shape).draw(replays)


class RowOrder:
    """The rows from top to bottom, and which of two is higher. A linked list with labels: to insert costs what is inserted."""

    def __init__(self) -> None:
        self._after: list[int] = [-1]
        self.labels: list[int] = [0]

    def __len__(self) -> int:
        return len(self.labels)

    def insert(self, after: int, count: int) -> list[int]:
        """Add rows below a row; return their ids, from the top."""
        added = list(range(len(self.labels), len(self.labels) + count))
        below = self._after[after]
        self._after[after] = added[0]
        self._after += [*added[1:], below]
        low = self.labels[after]
        high = self.labels[below] if below >= 0 else low + LABEL_GAP * (count + 1)
        self.labels += [low + (high - low) * step // (count + 1) for step in range(1, count + 1)]
        if high - low <= count:
            self._spread()
        return added

    def _spread(self) -> None:
        for place, row in enumerate(self):
            self.labels[row] = (place + 1) * LABEL_GAP

    def __iter__(self) -> Iterator[int]:
        row = self._after[START]
        while row >= 0:
            yield row
            row = self._after[row]


class LaneDrawing:
    """One layout in the making: first the rows, from the current list back to the oldest version, then the lanes, from the top."""

    def __init__(self, shape: GraphShape) -> None:
        self._shape = shape
        self._order = RowOrder()
        self._nodes, self._owners, self._before = [-1], [-1], [START]
        self._homes: list[LaneSegment | None] = [None]
        self._of_node: dict[int, int] = {}
        self._next: dict[tuple[int, bytes], int] = {}
        """The row that comes after a row in some version, by the address of its message."""
        self._segments: list[LaneSegment] = []
        self._ends: dict[int, list[int]] = defaultdict(list)
        self._sampled: list[tuple[int, int, int, int]] = []
        """Row, sample, place of its version, index in it."""
        self._splices: list[list[RowSplice]] = []
        self._steps: list[int] = []
        """From the newest kept version: how far it goes through the same rows as the one after it."""
        self._depths: list[int] = []
        """And how far it agrees with the current list."""

    def draw(self, replays: Sequence[ReplayMark]) -> GraphLayout:
        shape = self._shape
        by_place = self._samples_by_place()
        current = self._add_rows(START, shape.listed, len(shape.versions))
        self._join(current, 0, len(current))
        self._note_samples(by_place.get(len(shape.versions), ()), len(shape.versions), current)
        path = current
        for place in range(len(shape.versions) - 1, -1, -1):
            path = self._add_version(place, path, current)
            self._note_samples(by_place.get(place, ()), place, path)
        self._splices.reverse()
        for replay in replays:
            self._add_replay(replay)
        return self._lay(current)

    # --- rows

    def _samples_by_place(self) -> dict[int, list[tuple[int, ShapeSample]]]:
        shape, found = self._shape, defaultdict(list)
        places = {version.number: place for place, version in enumerate(shape.versions)}
        for at, sample in enumerate(shape.samples):
            place = len(shape.versions) if sample.head == shape.live else places.get(sample.head)
            if place is not None:
                found[place].append((at, sample))
        return found

    def _add_rows(self, after: int, nodes: Sequence[int], owner: int) -> list[int]:
        if not nodes:
            return []
        added = self._order.insert(after, len(nodes))
        self._nodes += nodes
        self._owners += [owner] * len(nodes)
        self._before += [after, *added[:-1]]
        self._homes += [None] * len(nodes)
        for row, node in zip(added, nodes, strict=True):
            self._of_node.setdefault(node, row)
        return added

    def _join(self, path: Sequence[int], start: int, stop: int) -> None:
        """Remember which row follows which."""
        addresses = self._shape.addresses
        for at in range(start, stop):
            row = path[at]
            self._next.setdefault((path[at - 1] if at else START, addresses[self._nodes[row]]), row)

    def _add_version(self, place: int, path: list[int], current: Sequence[int]) -> list[int]:
        """Add the rows that only this version has; `path` are the rows of the version after it. Return its own path."""
        version = self._shape.versions[place]
        splices = [
            RowSplice(hunk.start, hunk.stop, self._match(place, path, hunk, path[hunk.start - 1] if hunk.start else START))
            for hunk in whole_hunks(version, len(path))
        ]
        own = undo_splices(path, splices)
        self._splices.append(splices)
        self._measure(own, path, current, min((splice.start for splice in splices), default=len(path)))
        self._cut_segments(place, version.kind, own, splices)
        return own

    def _match(self, place: int, path: Sequence[int], hunk: ShapeHunk, above: int) -> list[int]:
        """Return the rows of a hunk: those that are drawn already, between the rows around it, and new ones."""
        labels, addresses = self._order.labels, self._shape.addresses
        start, stop, nodes = hunk
        limit = labels[path[stop]] if stop < len(path) else None
        replaced: dict[bytes, list[int]] = defaultdict(list)
        if stop < len(path):
            for row in reversed(path[start:stop]):
                replaced[addresses[self._nodes[row]]].append(row)
        rows: list[int] = []
        fresh: list[int] = []

        def flush() -> None:
            nonlocal above
            if fresh:
                rows.extend(self._add_rows(above, fresh, place))
                above = rows[-1]
                fresh.clear()

        def fits(row: int | None) -> bool:
            return row is not None and labels[row] > labels[above] and (limit is None or labels[row] < limit)

        for node in nodes:
            address = addresses[node]
            same = replaced.get(address, [])
            while same and not fits(same[-1]):
                same.pop()
            found = next(
                (row for row in (None if fresh else self._next.get((above, address)), self._of_node.get(node), *same[-1:]) if fits(row)),
                None,
            )
            if found is None:
                fresh.append(node)
                continue
            flush()
            limit = labels[path[stop]] if stop < len(path) else None  # new rows may have spread the labels
            rows.append(found)
            above = found
        flush()
        return rows

    def _measure(self, own: Sequence[int], path: Sequence[int], current: Sequence[int], start: int) -> None:
        """Note how far a version agrees with the one after it, and with the current list: by content, also where rows are apart."""
        step = self._agreement(own, path, start)
        depth = self._depths[-1] if self._depths else len(current)
        self._steps.append(next((at for at in range(start, step) if own[at] != path[at]), step))
        self._depths.append(self._agreement(own, current, depth) if step == depth else min(step, depth))

    def _agreement(self, one: Sequence[int], other: Sequence[int], start: int) -> int:
        """Return how many leading messages are the same, given that the first `start` are."""
        end = min(len(one), len(other))
        start = min(start, end)
        while start < end and (one[start] == other[start] or self._address(one[start]) == self._address(other[start])):
            start += 1
        return start

    def _cut_segments(self, place: int, kind: str, own: Sequence[int], splices: Sequence[RowSplice]) -> None:
        """Make segments of the parts of a version that are not drawn yet."""
        shift = done = 0
        segment: LaneSegment | None = None
        for splice in splices:
            first = splice.start + shift
            last = first + len(splice.rows)
            for at in range(max(first, done), last + 1):
                before = own[at - 1] if at else START
                row = own[at] if at < len(own) else None
                is_new = row is not None and self._owners[row] == place and self._homes[row] is None and at < last
                if row is not None and is_new:
                    if segment is None:
                        segment = self._begin(place, kind, before)
                    segment.rows.append(row)
                    self._homes[row] = segment
                elif segment is not None:
                    segment.joins, segment = row, None
                elif row is None:
                    self._ends[before].append(place)
                elif before != START and self._next.get((before, self._address(row))) != row:
                    self._begin(place, kind, before).joins = row
            self._join(own, max(first, done), min(last + 1, len(own)))
            done = last + 1
            shift += len(splice.rows) - (splice.stop - splice.start)

    def _begin(self, place: int, kind: str, before: int) -> LaneSegment:
        segment = LaneSegment(place, kind, before, [], None)
        self._segments.append(segment)
        return segment

    def _address(self, row: int) -> bytes:
        return self._shape.addresses[self._nodes[row]]

    def _note_samples(self, samples: Iterable[tuple[int, ShapeSample]], place: int, path: Sequence[int]) -> None:
        self._sampled += [(path[sample.index], at, place, sample.index) for at, sample in samples if sample.index < len(path)]

    def _is_sampled_here(self, row: int, place: int, index: int, current: Sequence[int]) -> bool:
        """Whether the sample's context is also the context of its row."""
        owner, count = self._owners[row], len(self._shape.versions)
        if owner == count:
            return self._is_current(place, index) and current[index] == row
        return all(index < step for step in self._steps[count - owner : count - place])

    def _is_current(self, place: int, index: int) -> bool:
        """Whether a version agrees with the current list, up to this message and in it."""
        count = len(self._shape.versions)
        return place == count or index < self._depths[count - 1 - place]

    def _add_replay(self, replay: ReplayMark) -> None:
        sampled = self._of_node.get(replay.node)
        if sampled is None:
            return
        [row] = self._order.insert(sampled, 1)
        segment = LaneSegment(-1, REPLAY, self._before[sampled], [row], None, replay_id=replay.replay_id)
        self._nodes.append(-1)
        self._owners.append(-1)
        self._before.append(self._before[sampled])
        self._homes.append(segment)
        self._segments.append(segment)

    # --- lanes

    def _lay(self, current: Sequence[int]) -> GraphLayout:
        places = [-1] * len(self._order)
        order = list(self._order)
        for number, row in enumerate(order):
            places[row] = number
        give_lanes(self._segments, places)
        rows = [self._row(number, row) for number, row in enumerate(order)]
        self._mark_samples(rows, places, current)
        for row, ended in self._ends.items():
            if row != START:
                rows[places[row]].ends += tuple(ended)
        draw_lines(rows, self._segments, places, current)
        lanes = 1 + max((segment.lane for segment in self._segments if segment.lane < MAX_LANES), default=0)
        return GraphLayout(self._shape, rows, self._segments, current, self._splices, places, lanes)

    def _row(self, number: int, row: int) -> LaneRow:
        home = self._homes[row]
        return LaneRow(number, self._nodes[row], self._owners[row], 0 if home is None else home.lane, home)

    def _mark_samples(self, rows: Sequence[LaneRow], places: Sequence[int], current: Sequence[int]) -> None:
        for row, sample, place, index in self._sampled:
            here = rows[places[row]]
            if self._is_sampled_here(row, place, index, current):
                here.samples += (sample,)
            else:
                here.copied += (place,)
            now = rows[places[current[index]]] if self._is_current(place, index) else here
            if now is not here:
                now.samples += (sample,)


def whole_hunks(version: ShapeVersion, length: int) -> list[ShapeHunk]:
    """Return all differences to the version after it, which has `length` messages: the tail as a hunk, neighbours joined."""
    hunks: list[ShapeHunk] = []
    tail = ShapeHunk(version.tail, length, version.end)
    for hunk in (*version.hunks, *([tail] if version.end or version.tail < length else ())):
        if hunks and hunks[-1].stop == hunk.start:
            last = hunks.pop()
            hunks.append(ShapeHunk(last.start, hunk.stop, [*last.nodes, *hunk.nodes]))
        else:
            hunks.append(hunk)
    return hunks
