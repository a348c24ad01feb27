"""A message graph as rows: the changes since it was last stored, and the graph restored from all of its rows.

Rows follow the state of the graph. A message is stored once by content; a node is a number that names a message; the current list is a log
of splices over nodes; a kept version is the splice that restores it from the next version. So the cost of a save depends on the change, not
on the length of the graph. Only two changes alter rows that are already stored (an erasure, and the loss of an attached chat); after them
all rows are written again.

Knows how rows are sealed, but no SQL. `migrations/0003_graph.sql` describes each table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from hermes.graph import MessageGraph, Overlay
from hermes.graph.codec import encode_call, encode_graph, encode_node
from hermes.graph.delta import Delta, Hunk
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample
from hermes.graph.message import compact_json
from hermes.graph.node import AttachedChat, Node, attached_chats
from hermes.graph.stored_graph import LazySample, StoredVersion, freeze_trusted, history_of, restore_chat, restore_graph, restore_node
from hermes.stores.seal import DataKeys

ADDRESS_BYTES = 16
DIGEST_BYTES = 32

Splice = tuple[int, int, list[Node]]
"""(start, stop, nodes): the nodes replace list[start:stop]."""


class BodyKind(StrEnum):
    """What a sealed body holds. Each kind has a label of its own, so that no body opens as another kind. Stored data depends on these
    values."""

    SEED = "seed"
    MESSAGE = "message"
    OVERLAY = "overlay"
    SAMPLE = "sample"
    NOTE = "note"
    CHAT = "chat"
    ERASED = "erased"


class SessionCipher:
    """Seals and opens the bodies of one session."""

    def __init__(self, keys: DataKeys, session_id: UUID) -> None:
        self._keys, self._label = keys, f"graph/{session_id}"

    def seal(self, kind: BodyKind, body: bytes) -> bytes:
        return self._keys.seal(f"{self._label}/{kind}", body)

    def open(self, kind: BodyKind, sealed: bytes) -> bytes:
        return self._keys.open(f"{self._label}/{kind}", sealed)

    def open_all(self, kind: BodyKind, sealed: Sequence[bytes] | None) -> list[bytes]:
        return self._keys.open_all(f"{self._label}/{kind}", sealed or ())

    def open_json(self, kind: BodyKind, sealed: Sequence[bytes] | None) -> list[Any]:
        """Open bodies that hold JSON. They are parsed in one piece, which is four times as fast as one by one."""
        return parse_bodies(self.open_all(kind, sealed))

    def address(self, kind: BodyKind, body: bytes) -> bytes:
        """The address of a body: equal for equal bodies of this session, and useless for testing guesses."""
        return self._keys.digest(f"{self._label}/{kind}", body)[:ADDRESS_BYTES]


def parse_bodies(bodies: Sequence[bytes]) -> list[Any]:
    parsed: list[Any] = json.loads(b"[" + b",".join(bodies) + b"]")
    return parsed


@dataclass(frozen=True, slots=True)
class SavedGraph:
    """The state of a graph as its rows have it. Objects are recognised by their ids, which stay valid because this keeps them alive."""

    mark: UUID
    session_id: UUID
    listed: Sequence[Node] = ()
    """The current list."""
    nodes: Sequence[Node] = ()
    """All nodes of all versions."""
    numbers: Mapping[int, int] = field(default_factory=dict)
    """Their numbers by object id."""
    addresses: Sequence[bytes] = ()
    """The addresses of their messages by number; also of nodes that are gone, because a number is never used again."""
    versions: int = 0
    last: str | None = None
    """The last kept version's splice as its row has it; the splices before it never change."""
    samples: Sequence[Sample] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    """How many annotations each response has."""
    chats: Mapping[int, int] = field(default_factory=dict)
    """The numbers of attached chats by the object id of their history."""
    erased: frozenset[bytes] = frozenset()


@dataclass(slots=True)
class GraphChanges:
    """The sealed rows to write. An empty field means that nothing of its kind changed."""

    messages: dict[bytes, bytes] = field(default_factory=dict)
    gone: list[bytes] = field(default_factory=list)
    """Addresses of messages that no version has any more."""
    nodes: list[bytes] = field(default_factory=list)
    """The new nodes' addresses."""
    splices: str | None = None
    """How the list changed, as JSON; None if the new nodes were appended."""
    first_version: int = 0
    versions: list[tuple[int, int, str, str]] = field(default_factory=list)
    """Number, successor, kind, splice: of the kept versions from `first_version` on."""
    overlays: dict[bytes, bytes] = field(default_factory=dict)
    samples: list[tuple[bytes, int, int, bytes, bytes | None, bytes]] = field(default_factory=list)
    """Name, head, index, response id, overlay's address, body."""
    moved: list[tuple[bytes, int]] = field(default_factory=list)
    """Name and new head of samples that are now found on another version."""
    notes: list[bytes] = field(default_factory=list)
    first_chat: int = 0
    chats: list[bytes] = field(default_factory=list)
    erased: bytes | None = None

    @property
    def is_empty(self) -> bool:
        return not (
            self.nodes or self.splices or self.versions or self.samples or self.moved or self.notes or self.chats or self.erased is not None
        )


def needs_full_rewrite(history: GraphHistory, saved: SavedGraph) -> bool:
    """Whether rows that are otherwise never changed must change: after an erasure, or when an attached chat is gone from all versions."""
    if history.erased != saved.erased:
        return True
    if not saved.chats:
        return False
    return bool(saved.chats.keys() - {id(chat.history) for chat in attached_chats(history.all_nodes())})


def changes_since(history: GraphHistory, saved: SavedGraph, cipher: SessionCipher, mark: UUID) -> tuple[GraphChanges, SavedGraph]:
    """The changes of a history since its saved state, and the saved state after they are written. The caller holds the history's lock."""
    changes = GraphChanges()
    nodes = list(history.all_nodes())
    new = [node for node in nodes if id(node) not in saved.numbers]
    chats = add_chats(changes, attached_chats(new), saved.chats, cipher)
    addresses = add_messages(changes, new, chats, saved.addresses, cipher)
    numbers = {**saved.numbers, **{id(node): number for number, node in enumerate(new, len(saved.addresses))}}
    if len(nodes) < len(numbers):
        held = {id(node) for node in nodes}
        numbers = {key: number for key, number in numbers.items() if key in held}
        gone = {addresses[number] for key, number in saved.numbers.items() if key not in held}
        changes.gone = sorted(gone.difference(addresses[number] for number in numbers.values())) if gone else []
    splices = list_splices(saved.listed, history.nodes)
    if not is_append(splices, len(saved.listed), new):
        changes.splices = compact_json([[start, stop, [numbers[id(node)] for node in put]] for start, stop, put in splices])
    add_versions(changes, history, saved, numbers)
    samples = history.settle()
    for at, sample in enumerate(samples[: len(saved.samples)]):
        if sample is not saved.samples[at]:
            changes.moved.append((sample_name(sample.sample_id, cipher), sample.head))
    add_samples(changes, history, samples[len(saved.samples) :], cipher)
    for response, notes in history.annotations.items():
        known = saved.notes.get(response, 0)
        changes.notes += [cipher.seal(BodyKind.NOTE, encode_json([response, note])) for note in notes[known:]]
    if history.erased != saved.erased:
        changes.erased = cipher.seal(BodyKind.ERASED, encode_json(sorted(digest.hex() for digest in history.erased)))
    return changes, SavedGraph(
        mark,
        saved.session_id,
        list(history.nodes),
        nodes,
        numbers,
        addresses,
        len(history.kept),
        version_splice(history.deltas[-1], numbers) if history.deltas else None,
        list(samples),
        {response: len(notes) for response, notes in history.annotations.items()},
        chats,
        frozenset(history.erased),
    )


def append_changes(history: GraphHistory, length: int, chats: int, cipher: SessionCipher) -> GraphChanges:
    """The contents of a graph made by `continue_graph`, as changes of the stored graph: a list of `length` messages with `chats` chats."""
    changes = GraphChanges(first_chat=chats)
    numbers = add_chats(changes, attached_chats(history.nodes), {}, cipher)
    add_messages(changes, history.nodes, numbers, (), cipher)
    add_samples(changes, history, history.settle(), cipher, shift=length)
    return changes


def add_chats(changes: GraphChanges, chats: Iterable[AttachedChat], known: Mapping[int, int], cipher: SessionCipher) -> Mapping[int, int]:
    """Add the new chats, children first, and return the numbers of all chats."""
    numbers = dict(known)
    first = changes.first_chat = changes.first_chat or len(known)
    for chat in chats:
        if id(chat.history) not in numbers:
            changes.chats.append(cipher.seal(BodyKind.CHAT, encode_json(encode_graph(chat.history, numbers))))
            numbers[id(chat.history)] = first + len(changes.chats) - 1
    return numbers


def add_messages(
    changes: GraphChanges, nodes: Iterable[Node], chats: Mapping[int, int], addresses: Sequence[bytes], cipher: SessionCipher
) -> list[bytes]:
    """Add the messages of new nodes, and return the addresses of all nodes by number."""
    for node in nodes:
        # The digest comes first: after a load, ids can be computed without hashing, and `verify` has a digest to compare with.
        body = node.digest + encode_json(encode_node(node, chats))
        address = cipher.address(BodyKind.MESSAGE, body)
        changes.nodes.append(address)
        if address not in changes.messages:
            changes.messages[address] = cipher.seal(BodyKind.MESSAGE, body)
    return [*addresses, *changes.nodes]


def add_versions(changes: GraphChanges, history: GraphHistory, saved: SavedGraph, numbers: Mapping[int, int]) -> None:
    is_changed = saved.last is not None and saved.last != version_splice(history.deltas[saved.versions - 1], numbers)
    first = changes.first_version = saved.versions - is_changed
    for delta, (head, successor, kind) in zip(history.deltas[first:], history.edges[first:], strict=True):
        changes.versions.append((head, successor, kind, version_splice(delta, numbers)))


def version_splice(delta: Delta, numbers: Mapping[int, int]) -> str:
    def refs(nodes: Iterable[Node]) -> list[int]:
        return [numbers[id(node)] for node in nodes]

    hunks = [[hunk.start, hunk.stop, refs(hunk.nodes)] for hunk in delta.hunks]
    return compact_json({"tail": delta.tail, "end": refs(delta.end), "hunks": hunks})


def add_samples(changes: GraphChanges, history: GraphHistory, samples: Iterable[Sample], cipher: SessionCipher, shift: int = 0) -> None:
    for sample in samples:
        overlay = None
        if sample.overlay != EMPTY_OVERLAY:
            body = sample.overlay.to_json()
            overlay = cipher.address(BodyKind.OVERLAY, body)
            if overlay not in changes.overlays:
                changes.overlays[overlay] = cipher.seal(BodyKind.OVERLAY, body)
        # Two lines, because the second one is parsed only when the call is asked for. JSON in ASCII has no line breaks of its own.
        call = b"" if sample.call is None else encode_json(encode_call(sample.call, sample))
        sealed = cipher.seal(BodyKind.SAMPLE, encode_json(sample.sample_id) + b"\n" + call)
        name, response = sample_name(sample.sample_id, cipher), bytes.fromhex(history.seal(sample))
        changes.samples.append((name, sample.head, sample.index + shift, response, overlay, sealed))


def sample_name(sample_id: str, cipher: SessionCipher) -> bytes:
    return cipher.address(BodyKind.SAMPLE, sample_id.encode("utf-8", "surrogatepass"))


def encode_json(value: Any) -> bytes:
    return compact_json(value).encode("ascii")


def list_splices(old: Sequence[Node], new: Sequence[Node]) -> list[Splice]:
    """The splices that turn one list into the other, in ascending order; all positions are those of the old list.

    [a b c d] to [a x c d e]: [(1, 2, [x]), (4, 4, [e])]. It compares node objects, not their content."""
    shorter = min(len(old), len(new))
    start = shared = 0
    while start < shorter and old[start] is new[start]:
        start += 1
    while shared < shorter - start and old[-1 - shared] is new[-1 - shared]:
        shared += 1
    stop = len(old) - shared
    places = {id(node): place for place, node in enumerate(old[start:stop], start)}
    splices: list[Splice] = []
    put: list[Node] = []
    for node in new[start : len(new) - shared]:
        place = places.get(id(node), -1)
        if place < start:  # a new node, or a node that stood before `start` in the old list
            put.append(node)
            continue
        if put or place > start:
            splices.append((start, place, put))
            put = []
        start = place + 1
    return [*splices, (start, stop, put)] if put or start < stop else splices


def is_append(splices: Sequence[Splice], length: int, new: Sequence[Node]) -> bool:
    """Whether the only change is that the new nodes were appended in order; also if nothing changed."""
    where = [(start, stop, [id(node) for node in put]) for start, stop, put in splices]
    return where == ([(length, length, [id(node) for node in new])] if new else [])


@dataclass(frozen=True, slots=True)
class GraphRows:
    """All rows of one session, as the query `load` names them. None means no rows."""

    user_id: UUID
    seed: bytes
    live: int
    mark: UUID
    erased: bytes | None
    log_nodes: list[bytes] | None
    log_splices: list[Any] | None
    addresses: list[bytes] | None
    messages: list[bytes] | None
    versions: list[Any] | None
    overlay_addresses: list[bytes] | None
    overlays: list[bytes] | None
    heads: list[int] | None
    indices: list[int] | None
    responses: list[bytes] | None
    sample_overlays: list[bytes | None] | None
    samples: list[bytes] | None
    notes: list[bytes] | None
    chats: list[bytes] | None


def graph_from(rows: GraphRows, session_id: UUID, cipher: SessionCipher) -> MessageGraph:
    """The graph of these rows. It remembers their state, so that a later save writes only changes."""
    chats: list[AttachedChat] = []
    for chat in cipher.open_json(BodyKind.CHAT, rows.chats):
        chats.append(restore_chat(chat, chats))
    addresses, listed = replay_log(rows.log_nodes or (), rows.log_splices or ())
    # Flat lists instead of a pair for each message: while a long list is built, the garbage collector walks all objects again and again.
    bodies = cipher.open_all(BodyKind.MESSAGE, rows.messages)
    values = parse_bodies([body[DIGEST_BYTES:] for body in bodies])
    found = {address: at for at, address in enumerate(rows.addresses or ())}
    nodes: dict[int, Node] = {}

    def pick(numbers: Sequence[int]) -> tuple[Node, ...]:
        for number in numbers:
            if number not in nodes:
                at = found[addresses[number]]
                nodes[number] = restore_node(values[at], bodies[at][:DIGEST_BYTES], chats)
        return tuple([nodes[number] for number in numbers])

    current = pick(listed)
    heads = [
        StoredVersion(
            number, successor, kind, Delta(splice["tail"], pick(splice["end"]), [Hunk(a, b, pick(put)) for a, b, put in splice["hunks"]])
        )
        for number, successor, kind, splice in rows.versions or ()
    ]
    erased = cipher.open_json(BodyKind.ERASED, [rows.erased] if rows.erased else [])
    graph = restore_graph(
        cipher.open(BodyKind.SEED, rows.seed).decode(),
        current,
        heads=heads,
        live=rows.live,
        samples=samples_from(rows, cipher),
        annotations=((response, freeze_trusted(note)) for response, note in cipher.open_json(BodyKind.NOTE, rows.notes)),
        erased=(bytes.fromhex(digest) for digests in erased for digest in digests),
    )
    history, numbers = history_of(graph), {id(node): number for number, node in nodes.items()}
    history.base = SavedGraph(
        rows.mark,
        session_id,
        current,
        list(nodes.values()),
        numbers,
        addresses,
        len(heads),
        version_splice(heads[-1].delta, numbers) if heads else None,
        list(history.settle()),
        {response: len(notes) for response, notes in history.annotations.items()},
        {id(chat.history): number for number, chat in enumerate(chats)},
        frozenset(history.erased),
    )
    return graph


def replay_log(log_nodes: Sequence[bytes], log_splices: Sequence[Any]) -> tuple[list[bytes], list[int]]:
    """The address of every node by number, and the numbers of the nodes in the current list."""
    addresses: list[bytes] = []
    listed: list[int] = []
    for packed, splices in zip(log_nodes, log_splices, strict=True):
        first = len(addresses)
        addresses += [packed[at : at + ADDRESS_BYTES] for at in range(0, len(packed), ADDRESS_BYTES)]
        if splices is None:
            listed += range(first, len(addresses))
            continue
        for start, stop, numbers in reversed(splices):
            listed[start:stop] = numbers
    return addresses, listed


def samples_from(rows: GraphRows, cipher: SessionCipher) -> list[Sample]:
    opened = cipher.open_json(BodyKind.OVERLAY, rows.overlays)
    overlays: dict[bytes | None, Overlay] = {
        address: Overlay(**body) for address, body in zip(rows.overlay_addresses or (), opened, strict=True)
    }
    overlays[None] = EMPTY_OVERLAY
    bodies = cipher.open_all(BodyKind.SAMPLE, rows.samples)
    names = parse_bodies([body[: body.index(b"\n")] for body in bodies])
    samples: list[Sample] = []
    places = zip(rows.heads or (), rows.indices or (), rows.responses or (), rows.sample_overlays or (), strict=True)
    for (head, index, response, address), sample_id, body in zip(places, names, bodies, strict=True):
        call = body[body.index(b"\n") + 1 :]
        if call:
            samples.append(LazySample.of(head, index, sample_id, overlays[address], response.hex(), unread=call))
        else:
            samples.append(Sample(head, index, sample_id, overlays[address], None, response.hex()))
    return samples
