"""Put a graph together from parts that a store kept, and go on with one that was not read at all.

The codec reads what strangers wrote and looks at everything. These parts are our own and were authenticated: nothing is checked again,
so that a long conversation is there at once; `verify()` still computes every id from the content.

Knows nothing about where parts are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hermes.graph.call import CallRecord
from hermes.graph.codec import decode_call, decode_graph
from hermes.graph.context import Overlay
from hermes.graph.delta import Delta
from hermes.graph.graph import MessageGraph
from hermes.graph.history import GraphHistory, Sample
from hermes.graph.message import METADATA, FrozenDict, FrozenList
from hermes.graph.node import AttachedChat, Node, Tombstone


class LazySample(Sample):
    """A sample whose call is read when it is first asked for: a list and its ids need no calls, and they are most of what is stored."""

    __slots__ = ("unread",)

    unread: bytes

    @classmethod
    def of(cls, head: int, index: int, sample_id: str, overlay: Overlay, sealed: str, *, unread: bytes) -> LazySample:
        """`unread` is the JSON of what `encode_call` gave."""
        sample = cls(head, index, sample_id, overlay, None, sealed)
        del sample.call
        sample.unread = unread
        return sample

    def __getattr__(self, name: str) -> CallRecord:
        if name != "call":
            raise AttributeError(name)
        self.call = call = decode_call(json.loads(self.unread), self.overlay, self.sample_id)
        return call


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A kept version: its number, its successor's, the kind of the edge between them, and the way back from the next version."""

    number: int
    successor: int
    kind: str
    delta: Delta


def history_of(graph: MessageGraph) -> GraphHistory:
    """The state behind a graph. Hold its lock while reading it; never edit it."""
    return graph._history


def continue_graph(head: str, live: int) -> MessageGraph:
    """Return an empty graph whose ids go on from the context id `head`, as those of the whole list would; `live` is that list's number.

    What is appended to it gets exactly the ids that it would get behind the whole list. Indices count from 0."""
    graph = MessageGraph()
    history = history_of(graph)
    history.live = history.numbers = live
    history._ids = [bytes.fromhex(head)]
    return graph


def restore_graph(
    seed: str,
    nodes: Sequence[Node],
    *,
    heads: Sequence[StoredVersion],
    live: int,
    samples: Iterable[Sample],
    annotations: Iterable[tuple[str, FrozenDict]],
    erased: Iterable[bytes],
) -> MessageGraph:
    """Return the graph with this current list; all else in the order in which it came about."""
    history = GraphHistory(seed)
    history.nodes = list(nodes)
    history.kept = [head.number for head in heads]
    history.places = {head.number: place for place, head in enumerate(heads)}
    history.deltas = [head.delta for head in heads]
    history.edges = [(head.number, head.successor, head.kind) for head in heads]
    history.live, history.numbers = live, max(live, *history.kept, 0)
    history.compare_heads()
    history.samples = list(samples)
    history.settled = len(history.samples)
    history.fresh = sorted({sample.index for sample in history.settle() if sample.head == live})
    for response, note in annotations:
        history.annotations.setdefault(response, []).append(note)
    history.erased = set(erased)
    return MessageGraph._open(history)


def restore_chat(graph: Mapping[str, Any], chats: Sequence[AttachedChat]) -> AttachedChat:
    """Return an attached chat from what `encode_graph` wrote; `chats` are those that it may refer to."""
    return AttachedChat(decode_graph(graph, "chat", chats), MessageGraph._open)


def restore_node(value: Any, digest: bytes, chats: Sequence[AttachedChat]) -> Node:
    """Return the node that `encode_node` wrote as `value`, which is frozen in place."""
    if type(value) is list:
        _, role, _, *chat = value
        return Tombstone.of(role, digest, *(chats[number] for number in chat))
    for key, field in value.items():
        if type(field) in _CHANGEABLE:
            value[key] = _restore_metadata(field, chats) if key == METADATA else freeze_trusted(field)
    node = Node(value)
    node._digest = digest
    return node


def freeze_trusted(value: Any) -> Any:
    """Freeze what JSON gave, as `freeze` does, without looking for faults."""
    if type(value) is dict:
        return FrozenDict({key: freeze_trusted(item) for key, item in value.items()})
    return FrozenList([freeze_trusted(item) for item in value]) if type(value) is list else value


_CHANGEABLE = frozenset((dict, list))


def _restore_metadata(side: Mapping[str, Any], chats: Sequence[AttachedChat]) -> FrozenDict:
    chat = side.get("chat")
    fields = {key: freeze_trusted(item) for key, item in side.items()}
    return FrozenDict(fields if chat is None else {**fields, "chat": chats[chat["graph"]]})  # in the place it had
