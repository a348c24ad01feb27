"""The shape and the messages of a graph that is in memory: of a chat that is attached to a message, whose rows are no rows of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hermes.graph.history import GraphHistory
from hermes.graph.message import METADATA
from hermes.graph.node import Node
from hermes.ports.conversations import GraphMessage, GraphShape, SampleCall, ShapeHunk, ShapeSample, ShapeVersion


def shape_of(history: GraphHistory) -> GraphShape:
    """Return the shape of a graph. Equal messages with the same attached chat have equal addresses, as in the store."""
    with history.lock:
        nodes = list(history.all_nodes())
        numbers = {id(node): number for number, node in enumerate(nodes)}

        def refs(some: Iterable[Node]) -> list[int]:
            return [numbers[id(node)] for node in some]

        versions = [
            ShapeVersion(
                number, successor, kind, delta.tail, refs(delta.end), [ShapeHunk(h.start, h.stop, refs(h.nodes)) for h in delta.hunks]
            )
            for (number, successor, kind), delta in zip(history.edges, history.deltas, strict=True)
        ]
        samples = [ShapeSample(sample.head, sample.index, history.seal(sample)) for sample in history.settle()]
        return GraphShape(history.live, [address_of(node) for node in nodes], refs(history.nodes), versions, samples)


def address_of(node: Node) -> bytes:
    chat = node.chat
    return node.digest if chat is None else node.digest + id(chat.history).to_bytes(8)


def messages_of(history: GraphHistory, chats: Mapping[int, int]) -> dict[bytes, GraphMessage]:
    """Return the messages of a graph by their addresses; `chats` are the numbers of attached chats by the object id of their history."""
    with history.lock:
        return {address_of(node): read_node(node, chats) for node in history.all_nodes()}


def read_node(node: Node, chats: Mapping[int, int]) -> GraphMessage:
    chat = node.chat
    fields = {name: value for name, value in node.items() if name != METADATA}
    return GraphMessage(node["role"], fields, node.redacted, None if chat is None else chats.get(id(chat.history)))


def calls_of(history: GraphHistory) -> dict[str, SampleCall]:
    """Return the calls of a graph's samples, by the response's id."""
    with history.lock:
        found = {}
        for sample in history.settle():
            call = sample.call
            if call is None:
                found[history.seal(sample)] = SampleCall(sample.sample_id, None, None, {}, {})
            else:
                found[history.seal(sample)] = SampleCall(
                    sample.sample_id, call.model, call.finish_reason, call.usage or {}, call.extra or {}
                )
        return found
