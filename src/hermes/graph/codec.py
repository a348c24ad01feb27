"""Graphs as JSON: versioned, byte-stable; decoding what was encoded gives the same graph. Anything else raises CodecError with the path
to the fault.

    {"format": "hermes.graph", "version": 2, "root": …, "graphs": [ …attached chats…, the graph itself ]}

`root` is the root of the graph itself, which covers its attached chats (`root.py`). Chats attached to messages are graphs of the same
list, each before the first graph that refers to it, so the document stays flat however deep chats are nested. In one graph:

    messages     every message once; the first `length` of them are the current list; ["redacted", role, digest, chat?] is a tombstone
    versions     kept versions, oldest first, each as the delta that restores it from the next one
    edges        [version, its successor, kind]
    overlays     what calls sent beyond the list, each once
    responses    {"at": [version, index], "sample_id", "overlay"?, "call"?}; an `id` only if an old document recorded it
    annotations  {response id: [annotation, …]}
    erased       digests of erased messages
    broken_root  only if the graph was read from a document whose root did not hold

What several graphs of a document hold is written once (`shared_parts.py`), and a prompt as what it adds to an earlier one
(`prompt_deltas.py`). Documents of version 1 have none of this, and no root; they are still read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from hermes.graph.call import CallRecord, check_hex
from hermes.graph.context import Overlay
from hermes.graph.delta import Delta, Hunk
from hermes.graph.errors import CallError, CodecError, MessageError
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample
from hermes.graph.linear_document import read_linear
from hermes.graph.message import METADATA, FrozenDict, check_message, compact_json, freeze_items, freeze_object, is_plain
from hermes.graph.node import AttachedChat, Node, Tombstone, attached_chats
from hermes.graph.root import edges_as_json, root_of, versions_as_json
from hermes.graph.shared_parts import SharedPartsReader, SharedPartsWriter, check_number

FORMAT = "hermes.graph"
VERSION = 2
ROOTLESS_VERSION = 1
"""Documents of this version have no root and share nothing."""


def encode(top: GraphHistory) -> str:
    """Write a graph and all the chats attached in it, keys in their own order."""
    numbers: dict[int, int] = {}
    graphs: list[dict[str, Any]] = []
    chats = attached_chats(top.all_nodes())
    shared = SharedPartsWriter(are_messages_shared=bool(chats))
    for history in (*(chat.history for chat in chats), top):
        graphs.append(encode_graph(history, numbers, shared))
        numbers[id(history)] = len(numbers)
    return compact_json({"format": FORMAT, "version": VERSION, "root": root_of(top), "graphs": graphs})


def encode_graph(history: GraphHistory, graphs: Mapping[int, int], shared: SharedPartsWriter | None = None) -> dict[str, Any]:
    """Write one graph of a document; `graphs` holds the numbers of the chats attached to it, by the id of their history.

    With `shared`, parts that an earlier graph of the document has are references. Without it, the graph is written whole, as in
    version 1 and in stores, and every response with its id."""
    nodes = list(history.all_nodes())
    overlays: dict[str, tuple[int, dict[str, Any]]] = {}
    samples = []
    for sample in history.settle():
        entry: dict[str, Any] = {"at": [history.place_of(sample.head), sample.index]}
        samples.append(entry)
        same = shared.response(sample) if shared is not None else None
        if same is not None:
            entry["same"] = same
            continue
        if shared is None or sample.is_recorded:
            entry["id"] = history.seal(sample)
        entry["sample_id"] = sample.sample_id
        if sample.overlay != EMPTY_OVERLAY:
            overlay = sample.overlay.to_dict()
            entry["overlay"] = overlays.setdefault(compact_json(overlay), (len(overlays), overlay))[0]
        if sample.call is not None:
            entry["call"] = encode_call(sample.call, sample, shared)
    messages = [encode_node(node, graphs) for node in nodes]
    return {
        "seed": history.seed,
        "length": len(history.nodes),
        "messages": messages if shared is None else shared.messages(nodes, messages),
        "versions": list(versions_as_json(history, {id(node): ref for ref, node in enumerate(nodes)})),
        "edges": edges_as_json(history),
        "overlays": [overlay if shared is None else shared.overlay(text, overlay) for text, (_, overlay) in overlays.items()],
        "responses": samples,
        "annotations": history.annotations,
        "erased": sorted(digest.hex() for digest in history.erased),
        **({"broken_root": history.broken_root} if history.broken_root is not None else {}),
    }


def encode_call(record: CallRecord, sample: Sample, shared: SharedPartsWriter | None = None) -> dict[str, Any]:
    """Return the call as JSON values; a value that the overlay or the sample has too is written as `true`."""
    call = record.to_dict() if shared is None else shared.call(record)
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
        if not isinstance(text, str):
            text = text.decode("utf-8" if text.startswith(b'{"') else json.detect_encoding(text), "surrogatepass")
        document = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise CodecError("document", f"not JSON ({error})") from None
    root = _object(document, "document")
    if root.get("format") != FORMAT:
        raise CodecError("format", f"expected {FORMAT!r}, got {root.get('format')!r}")
    version = root.get("version")
    if type(version) is not int or version not in (ROOTLESS_VERSION, VERSION):
        raise CodecError("version", f"this reader knows versions {ROOTLESS_VERSION} and {VERSION}, the document says {version!r}")
    is_rootless = version == ROOTLESS_VERSION
    _only(root, ROOTLESS_DOCUMENT_FIELDS if is_rootless else DOCUMENT_FIELDS, "document")
    claimed = None if is_rootless else _text(root.get("root"), "root")
    graphs = _list(root.get("graphs"), "graphs")
    if not graphs:
        raise CodecError("graphs", "empty; the last one is the graph itself")
    if claimed is not None and len(graphs) == 1 and (linear := read_linear(graphs[0], claimed)) is not None:
        return linear
    shared = None if is_rootless else SharedPartsReader()
    try:
        chats: list[AttachedChat] = []
        for number, graph in enumerate(graphs[:-1]):
            chats.append(AttachedChat(_decode_numbered(graph, number, chats, shared), open_graph))
        history = _decode_numbered(graphs[-1], len(graphs) - 1, chats, shared)
    except (MessageError, CallError) as error:
        raise CodecError(error.path, error.reason) from None
    history.is_rootless = is_rootless
    if claimed is not None and history.broken_root is None:
        if root_of(history) == claimed:
            history.root_read = claimed
        else:
            history.broken_root = claimed
    return history


def _decode_numbered(graph: Any, number: int, chats: Sequence[AttachedChat], shared: SharedPartsReader | None) -> GraphHistory:
    path = f"graphs[{number}]"
    return decode_graph(_object(graph, path), path, chats, shared)


def decode_graph(
    graph: Mapping[str, Any], path: str, chats: Sequence[AttachedChat], shared: SharedPartsReader | None = None
) -> GraphHistory:
    """Read one graph of a document; `chats` are the graphs before it, and `shared` what they share with it, if they share anything.

    Raises CodecError, MessageError or CallError."""
    return _GraphReader(graph, path, chats, shared).read()


DOCUMENT_FIELDS = frozenset({"format", "version", "root", "graphs"})
ROOTLESS_DOCUMENT_FIELDS = DOCUMENT_FIELDS - {"root"}
GRAPH_FIELDS = frozenset(
    {"seed", "length", "messages", "versions", "edges", "overlays", "responses", "annotations", "erased", "broken_root"}
)
RESPONSE_FIELDS = frozenset({"at", "id", "sample_id", "overlay", "call"})


class _GraphReader:
    """Reads one graph of the document."""

    def __init__(self, graph: Mapping[str, Any], path: str, chats: Sequence[AttachedChat], shared: SharedPartsReader | None) -> None:
        self.graph, self.path, self.chats, self.shared = graph, path, chats, shared
        _only(graph, GRAPH_FIELDS, path)
        self.history = GraphHistory(_text(graph.get("seed"), f"{path}.seed"))

    def part(self, name: str) -> list[tuple[str, Any]]:
        path = f"{self.path}.{name}"
        values = self.graph.get(name)
        return [(f"{path}[{index}]", value) for index, value in enumerate(_list(values, path))] if values != [] else []

    def read(self) -> GraphHistory:
        nodes = self.nodes()
        length = check_number(self.graph.get("length"), f"{self.path}.length", len(nodes) + 1)
        self.history.nodes = nodes[:length]
        self.versions(nodes)
        if self.shared is not None and length < len(nodes) and len(list(self.history.all_nodes())) < len(nodes):
            raise CodecError(f"{self.path}.messages", "a message that no version has")
        self.edges()
        self.responses([self.overlay(value, path) for path, value in self.part("overlays")])
        self.annotations()
        for path, value in self.part("erased"):
            self.history.erased.add(bytes.fromhex(_hex(value, path)))
        if "broken_root" in self.graph:
            self.history.broken_root = _text(self.graph["broken_root"], f"{self.path}.broken_root")
        return self.history

    def nodes(self) -> list[Node]:
        nodes: list[Node] = []
        for index, value in enumerate(_list(self.graph.get("messages"), f"{self.path}.messages")):
            if is_plain(value):  # the usual case, in which nothing can be wrong
                nodes.append(Node.digested(value))
                continue
            path = f"{self.path}.messages[{index}]"
            if self.shared is not None and isinstance(value, dict) and "role" not in value and "same" in value:
                _only(value, {"same"}, path)
                nodes += self.shared.nodes(value["same"], f"{path}.same")
            else:
                nodes.append(self.node(value, path))
        if self.shared is not None:
            self.shared.note_nodes(nodes)
        return nodes

    def node(self, value: Any, path: str) -> Node:
        if isinstance(value, list):
            if len(value) not in (3, 4) or value[0] != "redacted":
                raise CodecError(path, "expected a message or a tombstone")
            role = check_message({"role": value[1]}, path, self.metadata)["role"]
            digest = bytes.fromhex(_hex(value[2], f"{path}[2]"))
            return Tombstone.of(role, digest, *(self.chat(number, f"{path}[3]") for number in value[3:]))
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
        return self.chats[check_number(number, path, len(self.chats))]

    def versions(self, nodes: list[Node]) -> None:
        history = self.history
        entries = self.part("versions")
        if not entries:
            return
        nodes_after = list(history.nodes)  # newest first: each version is a delta on the one after it
        deltas: list[Delta] = []
        for path, value in reversed(entries):
            delta = self.delta(_object(value, path), path, nodes, len(nodes_after))
            deltas.append(delta)
            delta.undo(nodes_after)
        deltas.reverse()
        history.load_versions(deltas, [])

    def delta(self, value: Mapping[str, Any], path: str, nodes: list[Node], length: int) -> Delta:
        _only(value, {"tail", "end", "hunks"}, path)
        tail = check_number(value.get("tail"), f"{path}.tail", length + 1)

        def pick(refs: Any, where: str) -> tuple[Node, ...]:
            return tuple(nodes[check_number(ref, f"{where}[{index}]", len(nodes))] for index, ref in enumerate(_list(refs, where)))

        hunks: list[Hunk] = []
        last = 0
        for index, value_at in enumerate(_list(value.get("hunks"), f"{path}.hunks")):
            where = f"{path}.hunks[{index}]"
            if len(_list(value_at, where)) != 3:
                raise CodecError(where, "expected [start, stop, messages]")
            start, stop = (check_number(end, where, tail + 1) for end in value_at[:2])
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
            source = check_number(value[0], path, len(entries))
            target = check_number(value[1], path, len(entries) + 1)
            if source != place or target <= source:
                raise CodecError(path, "expected an edge from this version to a later one")
            history.edges.append((source, target, _text(value[2], path)))

    def overlay(self, value: Any, path: str) -> Overlay:
        known = _object(value, path)
        if self.shared is not None and "same" in known:
            _only(known, {"same"}, path)
            return self.shared.overlay(known["same"], f"{path}.same")
        _only(known, {"tools", "ephemeral", "keep_reasoning", "template_id", "system"}, path)
        try:
            overlay = Overlay(**known)
        except MessageError as error:
            raise CodecError(f"{path}.{error.path}", error.reason) from None
        if self.shared is not None:
            self.shared.note_overlay(overlay)
        return overlay

    def responses(self, overlays: list[Overlay]) -> None:
        history = self.history
        samples: dict[str, Sample] = {}
        for path, value in self.part("responses"):
            entry = _object(value, path)
            place, index = self.place(entry.get("at"), path)
            if self.shared is not None and "same" in entry:
                _only(entry, {"at", "same"}, path)
                sample = self.shared.response(entry["same"], place, index, f"{path}.same")
            else:
                sample = self.sample(entry, path, place, index, overlays)
            if not sample.sample_id or sample.sample_id in samples:
                raise CodecError(f"{path}.sample_id", "empty or used twice")
            samples[sample.sample_id] = sample
            if self.shared is not None:
                self.shared.note_response(sample)
        history.load_samples(list(samples.values()))

    def place(self, at: Any, path: str) -> tuple[int, int]:
        """Return where a response lies: its version, and its index there."""
        history = self.history
        if len(_list(at, f"{path}.at")) != 2:
            raise CodecError(f"{path}.at", "expected [version, index]")
        place = check_number(at[0], f"{path}.at[0]", len(history.kept) + 1)
        nodes = history.nodes_at(place) if history.kept else history.nodes
        return place, check_number(at[1], f"{path}.at[1]", len(nodes))

    def sample(self, entry: Mapping[str, Any], path: str, place: int, index: int, overlays: list[Overlay]) -> Sample:
        _only(entry, RESPONSE_FIELDS, path)
        sample_id = _text(entry.get("sample_id"), f"{path}.sample_id")
        is_recorded = self.shared is None or "id" in entry
        known = _hex(entry.get("id"), f"{path}.id") if is_recorded else None
        overlay = overlays[check_number(entry["overlay"], f"{path}.overlay", len(overlays))] if "overlay" in entry else EMPTY_OVERLAY
        call = self.call(entry["call"], f"{path}.call", overlay, sample_id) if "call" in entry else None
        return Sample(place, index, sample_id, overlay, call, known, is_recorded)

    def call(self, value: Any, path: str, overlay: Overlay, sample_id: str) -> CallRecord:
        call = _object(value, path)
        try:
            return decode_call(call if self.shared is None else self.shared.call(call), overlay, sample_id)
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


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


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


def _hex(value: Any, path: str) -> str:
    text = _text(value, path)
    check_hex(text, path)
    return text


def _only(value: Mapping[str, Any], known: AbstractSet[str], path: str) -> None:
    if not known >= value.keys():
        unknown = next(name for name in value if name not in known)
        raise CodecError(f"{path}.{unknown}", "unknown field")
