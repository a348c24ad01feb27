"""How far each kept head agrees with the current list, without comparing whole lists.

The kept heads form a prefix tree; the current list is a path in it. A branch point is a place on that path where heads leave it:
at depth d, the heads that agree with the list in their first d messages and then differ, as branches by their next message.

An edit at k shortens only agreements longer than k, to exactly k: that part of the path is folded into one branch. It lengthens
only agreements that ended at k: the path continues into the branch that starts with the new message, if there is one. A branch moves
as a whole, however many heads it holds. Branches are never changed in place, so copies of a graph share them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hermes.graph.node import Node, common_prefix

ReadHead = Callable[[int], Sequence[Node]]
"""Returns the nodes of a kept head by its number."""


@dataclass(frozen=True, slots=True)
class VersionBranch:
    """Heads that agree up to `depth`. The shared messages are read from `head`, which is one of them."""

    depth: int
    head: int
    below: dict[bytes, VersionBranch]
    """The heads that are longer, by the digest of their next message."""
    ended: tuple[int, ...] = ()
    """The heads that end here."""


class BranchPoint(NamedTuple):
    """A place on the current list's path, with the heads that leave the path at this depth."""

    depth: int
    below: dict[bytes, VersionBranch]
    ended: tuple[int, ...]


class VersionTree:
    """The path of the current list through the tree of kept heads."""

    __slots__ = ("branch_points", "depth")

    def __init__(self) -> None:
        self.depth = -1
        """The deepest agreement: a sample before it lies on a kept head too."""
        self.branch_points: list[BranchPoint] = []

    def keep(self, head: int, length: int) -> None:
        """Add the current list itself as a head."""
        self._push(length, {}, (head,))

    def add(self, head: int, nodes: Sequence[Node], depth: int, read: ReadHead) -> None:
        """Add a head that agrees with the current list up to `depth` and leaves it there."""
        at = bisect_left(self.branch_points, depth, key=lambda point: point.depth)
        if at == len(self.branch_points) or self.branch_points[at].depth != depth:
            self.branch_points.insert(at, BranchPoint(depth, {}, ()))
            self.depth = self.branch_points[-1].depth
        _, below, ended = self.branch_points[at]
        if depth == len(nodes):
            self.branch_points[at] = BranchPoint(depth, below, (*ended, head))
        else:
            key = nodes[depth].digest
            below[key] = _add_head(below.get(key), head, nodes, depth + 1, read)

    def cut(self, depth: int, nodes: Sequence[Node]) -> None:
        """Fold all longer agreements into one branch at `depth`, because the list `nodes` is about to change there."""
        branch: VersionBranch | None = None
        while self.depth > depth:
            point = self.branch_points.pop()
            if branch is not None:
                point.below[nodes[point.depth].digest] = branch
            head = branch.head if branch is not None else _any_head(point)
            branch = VersionBranch(point.depth, head, point.below, point.ended)
            self.depth = self.branch_points[-1].depth if self.branch_points else -1
        if branch is not None:
            if self.depth != depth:
                self._push(depth, {}, ())
            self.branch_points[-1].below[nodes[depth].digest] = branch

    def follow(self, depth: int, nodes: Sequence[Node], read: ReadHead) -> None:
        """Continue the path into the heads that agree with the new node at `depth`, as far as they agree."""
        while self.depth == depth < len(nodes):
            branch = self.branch_points[-1].below.pop(nodes[depth].digest, None)
            if branch is None:
                return
            if not self.branch_points[-1].below and not self.branch_points[-1].ended:
                self.branch_points.pop()
            other = read(branch.head)
            depth = common_prefix(other[: branch.depth], nodes, depth + 1)
            if depth < branch.depth:
                self._push(depth, {other[depth].digest: branch}, ())
                return
            self._push(depth, dict(branch.below), branch.ended)

    def find(self, nodes: Sequence[Node], depth: int, read: ReadHead) -> int | None:
        """Return a head that starts with all of `nodes`, which agree with the current list up to `depth`, if there is one."""
        at = bisect_left(self.branch_points, depth, key=lambda point: point.depth)
        if at == len(self.branch_points) or self.branch_points[at].depth != depth:
            return None
        below = self.branch_points[at].below
        while True:
            branch = below.get(nodes[depth].digest)
            if branch is None:
                return None
            agreed = common_prefix(read(branch.head)[: branch.depth], nodes, depth + 1)
            if agreed == len(nodes):
                return branch.head
            if agreed < branch.depth:
                return None
            depth, below = agreed, branch.below

    def deepest_head(self) -> int:
        """Return a head that agrees with the list as far as any does."""
        return _any_head(self.branch_points[-1])

    def agreement(self) -> dict[int, int]:
        """Return for every kept head how far it agrees with the current list."""
        return {
            head: point.depth
            for point in self.branch_points
            for head in (*point.ended, *(h for branch in point.below.values() for h in _heads(branch)))
        }

    def copy(self) -> VersionTree:
        copied = VersionTree()
        copied.depth = self.depth
        copied.branch_points = [BranchPoint(depth, dict(below), ended) for depth, below, ended in self.branch_points]
        return copied

    def _push(self, depth: int, below: dict[bytes, VersionBranch], ended: tuple[int, ...]) -> None:
        """Put a branch point at the end of the path, or merge it with the one that is there."""
        if self.depth == depth:
            last = self.branch_points.pop()
            below, ended = {**last.below, **below}, (*last.ended, *ended)
        self.branch_points.append(BranchPoint(depth, below, ended))
        self.depth = depth


def _add_head(branch: VersionBranch | None, head: int, nodes: Sequence[Node], depth: int, read: ReadHead) -> VersionBranch:
    """Return the branch with one more head, whose first `depth` messages agree with it; branches on the way to it are copied."""
    new = VersionBranch(len(nodes), head, {}, (head,))
    path: list[tuple[VersionBranch, bytes]] = []
    while branch is not None:
        other = read(branch.head)
        agreed = common_prefix(other[: branch.depth], nodes, depth)
        if agreed < branch.depth:  # the head leaves in the middle of the branch: fork there
            forked = {other[agreed].digest: branch}
            if agreed < len(nodes):
                forked[nodes[agreed].digest] = new
            new = VersionBranch(agreed, head, forked, () if agreed < len(nodes) else (head,))
            break
        if agreed == len(nodes):
            new = replace(branch, ended=(*branch.ended, head))
            break
        key = nodes[agreed].digest
        path.append((branch, key))
        branch, depth = branch.below.get(key), agreed + 1
    for above, key in reversed(path):
        new = replace(above, below={**above.below, key: new})
    return new


def _any_head(point: BranchPoint) -> int:
    return point.ended[0] if point.ended else next(iter(point.below.values())).head


def _heads(branch: VersionBranch) -> Iterator[int]:
    stack = [branch]
    while stack:
        at = stack.pop()
        yield from at.ended
        stack += at.below.values()
