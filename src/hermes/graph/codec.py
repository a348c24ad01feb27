"""Graphs as JSON: versioned, byte-stable; decoding what was encoded gives the same graph. Anything else raises CodecError with the path
to the fault.

    {"format": "hermes.graph", "version": 1, "graphs": [ …attached chats…, the graph itself ]}

Chats attached to messages are graphs of the same list, each before the first graph that refers to it, so the document stays flat
however deep chats are nested. In one graph:

    messages     every message once; the first `length` of them are the current list; ["redacted", role, digest, chat?] is a tombstone
    versions     kept versions, oldest first, each as the delta that restores it from the next one
    edges        [version, its successor, kind]
    overlays     what calls sent beyond the list, each once
    responses    {"at": [version, index], "id", "sample_id", "overlay"?, "call"?}
    annotations  {response id: [annotation, …]}
    erased       digests of erased messages
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hermes.graph.call import CallRecord, check_hex
from hermes.graph.context import Overlay
from hermes.graph.delta import Delta, Hunk
from hermes.graph.errors import CallError, CodecError, MessageError
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample
from hermes.graph.message import METADATA, FrozenDict, check_message, compact_json, freeze_items, freeze_object
from hermes.graph.node import AttachedChat, Node, Tombstone, attached_chats

FORMAT = "hermes.graph"
VERSION = 1


def encode(top: GraphHistory) -> str:
    """Write a graph and all the chats attached in it, keys in their own order."""
    numbers: dict[int, int] = {}
    graphs: list[dict[str, Any]] = []
    for history in (*(chat.history for chat in attached_chats(top.all_nodes())), top):
        graphs.append(encode_graph(history, numbers))
        numbers[id(history)] = len(numbers)
    return compact_json({"format": FORMAT, "version": VERSION, "graphs": graphs})


def encode_graph(history: GraphHistory, graphs: Mapping[int, int]) -> dict[str, Any]:
    """Write one graph of a document; `graphs` holds the numbers of the chats attached to it, by the id of their history."""
    nodes = list(history.all_nodes())
    refs = {id(node): ref for ref, node in enumerate(nodes)}
    overlays: dict[str, tuple[int, dict[str, Any]]] = {}
    samples = []
    for sample in history.settle():
        entry: dict[str, Any] = {"at": [history.place_of(sample.head), sample.index], "id": history.seal(sample)}
        entry["sample_id"] = sample.sample_id
        if sample.overlay != EMPTY_OVERLAY:
            overlay = sample.overlay.to_dict()
            entry["overlay"] = overlays.setdefault(compact_json(overlay), (len(overlays), overlay))[0]
        if sample.call is not None:
            entry["call"] = encode_call(sample.call, sample)
        samples.append(entry)
    return {
        "seed": history.seed,
        "length": len(history.nodes),
        "messages": [encode_node(node, graphs) for node in nodes],
        "versions": [
            {
                "tail": delta.tail,
                "end": [refs[id(node)] for node in delta.end],
                "hunks": [[hunk.start, hunk.stop, [refs[id(node)] for node in hunk.nodes]] for hunk in delta.hunks],
            }
            for delta in history.deltas
        ],
        "edges": [[history.place_of(head), history.place_of(successor), kind] for head, successor, kind in history.edges],
        "overlays": [overlay for _, overlay in overlays.values()],
        "responses": samples,
        "annotations": history.annotations,
        "erased": sorted(digest.hex() for digest in history.erased),
    }


def encode_call(record: CallRecord, sample: Sample) -> dict[str, Any]:
    """Return the call as JSON values; a value that the overlay or the sample has too is written as `true`."""
    call = record.to_dict()
    for name, value in (("tools", sample.overlay.tools), ("template_id", sample.overlay.template_id), ("sample_id", sample.sample_id)):
        if name in call and call[name] == value:
            call[name] = True
    return call


def encode_node(node: Node, graphs: Mapping[int, int]) -> Any:
    """Return a message in the form it has in `messages`."""
    chat = node.chat
    if node.redacted:
        return ["redacted", node["role"], node.digest.hex(), *([] if chat is None else [graphs[id(chat.history)]])]
    if chat is None:
        return node
    return {**node, METADATA: {**node[METADATA], "chat": {"graph": graphs[id(chat.history)]}}}


def decode(text: str | bytes, open_graph: Callable[[GraphHistory], Any]) -> GraphHistory:
    """Read a graph; raise CodecError with the path to the first fault. Never returns a part of a graph."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CodecError("document", f"not JSON ({error})") from None
    root = _object(document, "document")
    if root.get("format") != FORMAT:
        raise CodecError("format", f"expected {FORMAT!r}, got {root.get('format')!r}")
    if type(root.get("version")) is not int or root["version"] != VERSION:
        raise CodecError("version", f"this reader knows version {VERSION}, the document says {root.get('version')!r}")
    _only(root, {"format", "version", "graphs"}, "document")
    graphs = _list(root.get("graphs"), "graphs")
    if not graphs:
        raise CodecError("graphs", "empty; the last one is the graph itself")
    chats: list[AttachedChat] = []
    history = GraphHistory()
    for number, graph in enumerate(graphs):
        path = f"graphs[{number}]"
        try:
            history = decode_graph(_object(graph, path), path, chats)
        except (MessageError, CallError) as error:
            raise CodecError(error.path, error.reason) from None
        if number < len(graphs) - 1:
            chats.append(AttachedChat(history, open_graph))
    return history


def decode_graph(graph: Mapping[str, Any], path: str, chats: Sequence[AttachedChat]) -> GraphHistory:
    """Read one graph of a document; `chats` are the graphs before it. Raises CodecError, MessageError or CallError."""
    return _GraphReader(graph, path, chats).read()


class _GraphReader:
    """Reads one graph of the document."""

    def __init__(self, graph: Mapping[str, Any], path: str, chats: Sequence[AttachedChat]) -> None:
        self.graph, self.path, self.chats = graph, path, chats
        fields = {"seed", "length", "messages", "versions", "edges", "overlays", "responses", "annotations", "erased"}
        _only(graph, fields, path)
        self.history = GraphHistory(_text(graph.get("seed"), f"{path}.seed"))

    def part(self, name: str) -> list[tuple[str, Any]]:
        path = f"{self.path}.{name}"
        return [(f"{path}[{index}]", value) for index, value in enumerate(_list(self.graph.get(name), path))]

    def read(self) -> GraphHistory:
        nodes = [self.node(value, path) for path, value in self.part("messages")]
        length = _number(self.graph.get("length"), f"{self.path}.length", len(nodes) + 1)
        self.history.nodes = nodes[:length]
        self.versions(nodes)
        self.edges()
        self.responses([self.overlay(value, path) for path, value in self.part("overlays")])
        self.annotations()
        for path, value in self.part("erased"):
            check_hex(_text(value, path), path)
            self.history.erased.add(bytes.fromhex(value))
        return self.history

    def node(self, value: Any, path: str) -> Node:
        if isinstance(value, list):
            if len(value) not in (3, 4) or value[0] != "redacted":
                raise CodecError(path, "expected a message or a tombstone")
            role = check_message({"role": value[1]}, path, self.metadata)["role"]
            check_hex(_text(value[2], f"{path}[2]"), f"{path}[2]")
            return Tombstone.of(role, bytes.fromhex(value[2]), *(self.chat(number, f"{path}[3]") for number in value[3:]))
        return Node(check_message(_object(value, path), path, self.metadata))

    def metadata(self, value: Any, path: str) -> FrozenDict:
        fields = dict(_object(value, path))
        if fields.get("chat") is None:
            return FrozenDict(freeze_items(fields, path))
        reference = _object(fields["chat"], f"{path}.chat")
        _only(reference, {"graph"}, f"{path}.chat")
        chat = self.chat(reference.get("graph"), f"{path}.chat.graph")
        if fields.get("length") != len(chat):
            raise CodecError(f"{path}.length", f"{fields.get('length')!r}, but the attached chat has {len(chat)} messages")
        return FrozenDict({**dict(freeze_items(fields, path)), "chat": chat})  # the key keeps its place

    def chat(self, number: Any, path: str) -> AttachedChat:
        return self.chats[_number(number, path, len(self.chats))]

    def versions(self, nodes: list[Node]) -> None:
        history = self.history
        entries = self.part("versions")
        nodes_after = list(history.nodes)  # newest first: each version is a delta on the one after it
        for path, value in reversed(entries):
            delta = self.delta(_object(value, path), path, nodes, len(nodes_after))
            history.deltas.append(delta)
            delta.undo(nodes_after)
        history.deltas.reverse()
        history.kept = list(range(len(entries)))
        history.places = {place: place for place in history.kept}
        history.live = history.numbers = len(entries)
        history.compare_heads()

    def delta(self, value: Mapping[str, Any], path: str, nodes: list[Node], length: int) -> Delta:
        _only(value, {"tail", "end", "hunks"}, path)
        tail = _number(value.get("tail"), f"{path}.tail", length + 1)

        def pick(refs: Any, where: str) -> tuple[Node, ...]:
            return tuple(nodes[_number(ref, f"{where}[{index}]", len(nodes))] for index, ref in enumerate(_list(refs, where)))

        hunks: list[Hunk] = []
        last = 0
        for index, value_at in enumerate(_list(value.get("hunks"), f"{path}.hunks")):
            where = f"{path}.hunks[{index}]"
            if len(_list(value_at, where)) != 3:
                raise CodecError(where, "expected [start, stop, messages]")
            start, stop = (_number(end, where, tail + 1) for end in value_at[:2])
            if not last <= start <= stop:
                raise CodecError(where, "hunks must be in ascending order and apart")
            hunks.append(Hunk(start, stop, pick(value_at[2], f"{where}[2]")))
            last = stop
        return Delta(tail, pick(value.get("end"), f"{path}.end"), hunks)

    def edges(self) -> None:
        history = self.history
        entries = self.part("edges")
        if len(entries) != len(history.kept):
            raise CodecError(f"{self.path}.edges", f"expected one for each of {len(history.kept)} versions")
        for place, (path, value) in enumerate(entries):
            if len(_list(value, path)) != 3:
                raise CodecError(path, "expected [version, successor, kind]")
            source = _number(value[0], path, len(entries))
            target = _number(value[1], path, len(entries) + 1)
            if source != place or target <= source:
                raise CodecError(path, "expected an edge from this version to a later one")
            history.edges.append((source, target, _text(value[2], path)))

    def overlay(self, value: Any, path: str) -> Overlay:
        known = _object(value, path)
        _only(known, {"tools", "ephemeral", "keep_reasoning", "template_id"}, path)
        try:
            return Overlay(**known)
        except MessageError as error:
            raise CodecError(f"{path}.{error.path}", error.reason) from None

    def responses(self, overlays: list[Overlay]) -> None:
        history = self.history
        for path, value in self.part("responses"):
            entry = _object(value, path)
            _only(entry, {"at", "id", "sample_id", "overlay", "call"}, path)
            if len(_list(entry.get("at"), f"{path}.at")) != 2:
                raise CodecError(f"{path}.at", "expected [version, index]")
            place = _number(entry["at"][0], f"{path}.at[0]", len(history.kept) + 1)
            index = _number(entry["at"][1], f"{path}.at[1]", len(history.nodes_at(place)))
            sample_id = _text(entry.get("sample_id"), f"{path}.sample_id")
            if not sample_id or history.find(sample_id) is not None:
                raise CodecError(f"{path}.sample_id", "empty or used twice")
            check_hex(_text(entry.get("id"), f"{path}.id"), f"{path}.id")
            overlay = overlays[_number(entry["overlay"], f"{path}.overlay", len(overlays))] if "overlay" in entry else EMPTY_OVERLAY
            call = self.call(entry["call"], f"{path}.call", overlay, sample_id) if "call" in entry else None
            history.add_sample(Sample(place, index, sample_id, overlay, call, entry["id"]))

    def call(self, value: Any, path: str, overlay: Overlay, sample_id: str) -> CallRecord:
        try:
            return decode_call(_object(value, path), overlay, sample_id)
        except CallError as error:
            raise CodecError(path + error.path.removeprefix("call"), error.reason) from None

    def annotations(self) -> None:
        path = f"{self.path}.annotations"
        for known, notes in _object(self.graph.get("annotations"), path).items():
            check_hex(known, f"{path}.{known[:80]}")
            where = f"{path}.{known}"
            checked = [freeze_object(_object(note, where), where) for note in _list(notes, where)]
            self.history.annotations[known] = [note for note in checked if note is not None]


def decode_call(value: Mapping[str, Any], overlay: Overlay, sample_id: str) -> CallRecord:
    """Read what `encode_call` wrote; raise CallError."""
    fields = dict(value)
    for name, known in (("tools", overlay.tools), ("template_id", overlay.template_id), ("sample_id", sample_id)):
        if fields.get(name) is True:
            fields[name] = known
    return CallRecord.from_dict(fields)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise CodecError(path, f"expected an object, got {type(value).__name__}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise CodecError(path, f"expected a list, got {type(value).__name__}")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise CodecError(path, f"expected text, got {type(value).__name__}")
    return value


def _number(value: Any, path: str, limit: int) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise CodecError(path, f"expected a whole number under {limit}, got {value!r:.40}")
    return value


def _only(value: Mapping[str, Any], known: set[str], path: str) -> None:
    for name in value:
        if name not in known:
            raise CodecError(f"{path}.{name}", "unknown field")
