"""The whole state of a graph: the current list, the kept heads, the table of samples. Data and reading only; edits are next door.

Every sample lies on a head: the message of sample (head, index) is the head's node at `index`, its context the nodes before.
Heads are numbered once and for all; the current list has a number too (`live`) and keeps it when it becomes a kept version."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.delta import Delta
from hermes.graph.message import FrozenDict, digest
from hermes.graph.node import Node, common_prefix, extend_ids, root_id
from hermes.graph.version_tree import VersionTree

EMPTY_OVERLAY = Overlay()
SNAPSHOT_EVERY = 64
"""A full list of pointers for every so many versions: reading an old version undoes at most this many deltas."""


@dataclass(slots=True)
class Sample:
    """One sampled response: where it lies, what was sent beyond the list, and the call. Only `sealed` ever changes."""

    head: int
    index: int
    sample_id: str
    overlay: Overlay = EMPTY_OVERLAY
    call: CallRecord | None = None
    sealed: str | None = None
    """The response id as first computed or as loaded; `verify` compares it with what the content gives."""


class GraphHistory:
    """The current list and everything that came before it. Not thread-safe by itself: callers hold `lock`."""

    __slots__ = (
        *("annotations", "base", "deltas", "edges", "erased", "fresh", "kept", "live", "lock", "nodes", "numbers", "places"),
        *("revision", "samples", "settled", "since", "snapshots", "version_tree"),
        *("_by_id", "_ids", "_keys", "_last", "_last_ids", "_seed", "_slots"),
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
        self.version_tree = VersionTree()
        self.snapshots: dict[int, tuple[Node, ...]] = {}
        self.annotations: dict[str, list[FrozenDict]] = {}
        self.erased: set[bytes] = set()
        """Digests of erased content."""
        self.revision = 0
        """Rises with every change of the current list's content other than appending."""
        self.since = 0
        """Samples of the current list that lie on no kept head come from here on in `samples`."""
        self.base: object = None
        """What a store knows about the state that this one grew from. Nothing here reads it; copies have it too."""
        self._by_id: dict[str, int] = {}
        self._slots: tuple[object, dict[int, list[Sample]]] | None = None
        self._keys: tuple[int, dict[bytes, list[Sample]]] | None = None
        self._ids: list[bytes] = []
        self._last: tuple[int, list[Node]] | None = None
        self._last_ids: tuple[Sequence[Node], list[bytes]] | None = None

    @property
    def seed(self) -> str:
        """What makes this conversation's ids its own; random unless given, made when first needed."""
        with self.lock:
            if self._seed is None:
                self._seed = os.urandom(16).hex()
            return self._seed

    # Heads -------------------------------------------------------------------------------------------------------

    def nodes_at(self, place: int) -> Sequence[Node]:
        """Return the nodes of a version by its place; those of a kept version never change."""
        with self.lock:
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

    def enter(self, head: int, delta: Delta, edge: tuple[int, str], nodes: Sequence[Node]) -> None:
        """Make a list of nodes the newest kept head; `edge` is its successor and the kind of the edge to it."""
        place = self.places[head] = len(self.kept)
        self.kept.append(head)
        self.deltas.append(delta)
        self.edges.append((head, *edge))
        if place % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
            self.snapshots[place] = tuple(nodes)

    def compare_heads(self) -> None:
        """Find out how far each kept head agrees with the current list, when all of them were put here at once."""
        successor, depth = list(self.nodes), len(self.nodes)
        for place in range(len(self.kept) - 1, -1, -1):
            older, delta = list(successor), self.deltas[place]
            delta.undo(older)
            if place % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
                self.snapshots[place] = tuple(older)
            # Agreement with the current list follows from that of the neighbours, but for a tie.
            unchanged = delta.hunks[0].start if delta.hunks else delta.tail
            step = common_prefix(older, successor, min(unchanged, len(older)))
            depth = common_prefix(older, self.nodes, depth) if step == depth else min(step, depth)
            self.version_tree.add(self.kept[place], older, depth, self.nodes_of)
            successor = older

    def nodes_of(self, head: int) -> Sequence[Node]:
        return self.nodes_at(self.place_of(head))

    def place_of(self, head: int) -> int:
        return len(self.kept) if head == self.live else self.places[head]

    def all_nodes(self) -> Iterator[Node]:
        """Yield every node of every version once: the current list's, then what each delta restores."""
        seen: set[int] = set()
        for nodes in (self.nodes, *(delta.restored_nodes() for delta in reversed(self.deltas))):
            for node in nodes:
                if id(node) not in seen:
                    seen.add(id(node))
                    yield node

    # Ids ---------------------------------------------------------------------------------------------------------

    def id_of(self, place: int, length: int) -> bytes:
        """Return the context id of the first `length` messages of a version."""
        with self.lock:
            nodes = self.nodes_at(place)
            if nodes is self.nodes:
                ids = self._ids = self._ids or [root_id(self.seed)]
            elif self._last_ids is not None and self._last_ids[0] is nodes:
                ids = self._last_ids[1]
            else:
                # Neighbouring versions agree for most of their length: take over the ids of the agreeing part.
                other, known = self._last_ids or (self.nodes, self._ids or [root_id(self.seed)])
                ids = known[: 1 + min(_identical_length(nodes, other, len(known) - 1), length)]
                self._last_ids = (nodes, ids)
            extend_ids(ids, nodes, length)
            return ids[length]

    def forget_ids(self, length: int) -> None:
        """The current list changed behind its first `length` messages."""
        with self.lock:
            del self._ids[length + 1 :]

    def forget_reading(self) -> None:
        """Drop what was only kept to make the next reading faster."""
        with self.lock:
            self._last = self._last_ids = self._slots = self._keys = None

    # Samples -----------------------------------------------------------------------------------------------------

    def settle(self) -> list[Sample]:
        """Give every bare index its sample id, and return all samples."""
        if self.settled == len(self.samples):
            return self.samples  # type: ignore[return-value]  # no bare index is left
        with self.lock:
            for at in range(self.settled, len(self.samples)):
                sample = self.samples[at]
                if isinstance(sample, int):
                    self.samples[at] = Sample(self.live, sample, new_sample_id())
            self.settled = len(self.samples)
            return self.samples  # type: ignore[return-value]  # no bare index is left

    def find(self, sample_id: str) -> int | None:
        """Return the place in `samples` of the sample with that id, if this graph (attached chats not counted) has one."""
        samples = self.settle()
        for at in range(len(self._by_id), len(samples)):
            self._by_id[samples[at].sample_id] = at
        return self._by_id.get(sample_id)

    def add_sample(self, sample: Sample) -> int:
        """Enter a sample that lies on one of the heads; return its place in `samples`."""
        self.settle()
        self.samples.append(sample)
        self.settled += 1
        if sample.head == self.live:
            at = bisect_left(self.fresh, sample.index)
            if at == len(self.fresh) or self.fresh[at] != sample.index:
                insort(self.fresh, sample.index)
        return len(self.samples) - 1

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

    def slots(self) -> dict[int, list[Sample]]:
        """Return the current list's sampled slots by index: those on whose exact prefix a response with that message hangs."""
        with self.lock:
            state = (self.revision, len(self.nodes), len(self.samples), len(self.kept))
            if self._slots is None or self._slots[0] != state:
                depths, found = self.agreement(), dict[int, list[Sample]]()
                for sample in self.settle():
                    if sample.index < depths[sample.head]:
                        found.setdefault(sample.index, []).append(sample)
                self._slots = (state, found)
            return self._slots[1]

    def slots_at(self, place: int) -> dict[int, list[Sample]]:
        """Return the sampled slots of any version, found by context ids."""
        with self.lock:
            if place == len(self.kept):
                return self.slots()
            if self._keys is None or self._keys[0] != len(self.samples):
                keys: dict[bytes, list[Sample]] = {}
                for sample in sorted(self.settle(), key=lambda sample: self.place_of(sample.head)):
                    keys.setdefault(self.id_of(self.place_of(sample.head), sample.index + 1), []).append(sample)
                self._keys = (len(self.samples), keys)
            keys = self._keys[1]
            found = ((index, keys.get(self.id_of(place, index + 1))) for index in range(len(self.nodes_at(place))))
            return {index: samples for index, samples in found if samples}

    def agreement(self) -> dict[int, int]:
        """Return for every head how far it agrees with the current list."""
        return {**self.version_tree.agreement(), self.live: len(self.nodes)}

    # Copies ------------------------------------------------------------------------------------------------------

    def copy(self) -> GraphHistory:
        """Return an independent history with the same content; nodes, finished deltas and samples are shared."""
        twin = GraphHistory(self.seed)
        twin.nodes, twin.live, twin.numbers = list(self.nodes), self.live, self.numbers
        twin.kept, twin.places, twin.edges = list(self.kept), dict(self.places), list(self.edges)
        twin.deltas = [*self.deltas[:-1], *(delta.copy() for delta in self.deltas[-1:])]
        twin.samples, twin.settled, twin.since = list(self.settle()), self.settled, self.since
        twin.fresh, twin.version_tree, twin.snapshots = list(self.fresh), self.version_tree.copy(), dict(self.snapshots)
        twin.annotations = {key: list(notes) for key, notes in self.annotations.items()}
        twin.erased, twin.base = set(self.erased), self.base
        return twin

    def fork(self, length: int) -> GraphHistory:
        """Return a history that starts with the first `length` messages and the samples on them, without older versions."""
        twin = GraphHistory(self.seed)
        twin.nodes = self.nodes[:length]
        depths = self.agreement()
        for sample in self.settle():
            if sample.index < min(length, depths[sample.head]):
                twin.add_sample(Sample(twin.live, sample.index, sample.sample_id, sample.overlay, sample.call, self.seal(sample)))
                if sample.sealed in self.annotations:
                    twin.annotations[sample.sealed] = list(self.annotations[sample.sealed])
        for chat in (node.chat for node in twin.nodes):
            for name in self.annotations.keys() & (chat.response_ids if chat is not None else ()):
                twin.annotations[name] = list(self.annotations[name])
        twin.erased = set(self.erased)
        return twin


def new_sample_id() -> str:
    return os.urandom(16).hex()


def _identical_length(one: Sequence[Node], other: Sequence[Node], limit: int) -> int:
    end = min(len(one), len(other), limit)
    return next((index for index in range(end) if one[index] is not other[index]), end)
