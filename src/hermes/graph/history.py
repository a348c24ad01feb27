"""The whole state of a graph: the current list, the kept heads, the table of samples. Data and reading only; edits are next door.

Every sample lies on a head: the message of sample (head, index) is the head's node at `index`, its context the nodes before.
Heads are numbered once and for all; the current list has a number too (`live`) and keeps it when it becomes a kept version."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.message import FrozenDict, digest
from hermes.graph.node import Node, common_prefix, extend_ids, root_id
from hermes.graph.splice import Delta

PLAIN = Overlay()
SNAPSHOT_EVERY = 64
"""A full list of pointers for every so many versions: reading an old version undoes at most this many deltas."""


@dataclass(slots=True)
class Sample:
    """One sampled response: where it lies, what was sent beyond the list, and the call. Only `sealed` ever changes."""

    head: int
    index: int
    sample_id: str
    overlay: Overlay = PLAIN
    call: CallRecord | None = None
    sealed: str | None = None
    """The response id as first computed or as loaded; `verify` compares it with what the content gives."""


class Spine:
    """How far each kept head agrees with the current list: heads grouped by depth, then by their next node.

    `depth` is the deepest agreement: a sample below it lies on a kept head too. Exact without comparing whole lists, because
    an edit at k can only shorten agreements beyond k (to exactly k), and lengthen those that ended at k."""

    __slots__ = ("depth", "depths", "groups")

    def __init__(self) -> None:
        self.depth = -1
        self.depths: list[int] = []
        self.groups: list[dict[bytes | None, list[int]]] = []

    def put(self, depth: int, key: bytes | None, head: int) -> None:
        """Enter a head that agrees up to `depth` and goes on with the node `key` (None: it ends there)."""
        at = bisect_left(self.depths, depth)
        if at == len(self.depths) or self.depths[at] != depth:
            self.depths.insert(at, depth)
            self.groups.insert(at, {})
        self.groups[at].setdefault(key, []).append(head)
        self.depth = self.depths[-1]

    def take(self, depth: int, key: bytes) -> list[int]:
        """Remove and return the heads that agree up to `depth`, the deepest there is, and go on with `key`."""
        if self.depth != depth:
            return []
        heads = self.groups[-1].pop(key, [])
        if not self.groups[-1]:
            self._drop_last()
        return heads

    def cut(self, depth: int, key: bytes) -> None:
        """The list changes at `depth`, where it had the node `key`: no head agrees any further than that."""
        moved: list[int] = []
        while self.depth > depth:
            for heads in self.groups[-1].values():
                small, large = sorted((heads, moved), key=len)
                large.extend(small)
                moved = large
            self._drop_last()
        if moved:
            self.put(depth, key, moved.pop())
            self.groups[-1][key].extend(moved)

    def heads_at(self, depth: int, key: bytes) -> list[int]:
        at = bisect_left(self.depths, depth)
        return self.groups[at].get(key, []) if at < len(self.depths) and self.depths[at] == depth else []

    def agreement(self) -> dict[int, int]:
        """Return the depth of every kept head."""
        return {head: depth for depth, group in zip(self.depths, self.groups, strict=True) for heads in group.values() for head in heads}

    def copy(self) -> Spine:
        twin = Spine()
        twin.depth, twin.depths = self.depth, list(self.depths)
        twin.groups = [{key: list(heads) for key, heads in group.items()} for group in self.groups]
        return twin

    def _drop_last(self) -> None:
        self.depths.pop()
        self.groups.pop()
        self.depth = self.depths[-1] if self.depths else -1


class History:
    """The current list and everything that came before it. Not thread-safe by itself: callers hold `lock`."""

    __slots__ = (
        *("annotations", "deltas", "edges", "erased", "fresh", "kept", "live", "lock", "nodes", "numbers", "places", "revision"),
        *("samples", "settled", "snapshots", "spine", "_by_id", "_ids", "_last", "_last_ids", "_seed"),
    )

    def __init__(self, seed: str | None = None) -> None:
        self.lock = threading.RLock()
        self._seed = seed
        self.nodes: list[Node] = []
        """The current list."""
        self.live = 0
        """The current list's number."""
        self.numbers = 0
        """The highest number given to a head."""
        self.kept: list[int] = []
        """The kept heads, oldest first."""
        self.places: dict[int, int] = {}
        """Head number to place in `kept`."""
        self.deltas: list[Delta] = []
        """For each kept head the way back to it from the next one; the last one's next is the current list."""
        self.edges: list[tuple[int, int, str]] = []
        """Parallel edges: kept head, its successor, kind."""
        self.samples: list[Sample | int] = []
        """In the order of sampling. A bare index is a plain response of the current list that nobody has asked about yet."""
        self.settled = 0
        """Up to here `samples` holds no bare index."""
        self.fresh: list[int] = []
        """Indices of the samples that lie on the current list and were not there when a version was last kept, ascending."""
        self.spine = Spine()
        self.snapshots: dict[int, tuple[Node, ...]] = {}
        self.annotations: dict[str, list[FrozenDict]] = {}
        self.erased: set[bytes] = set()
        """Digests of erased content."""
        self.revision = 0
        """Rises with every change of the current list's content other than appending."""
        self._by_id: dict[str, int] = {}
        self._ids: list[bytes] = []
        self._last: tuple[int, list[Node]] | None = None
        self._last_ids: tuple[list[Node], list[bytes]] | None = None

    @property
    def seed(self) -> str:
        """What makes this conversation's ids its own; random unless given, made when first needed."""
        if self._seed is None:
            self._seed = os.urandom(16).hex()
        return self._seed

    # Heads -------------------------------------------------------------------------------------------------------

    def nodes_at(self, place: int) -> list[Node]:
        """Return the nodes of a version by its place; the list is shared: read it, never change it."""
        if place == len(self.kept):
            return self.nodes
        if self._last is not None and self._last[0] == place:
            return self._last[1]
        start = place
        while start < len(self.kept) and start not in self.snapshots:
            start += 1
        nodes = list(self.snapshots.get(start, self.nodes))
        for later in range(start - 1, place - 1, -1):
            self.deltas[later].undo(nodes)
        self._last = (place, nodes)
        return nodes

    def nodes_of(self, head: int) -> list[Node]:
        return self.nodes_at(self.place_of(head))

    def place_of(self, head: int) -> int:
        return len(self.kept) if head == self.live else self.places[head]

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node of every version once: the current list's, then what each delta restores."""
        seen: set[int] = set()
        for nodes in (self.nodes, *(delta.restored() for delta in reversed(self.deltas))):
            for node in nodes:
                if id(node) not in seen:
                    seen.add(id(node))
                    yield node

    # Ids ---------------------------------------------------------------------------------------------------------

    def id_of(self, place: int, length: int) -> bytes:
        """Return the context id of the first `length` messages of a version."""
        nodes = self.nodes_at(place)
        if nodes is self.nodes:
            ids = self._ids = self._ids or [root_id(self.seed)]
        elif self._last_ids is not None and self._last_ids[0] is nodes:
            ids = self._last_ids[1]
        else:
            # Neighbouring versions agree for most of their length: take over the ids of the agreeing part.
            other, known = self._last_ids or (self.nodes, self._ids or [root_id(self.seed)])
            ids = known[: 1 + min(_identical(nodes, other, len(known) - 1), length)]
            self._last_ids = (nodes, ids)
        extend_ids(ids, nodes, length)
        return ids[length]

    def forget_ids(self, length: int) -> None:
        """The current list changed behind its first `length` messages."""
        del self._ids[length + 1 :]

    def forget_reading(self) -> None:
        """Drop what was only kept to make the next reading faster."""
        self._last = self._last_ids = None

    # Samples -----------------------------------------------------------------------------------------------------

    def settle(self) -> list[Sample]:
        """Give every bare index its sample id, and return all samples."""
        for at in range(self.settled, len(self.samples)):
            sample = self.samples[at]
            if isinstance(sample, int):
                self.samples[at] = Sample(self.live, sample, new_sample_id())
        self.settled = len(self.samples)
        return self.samples  # type: ignore[return-value]  # no bare index is left

    def find(self, sample_id: str) -> Sample | None:
        """Return the sample with that id, if this graph (attached chats not counted) has one."""
        samples = self.settle()
        for at in range(len(self._by_id), len(samples)):
            self._by_id[samples[at].sample_id] = at
        return samples[self._by_id[sample_id]] if sample_id in self._by_id else None

    def add_sample(self, sample: Sample) -> None:
        """Enter a sample that lies on one of the heads."""
        self.settle()
        self.samples.append(sample)
        self.settled += 1
        if sample.head == self.live:
            at = bisect_left(self.fresh, sample.index)
            if at == len(self.fresh) or self.fresh[at] != sample.index:
                insort(self.fresh, sample.index)

    def response_id(self, sample: Sample) -> str:
        """Compute the id: context, overlay, message, sample id and call, so that a change in any of them is another id."""
        place = self.place_of(sample.head)
        parts = (
            self.id_of(place, sample.index),
            sample.overlay.digest,
            self.nodes_at(place)[sample.index].digest,
            digest(sample.sample_id.encode("utf-8", "surrogatepass")),
            sample.call.compute_digest() if sample.call is not None else bytes(32),
        )
        return digest(b"hermes.response\0" + b"".join(parts)).hex()

    def seal(self, sample: Sample) -> str:
        """Return the response's id; the first answer stands."""
        if sample.sealed is None:
            sample.sealed = self.response_id(sample)
        return sample.sealed

    def samples_on(self, place: int) -> dict[int, list[Sample]]:
        """Return a version's sampled slots by index: those on whose exact prefix a response with that message hangs."""
        found: dict[int, list[Sample]] = {}
        depths = self.agreement() if place == len(self.kept) else dict[int, int]()
        for sample in self.settle():
            if sample.head not in depths:
                depths[sample.head] = common_prefix(self.nodes_at(place), self.nodes_of(sample.head))
            if sample.index < depths[sample.head]:
                found.setdefault(sample.index, []).append(sample)
        return found

    def agreement(self) -> dict[int, int]:
        """Return for every head how far it agrees with the current list."""
        return {**self.spine.agreement(), self.live: len(self.nodes)}

    # Copies ------------------------------------------------------------------------------------------------------

    def copy(self) -> History:
        """Return an independent history with the same content; nodes, finished deltas and samples are shared."""
        twin = History(self.seed)
        twin.nodes, twin.live, twin.numbers = list(self.nodes), self.live, self.numbers
        twin.kept, twin.places, twin.edges = list(self.kept), dict(self.places), list(self.edges)
        twin.deltas = [*self.deltas[:-1], *(delta.copy() for delta in self.deltas[-1:])]
        twin.samples, twin.settled = list(self.settle()), self.settled
        twin.fresh, twin.spine, twin.snapshots = list(self.fresh), self.spine.copy(), dict(self.snapshots)
        twin.annotations = {key: list(notes) for key, notes in self.annotations.items()}
        twin.erased = set(self.erased)
        return twin

    def fork(self, length: int) -> History:
        """Return a history that starts with the first `length` messages and the samples on them, without older versions."""
        twin = History(self.seed)
        twin.nodes = self.nodes[:length]
        depths = self.agreement()
        for sample in self.settle():
            if sample.index < min(length, depths[sample.head]):
                twin.add_sample(Sample(twin.live, sample.index, sample.sample_id, sample.overlay, sample.call, self.seal(sample)))
                if sample.sealed in self.annotations:
                    twin.annotations[sample.sealed] = list(self.annotations[sample.sealed])
        twin.erased = set(self.erased)
        return twin


def new_sample_id() -> str:
    return os.urandom(16).hex()


def _identical(one: list[Node], other: list[Node], limit: int) -> int:
    end = min(len(one), len(other), limit)
    return next((index for index in range(end) if one[index] is not other[index]), end)
