"""The whole state of a graph: the current list, the kept heads, the table of samples. Data and reading only; `edit.py` changes it.

Every sample lies on a head: the message of sample (head, index) is the head's node at `index`, its context the nodes before.
A head's number never changes; the current list has a number too (`live`) and keeps it when it becomes a kept version."""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import compress
from operator import is_not

from hermes.graph.call import CallRecord
from hermes.graph.context import Overlay
from hermes.graph.delta import Delta
from hermes.graph.message import FrozenDict
from hermes.graph.node import Node, common_prefix, extend_ids, root_id
from hermes.graph.token_arrays import PromptDigests
from hermes.graph.version_tree import VersionTree

EMPTY_OVERLAY = Overlay()
SNAPSHOT_EVERY = 64
"""One version in this many is kept as a full list of pointers: reading an old version undoes at most this many deltas."""


@dataclass(slots=True)
class Sample:
    """One sampled response: where it lies, what was sent beyond the list, and the call. Only `sealed` ever changes."""

    head: int
    index: int
    sample_id: str
    overlay: Overlay = EMPTY_OVERLAY
    call: CallRecord | None = None
    sealed: str | None = None
    """The response id as first computed or as loaded; `verify` compares it with the id computed from the content."""
    is_recorded: bool = False
    """Whether a document without a root gave the id: then nothing else protects the response, and later documents write the id too."""


class GraphHistory:
    """The current list and all kept versions. Not thread-safe by itself: the caller holds `lock`."""

    __slots__ = (
        *("annotations", "base", "deltas", "edges", "erased", "fresh", "kept", "live", "lock", "nodes", "numbers", "places"),
        *(
            "broken_root",
            "is_rootless",
            "prompt_digests",
            "revision",
            "root_read",
            "samples",
            "settled",
            "since",
            "snapshots",
            "version_tree",
        ),
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
        """For each kept head the delta that restores it from the next head; after the last head comes the current list."""
        self.edges: list[tuple[int, int, str]] = []
        """Parallel edges: kept head, its successor, kind."""
        self.samples: list[Sample | int] = []
        """In the order of sampling. A bare index is a plain response of the current list whose sample was not read yet."""
        self.settled = 0
        """The first `settled` entries of `samples` are no bare indices."""
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
        """All samples of the current list that lie on no kept head are in `samples[since:]`."""
        self.base: object = None
        """A store's own notes on the stored state that this one grew from. Nothing here reads it; copies have it too."""
        self.broken_root: str | None = None
        """The root of the document that the graph was read from, if its content had another root; later documents say so too."""
        self.root_read: str | None = None
        """The root of the document that the graph was read from, if it held; stays the same when the graph changes."""
        self.is_rootless = False
        """Whether the graph was read from a document without a root."""
        self.prompt_digests = PromptDigests()
        self._by_id: dict[str, int] = {}
        self._slots: tuple[object, dict[int, list[Sample]]] | None = None
        self._keys: tuple[int, dict[bytes, list[Sample]]] | None = None
        self._ids: list[bytes] = []
        self._last: tuple[int, list[Node]] | None = None
        self._last_ids: tuple[Sequence[Node], list[bytes]] | None = None

    @property
    def seed(self) -> str:
        """The text that makes this conversation's ids differ from any other's; random unless given, made when first needed."""
        with self.lock:
            if self._seed is None:
                self._seed = os.urandom(16).hex()
            return self._seed

    # Heads -------------------------------------------------------------------------------------------------------

    def nodes_at(self, place: int) -> Sequence[Node]:
        """Return the nodes of a version by its place; the nodes of a kept version never change."""
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
        """Add a list of nodes as the newest kept head; `edge` is its successor and the kind of the edge to it."""
        place = self.places[head] = len(self.kept)
        self.kept.append(head)
        self.deltas.append(delta)
        self.edges.append((head, *edge))
        if place % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
            self.snapshots[place] = tuple(nodes)

    def compare_heads(self) -> None:
        """Build the version tree of all kept heads, after a whole history was loaded at once."""
        successor, depth = list(self.nodes), len(self.nodes)
        for place in range(len(self.kept) - 1, -1, -1):
            older, delta = list(successor), self.deltas[place]
            delta.undo(older)
            if place % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1:
                self.snapshots[place] = tuple(older)
            # How far this head agrees with the current list follows from its neighbours; only a tie needs a comparison.
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
        """Return every node of every version once: the current list's nodes, then those that each delta restores."""
        if not self.deltas:
            return iter(list(self.nodes))  # each slot has a node object of its own
        seen: dict[int, Node] = {id(node): node for node in self.nodes}
        for delta in reversed(self.deltas):
            for node in delta.restored_nodes():
                seen.setdefault(id(node), node)
        return iter(seen.values())

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
        """Drop the ids after the first `length` messages of the current list, because the list changed there."""
        with self.lock:
            del self._ids[length + 1 :]

    def forget_reading(self) -> None:
        """Drop the caches that make the next reading faster."""
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
        """Return the place in `samples` of the sample with that id; None if this graph, without its attached chats, has none."""
        samples = self.settle()
        for at in range(len(self._by_id), len(samples)):
            self._by_id[samples[at].sample_id] = at
        return self._by_id.get(sample_id)

    def add_sample(self, sample: Sample) -> int:
        """Add a sample that lies on one of the heads; return its place in `samples`."""
        self.settle()
        self.samples.append(sample)
        self.settled += 1
        if sample.head == self.live:
            at = bisect_left(self.fresh, sample.index)
            if at == len(self.fresh) or self.fresh[at] != sample.index:
                insort(self.fresh, sample.index)
        return len(self.samples) - 1

    def load_samples(self, samples: list[Sample]) -> None:
        """Take over all samples of a history that was loaded at once; each lies on one of the heads and has a name of its own."""
        self.samples = list(samples)
        self.settled = len(samples)
        self.fresh = sorted({sample.index for sample in samples if sample.head == self.live})

    def response_id(self, sample: Sample, call: bytes | None = None) -> str:
        """Compute the id from context, overlay, message, sample id and call, so that a change in any of them gives another id.

        `call` is the digest of the sample's call, if it is computed already."""
        if sample.call is not None and call is None:
            sample.call.seal(self.prompt_digests)
            call = sample.call.digest
        place = self.place_of(sample.head)
        message = self.nodes_at(place)[sample.index]
        return response_id(self.id_of(place, sample.index), sample.overlay, message, sample.sample_id, call)

    def seal(self, sample: Sample) -> str:
        """Return the response's id; it is computed once and then kept."""
        if sample.sealed is None:
            sample.sealed = self.response_id(sample)
        return sample.sealed

    def load_list(self, nodes: list[Node], samples: list[Sample], ids: list[bytes]) -> None:
        """Take over a graph that is one list; `ids` are the context ids of its first messages, from the empty context on."""
        self.nodes, self._ids = nodes, ids
        self.load_samples(samples)

    def load_versions(self, deltas: list[Delta], edges: list[tuple[int, int, str]]) -> None:
        """Take over all kept versions, oldest first, of a history whose current list was loaded; `edges` join places."""
        self.deltas, self.edges = deltas, edges
        self.kept = list(range(len(deltas)))
        self.places = {place: place for place in self.kept}
        self.live = self.numbers = len(deltas)
        self.compare_heads()

    def slots(self) -> dict[int, list[Sample]]:
        """Return the sampled slots of the current list by index: where a model sampled this message in exactly this prefix."""
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
        """Return for every head, the current list included, how far it agrees with the current list."""
        return {**self.version_tree.agreement(), self.live: len(self.nodes)}

    # Copies ------------------------------------------------------------------------------------------------------

    def copy(self) -> GraphHistory:
        """Return an independent history with the same content; nodes, finished deltas and samples are shared."""
        copied = GraphHistory(self.seed)
        copied.nodes, copied.live, copied.numbers = list(self.nodes), self.live, self.numbers
        copied.kept, copied.places, copied.edges = list(self.kept), dict(self.places), list(self.edges)
        copied.deltas = [*self.deltas[:-1], *(delta.copy() for delta in self.deltas[-1:])]
        copied.samples, copied.settled, copied.since = list(self.settle()), self.settled, self.since
        copied.fresh, copied.version_tree, copied.snapshots = list(self.fresh), self.version_tree.copy(), dict(self.snapshots)
        copied.annotations = {key: list(notes) for key, notes in self.annotations.items()}
        copied.erased, copied.base = set(self.erased), self.base
        copied.broken_root, copied.is_rootless = self.broken_root, self.is_rootless
        return copied

    def fork(self, length: int) -> GraphHistory:
        """Return a history that starts with the first `length` messages and the samples on them, without older versions."""
        forked = GraphHistory(self.seed)
        forked.nodes = self.nodes[:length]
        depths = self.agreement()
        for sample in self.settle():
            if sample.index < min(length, depths[sample.head]):
                forked.add_sample(replace(sample, head=forked.live, sealed=self.seal(sample)))
                if sample.sealed in self.annotations:
                    forked.annotations[sample.sealed] = list(self.annotations[sample.sealed])
        for chat in (node.chat for node in forked.nodes):
            for name in self.annotations.keys() & (chat.response_ids if chat is not None else ()):
                forked.annotations[name] = list(self.annotations[name])
        forked.erased, forked.broken_root, forked.is_rootless = set(self.erased), self.broken_root, self.is_rootless
        return forked


def response_id(context: bytes, overlay: Overlay, message: Node, sample_id: str, call: bytes | None) -> str:
    """Return the id of a response from all that it identifies; `context` is the id of the messages before it, `call` the call's digest."""
    name = sha256(sample_id.encode("utf-8", "surrogatepass")).digest()
    parts = (b"hermes.response\0", context, overlay.digest, message.digest, name, call or bytes(32))
    return sha256(b"".join(parts)).hexdigest()


def new_sample_id() -> str:
    return os.urandom(16).hex()


def _identical_length(one: Sequence[Node], other: Sequence[Node], limit: int) -> int:
    end = min(len(one), len(other), limit)
    return next(compress(range(end), map(is_not, one, other)), end)
