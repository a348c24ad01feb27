"""The difference between two versions: restores an older list from its successor, and is kept up to date while the successor is edited.

A version is never a copy. It is a delta on the next version: cut off the tail that came later, put the replaced parts back.
Appending to the successor costs nothing here; an edit costs what it replaces."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hermes.graph.node import Node


class Hunk(NamedTuple):
    """successor[start:stop] stands where the older list had `nodes`."""

    start: int
    stop: int
    nodes: tuple[Node, ...]


@dataclass(slots=True)
class Delta:
    """The older list = successor[:tail] with the hunks put back, then `end`.

    Hunks are in ascending order, do not overlap and lie before `tail`. Worked example: the older list was
    [S U A], the successor became [S U' A V W]. Then hunks = [(1, 2, (U,))], tail = 3, end = ()."""

    tail: int
    end: tuple[Node, ...] = ()
    hunks: list[Hunk] = field(default_factory=list)

    @classmethod
    def between(cls, older: Sequence[Node], successor: Sequence[Node]) -> Delta:
        """Compare two lists that share a beginning and perhaps an ending: the same node objects, not only equal content."""
        shorter = min(len(older), len(successor))
        start = shared = 0
        while start < shorter and older[start] is successor[start]:
            start += 1
        while shared < shorter - start and older[-1 - shared] is successor[-1 - shared]:
            shared += 1
        if not shared:
            return cls(start, tuple(older[start:]))
        return cls(len(successor), (), [Hunk(start, len(successor) - shared, tuple(older[start : len(older) - shared]))])

    def record(self, successor: Sequence[Node], start: int, stop: int, size: int) -> None:
        """Note that successor[start:stop] is about to be replaced by `size` nodes."""
        if start >= self.tail:
            return  # messages that came after the older list do not concern it
        reach = min(stop, self.tail)
        first = bisect_right(self.hunks, start, key=lambda hunk: hunk.stop)
        is_open = stop >= self.tail
        last = len(self.hunks) if is_open else max(first, bisect_left(self.hunks, reach, key=lambda hunk: hunk.start))
        touched = self.hunks[first:last]
        low = min(start, touched[0].start) if touched else start
        high = max(reach, touched[-1].stop) if touched else reach
        back: list[Node] = []
        at = low
        for hunk in touched:
            back += successor[at : hunk.start]
            back += hunk.nodes
            at = hunk.stop
        back += successor[at:high]
        if is_open:
            self.end = (*back, *self.end)
            self.tail = low
            del self.hunks[first:]
            return
        growth = size - (stop - start)
        self.hunks[first:last] = [Hunk(low, high + growth, tuple(back))]
        if growth:
            self.tail += growth
            later = slice(first + 1, None)
            self.hunks[later] = [Hunk(hunk.start + growth, hunk.stop + growth, hunk.nodes) for hunk in self.hunks[later]]

    def undo(self, nodes: list[Node]) -> None:
        """Turn the successor's nodes into the older list's, in place."""
        nodes[self.tail :] = self.end
        for hunk in reversed(self.hunks):
            nodes[hunk.start : hunk.stop] = hunk.nodes

    def restored_nodes(self) -> Iterator[Node]:
        """Yield the nodes of the older list that this delta puts back."""
        for hunk in self.hunks:
            yield from hunk.nodes
        yield from self.end

    def copy(self) -> Delta:
        return Delta(self.tail, self.end, list(self.hunks))
