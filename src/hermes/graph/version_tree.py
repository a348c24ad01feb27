"""How far each kept head agrees with the current list, without comparing lists.

The kept heads form a prefix tree; the current list is a walk in it. `entries` are the places on that walk where heads leave it:
at depth d, the heads that agree with the list in their first d messages and go on otherwise, as twigs by their next message.

An edit at k can only shorten agreements beyond k, to exactly k: those parts of the walk fold into one twig. And it can only
lengthen those that ended at k: the walk goes on into the twig that starts with the new message, if there is one. A twig moves
as a whole, whatever number of heads it holds. Twigs are never changed in place, so copies of a graph share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hermes.graph.node import Node, common_prefix

ReadHead = Callable[[int], Sequence[Node]]
"""Gives the nodes of a kept head by its number."""


@dataclass(frozen=True, slots=True)
class VersionBranch:
    """Heads that agree up to `depth`; `head` is one of them, to read the shared messages from."""

    depth: int
    head: int
    below: dict[bytes, VersionBranch]
    """The heads that go on, by the digest of their next message."""
    ended: tuple[int, ...] = ()
    """The heads that end here."""


class BranchPoint(NamedTuple):
    """A place on the walk: what leaves it at this depth."""

    depth: int
    below: dict[bytes, VersionBranch]
    ended: tuple[int, ...]


class VersionTree:
    """The walk of the current list through the tree of kept heads."""

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.depth = -1
        """The deepest agreement: a sample before it lies on a kept head too."""
        self.entries: list[BranchPoint] = []

    def keep(self, head: int, length: int) -> None:
        """Enter the current list itself as a head."""
        self._push(length, {}, (head,))

    def add(self, head: int, nodes: Sequence[Node], depth: int, read: ReadHead) -> None:
        """Enter a head that agrees with the current list up to `depth` and leaves it there."""
        at = bisect_left(self.entries, depth, key=lambda entry: entry.depth)
        if at == len(self.entries) or self.entries[at].depth != depth:
            self.entries.insert(at, BranchPoint(depth, {}, ()))
            self.depth = self.entries[-1].depth
        _, below, ended = self.entries[at]
        if depth == len(nodes):
            self.entries[at] = BranchPoint(depth, below, (*ended, head))
        else:
            key = nodes[depth].digest
            below[key] = _add_head(below.get(key), head, nodes, depth + 1, read)

    def cut(self, depth: int, nodes: Sequence[Node]) -> None:
        """The list `nodes` is about to change at `depth`: fold what agreed further into one twig there."""
        twig: VersionBranch | None = None
        while self.depth > depth:
            entry = self.entries.pop()
            if twig is not None:
                entry.below[nodes[entry.depth].digest] = twig
            head = twig.head if twig is not None else _any_head(entry)
            twig = VersionBranch(entry.depth, head, entry.below, entry.ended)
            self.depth = self.entries[-1].depth if self.entries else -1
        if twig is not None:
            if self.depth != depth:
                self._push(depth, {}, ())
            self.entries[-1].below[nodes[depth].digest] = twig

    def follow(self, depth: int, nodes: Sequence[Node], read: ReadHead) -> None:
        """The list has another node at `depth` now: walk on into the heads that agreed up to there, as far as they agree."""
        while self.depth == depth < len(nodes):
            twig = self.entries[-1].below.pop(nodes[depth].digest, None)
            if twig is None:
                return
            if not self.entries[-1].below and not self.entries[-1].ended:
                self.entries.pop()
            other = read(twig.head)
            depth = common_prefix(other[: twig.depth], nodes, depth + 1)
            if depth < twig.depth:
                self._push(depth, {other[depth].digest: twig}, ())
                return
            self._push(depth, dict(twig.below), twig.ended)

    def find(self, nodes: Sequence[Node], depth: int, read: ReadHead) -> int | None:
        """Return a head that starts with all of `nodes`, which agree with the current list up to `depth`, if there is one."""
        at = bisect_left(self.entries, depth, key=lambda entry: entry.depth)
        if at == len(self.entries) or self.entries[at].depth != depth:
            return None
        below = self.entries[at].below
        while True:
            twig = below.get(nodes[depth].digest)
            if twig is None:
                return None
            agreed = common_prefix(read(twig.head)[: twig.depth], nodes, depth + 1)
            if agreed == len(nodes):
                return twig.head
            if agreed < twig.depth:
                return None
            depth, below = agreed, twig.below

    def deepest_head(self) -> int:
        """Return a head that agrees with the list as far as any does."""
        return _any_head(self.entries[-1])

    def agreement(self) -> dict[int, int]:
        """Return for every kept head how far it agrees with the current list."""
        return {
            head: entry.depth
            for entry in self.entries
            for head in (*entry.ended, *(h for twig in entry.below.values() for h in _heads(twig)))
        }

    def copy(self) -> VersionTree:
        twin = VersionTree()
        twin.depth = self.depth
        twin.entries = [BranchPoint(depth, dict(below), ended) for depth, below, ended in self.entries]
        return twin

    def _push(self, depth: int, below: dict[bytes, VersionBranch], ended: tuple[int, ...]) -> None:
        """Put an entry at the end of the walk, or join it to the one that is there."""
        if self.depth == depth:
            last = self.entries.pop()
            below, ended = {**last.below, **below}, (*last.ended, *ended)
        self.entries.append(BranchPoint(depth, below, ended))
        self.depth = depth


def _add_head(twig: VersionBranch | None, head: int, nodes: Sequence[Node], depth: int, read: ReadHead) -> VersionBranch:
    """Return the twig with one more head, whose first `depth` messages agree with it; twigs on the way are made anew."""
    new = VersionBranch(len(nodes), head, {}, (head,))
    path: list[tuple[VersionBranch, bytes]] = []
    while twig is not None:
        other = read(twig.head)
        agreed = common_prefix(other[: twig.depth], nodes, depth)
        if agreed < twig.depth:  # it leaves in the middle: a fork there
            forked = {other[agreed].digest: twig}
            if agreed < len(nodes):
                forked[nodes[agreed].digest] = new
            new = VersionBranch(agreed, head, forked, () if agreed < len(nodes) else (head,))
            break
        if agreed == len(nodes):
            new = replace(twig, ended=(*twig.ended, head))
            break
        key = nodes[agreed].digest
        path.append((twig, key))
        twig, depth = twig.below.get(key), agreed + 1
    for above, key in reversed(path):
        new = replace(above, below={**above.below, key: new})
    return new


def _any_head(entry: BranchPoint) -> int:
    return entry.ended[0] if entry.ended else next(iter(entry.below.values())).head


def _heads(twig: VersionBranch) -> Iterator[int]:
    stack = [twig]
    while stack:
        at = stack.pop()
        yield from at.ended
        stack += at.below.values()
