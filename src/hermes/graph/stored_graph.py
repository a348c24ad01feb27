"""Build a graph from the parts that a store kept, and continue a graph without reading it.

The codec reads untrusted documents and checks everything. The store wrote and authenticated these parts, so nothing is checked again,
and a long conversation loads fast; `verify()` still computes every id from the content.

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
from hermes.graph.response import Response, ResponseParts
from hermes.graph.traversal import read_responses


class LazySample(Sample):
    """A sample whose call is decoded at its first use: a list and its ids need no calls, and calls are most of what is stored."""

    __slots__ = ("unread",)

    unread: bytes

    @classmethod
    def of(cls, head: int, index: int, sample_id: str, overlay: Overlay, sealed: str, *, unread: bytes) -> LazySample:
        """Return a sample; `unread` is the JSON of what `encode_call` returned."""
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
    """A kept version: its number, its successor's number, the kind of the edge between them, and the delta from the next version."""

    number: int
    successor: int
    kind: str
    delta: Delta


def history_of(graph: MessageGraph) -> GraphHistory:
    """Return the state behind a graph. Hold its lock while reading it; never edit it."""
    return graph._history


def open_graph(history: GraphHistory) -> MessageGraph:
    """Return the graph with this state."""
    return MessageGraph._open(history)


def responses_of(graph: MessageGraph) -> list[tuple[Response, ResponseParts]]:
    """Return every response that `graph.responses()` yields, and what its `read` gives: much faster than one after the other."""
    with graph._history.lock:
        return read_responses(graph._history)


def continue_graph(head: str, live: int) -> MessageGraph:
    """Return an empty graph whose ids continue from the context id `head` of a stored list; `live` is that list's number.

    A message appended to it gets exactly the ids that it would get at the end of the whole list. Indices count from 0."""
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
    """Return the graph with this current list; heads, samples and annotations are given oldest first."""
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
    """Return an attached chat from what `encode_graph` wrote; `chats` are the chats that it may refer to."""
    history = decode_graph(graph, "chat", chats)
    for sample in history.settle():
        sample.is_recorded = False  # the store authenticates what it gives back, so documents need not write the id
    return AttachedChat(history, MessageGraph._open)


def restore_node(value: Any, digest: bytes, chats: Sequence[AttachedChat]) -> Node:
    """Return the node that `encode_node` wrote as `value`; `value` itself is frozen and used, not copied."""
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
    """Freeze a value decoded from JSON, as `freeze` does, without looking for faults."""
    if type(value) is dict:
        return FrozenDict({key: freeze_trusted(item) for key, item in value.items()})
    return FrozenList([freeze_trusted(item) for item in value]) if type(value) is list else value


_CHANGEABLE = frozenset((dict, list))


def _restore_metadata(metadata: Mapping[str, Any], chats: Sequence[AttachedChat]) -> FrozenDict:
    chat = metadata.get("chat")
    fields = {key: freeze_trusted(item) for key, item in metadata.items()}
    return FrozenDict(fields if chat is None else {**fields, "chat": chats[chat["graph"]]})  # the key keeps its place
