"""Read the usual graph documents fast: one graph with its versions, and nothing in it that was erased, attached or written by reference.

A typed decoder reads the JSON. Everything else is checked as `hermes.graph.codec` checks it: every digest, every id and the root are
computed, and the graph equals the one that the codec reads. For any other document, and for any fault, `read_plain` returns None: the
codec then reads the document, and names the fault.

Calls of one file say most things alike: the model, the sampling, the tool schemas. What they say alike is read once (`_alike`)."""

from __future__ import annotations

import sys
from array import array
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType, json

from hermes.graph import CallError, CallRecord, MessageError, MessageGraph, Overlay
from hermes.graph.call import call_digest
from hermes.graph.codec import FORMAT, VERSION
from hermes.graph.delta import Delta, Hunk
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample, response_id
from hermes.graph.message import (
    METADATA,
    ROLES,
    FrozenDict,
    canonical,
    canonical_json,
    canonical_text,
    check_message,
    freeze_items,
    freeze_object,
)
from hermes.graph.node import Node, extend_ids, root_id
from hermes.graph.prompt_deltas import MAX_PROMPT_BYTES
from hermes.graph.root import root_of_parts
from hermes.graph.stored_graph import open_graph
from hermes.graph.token_arrays import PromptDigests, check_array

TOKEN_BYTES = 4
MAX_ALIKE = 256
"""So many different sets of settings, overlays and tool schemas are remembered."""


_escape = encode_basestring_ascii


def read_plain(text: bytes) -> MessageGraph | None:
    """Return the graph of a document; None if the codec must read it."""
    if sys.byteorder == "big":
        return None
    try:
        document = _DOCUMENT.decode(text)
        if document.format != FORMAT or document.version != VERSION or len(document.graphs) != 1:
            return None
        history = _read_graph(document.graphs[0], document.root)
    except (_NotPlain, MsgspecError, MessageError, CallError, ValueError, RecursionError):
        return None
    return open_graph(history)


class _NotPlain(Exception):
    """The codec must read this document."""


# The document ----------------------------------------------------------------------------------------------------
# A field that is not named here, or of another type, is left to the codec.


class _Integers(Struct, forbid_unknown_fields=True):
    int32: bytes  # from base64


class _Floats(Struct, forbid_unknown_fields=True):
    float32: bytes


class _Prompt(Struct, forbid_unknown_fields=True, rename={"base": "from"}):
    """A whole prompt, or what it adds to an earlier call."""

    int32: bytes
    base: int | UnsetType = UNSET
    shared: int | UnsetType = UNSET


class _Call(Struct, forbid_unknown_fields=True):
    """The fields of a call record. Raw ones that are alike in many calls are compared as they are written."""

    model: str | None = None
    policy_version: str | None = None
    policy_spans: Raw = Raw()
    sampling: Raw = Raw()
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    raw_text: str | None = None
    tools: Raw = Raw()
    template_id: str | bool | None = None
    tokenizer: str | None = None
    request_digest: str | None = None
    prompt_token_ids: _Prompt | UnsetType = UNSET
    prompt_derived: bool = False
    token_ids: _Integers | UnsetType = UNSET
    logprobs: _Floats | UnsetType = UNSET
    logprob_mode: str | None = None
    sample_id: str | bool | None = None
    extra: dict[str, Any] | None = None


class _Response(Struct, forbid_unknown_fields=True):
    at: tuple[int, int]
    sample_id: str
    overlay: int | UnsetType = UNSET
    call: _Call | UnsetType = UNSET


class _Version(Struct, forbid_unknown_fields=True):
    tail: int
    end: list[int]
    hunks: list[tuple[int, int, list[int]]]


class _Graph(Struct, forbid_unknown_fields=True):
    seed: str
    length: int
    messages: list[Any]
    versions: list[_Version]
    edges: list[tuple[int, int, str]]
    overlays: list[Raw]
    responses: list[_Response]
    annotations: dict[str, list[dict[str, Any]]]
    erased: tuple[()]


class _PlainDocument(Struct, forbid_unknown_fields=True):
    format: str
    version: int
    root: str
    graphs: list[_Graph]


_DOCUMENT = json.Decoder(_PlainDocument)
_VALUE = json.Decoder()

# The graph -------------------------------------------------------------------------------------------------------


def _read_graph(graph: _Graph, root: str) -> GraphHistory:
    nodes, metadata = _read_nodes(graph.messages)
    if not 0 <= graph.length <= len(nodes):
        raise _NotPlain
    deltas = _read_versions(graph, nodes) if graph.versions or graph.edges or graph.length < len(nodes) else []
    samples, texts = _read_samples(graph.responses, [_read_overlay(bytes(text)) for text in graph.overlays], len(deltas))
    known = root_of_parts(
        graph.seed,
        graph.length,
        [node.digest for node in nodes],
        texts,
        annotations=canonical_json(graph.annotations) if graph.annotations else "{}",
        edges=canonical_json(graph.edges) if deltas else "[]",
        metadata=canonical_json(metadata) if metadata else "{}",
        versions=canonical_json([_version_as_json(version) for version in graph.versions]) if deltas else "[]",
    )
    if known != root:
        raise _NotPlain
    history = GraphHistory(graph.seed)
    listed = nodes[: graph.length] if deltas else nodes
    history.load_list(listed, samples, _seal(samples, listed, deltas, graph.seed))
    if deltas:
        history.load_versions(deltas, graph.edges)
        history.load_samples(samples)
    if graph.annotations:
        _read_annotations(graph.annotations, history)
    history.root_read = root
    return history


def _read_nodes(messages: Sequence[Any]) -> tuple[list[Node], dict[str, Any]]:
    """Return the nodes, digests computed, and their metadata by number."""
    nodes = []
    metadata: dict[str, Any] = {}
    for number, message in enumerate(messages):
        if type(message) is not dict:
            raise _NotPlain  # a tombstone
        role, content = message.get("role"), message.get("content")
        if len(message) == 2 and type(content) is str and content.isascii() and type(role) is str and role in ROLES:
            text = f'{{"content":{_escape(content)},"role":"{role}"}}'.encode("ascii")
            node = Node(message)
            node._digest = sha256(text).digest()
        else:
            fields = check_message(message, "", _freeze_metadata)
            node = Node.digested(fields)
            if METADATA in fields:
                metadata[str(number)] = fields[METADATA]
        nodes.append(node)
    return nodes, metadata


def _freeze_metadata(value: Any, path: str) -> FrozenDict:
    if type(value) is not dict or value.get("chat") is not None:
        raise _NotPlain
    return FrozenDict(freeze_items(value, path))


def _read_versions(graph: _Graph, nodes: list[Node]) -> list[Delta]:
    """Return the deltas of the kept versions, oldest first. Messages must be numbered as the codec numbers them."""
    if len(graph.edges) != len(graph.versions):
        raise _NotPlain
    deltas: list[Delta] = []
    after = nodes[: graph.length]
    numbered = graph.length
    for version in reversed(graph.versions):
        hunks = []
        last = 0
        for start, stop, refs in version.hunks:
            if not last <= start <= stop <= version.tail:
                raise _NotPlain
            numbered = _check_numbers(refs, numbered, len(nodes))
            hunks.append(Hunk(start, stop, tuple([nodes[ref] for ref in refs])))
            last = stop
        numbered = _check_numbers(version.end, numbered, len(nodes))
        if not 0 <= version.tail <= len(after):
            raise _NotPlain
        deltas.append(Delta(version.tail, tuple([nodes[ref] for ref in version.end]), hunks))
        deltas[-1].undo(after)
    if numbered != len(nodes):
        raise _NotPlain  # a message that no version has
    deltas.reverse()
    for place, (source, target, _) in enumerate(graph.edges):
        if source != place or not source < target <= len(deltas):
            raise _NotPlain
    return deltas


def _check_numbers(refs: Sequence[int], numbered: int, limit: int) -> int:
    """Return how many messages have their numbers after these; numbers are given in the order in which versions need messages."""
    for ref in refs:
        if ref == numbered < limit:
            numbered += 1
        elif not 0 <= ref < numbered:
            raise _NotPlain
    return numbered


def _version_as_json(version: _Version) -> dict[str, Any]:
    return {"tail": version.tail, "end": version.end, "hunks": version.hunks}


def _read_annotations(annotations: Mapping[str, Sequence[Mapping[str, Any]]], history: GraphHistory) -> None:
    known = {sample.sealed for sample in history.settle()}
    for name, notes in annotations.items():
        if name not in known:
            raise _NotPlain  # an annotation for an unknown response
        checked = [freeze_object(note, name) for note in notes]
        history.annotations[name] = [note for note in checked if note is not None]


class _OverlayTexts(NamedTuple):
    """An overlay, and its texts in the root and in the digests of calls."""

    overlay: Overlay
    root: str
    tools: str


@lru_cache(MAX_ALIKE)
def _read_overlay(text: bytes) -> _OverlayTexts:
    said = _VALUE.decode(text)
    if type(said) is not dict or not said.keys() <= _OVERLAY_FIELDS:
        raise _NotPlain
    overlay = Overlay(**said)
    root = "null" if overlay == EMPTY_OVERLAY else f'"{overlay.digest.hex()}"'
    return _OverlayTexts(overlay, root, _text_of_tools(overlay.tools))


_OVERLAY_FIELDS = frozenset(("tools", "ephemeral", "keep_reasoning", "template_id", "system"))
_NO_OVERLAY = _OverlayTexts(EMPTY_OVERLAY, "null", "")

# Responses -------------------------------------------------------------------------------------------------------


def _read_samples(responses: Sequence[_Response], overlays: Sequence[_OverlayTexts], versions: int) -> tuple[list[Sample], list[str]]:
    """Return the samples, and their texts in the root."""
    samples: list[Sample] = []
    texts: list[str] = []
    names: set[str] = set()
    tokens = _DocumentTokens()
    for number, response in enumerate(responses):
        name, (place, index), overlay = response.sample_id, response.at, _NO_OVERLAY
        if not name or name in names or not 0 <= place <= versions:
            raise _NotPlain
        names.add(name)
        if response.overlay is not UNSET:
            if not 0 <= response.overlay < len(overlays):
                raise _NotPlain
            overlay = overlays[response.overlay]
        call, text = None, "null"
        if response.call is not UNSET:
            call = _read_call(response.call, name, overlay, tokens, number)
            text = f'"{call.digest.hex()}"'
        samples.append(Sample(place, index, name, overlay.overlay, call))
        texts.append(f"[{place},{index},{_escape(name)},{overlay.root},{text},null]")
    return samples, texts


class _DocumentTokens:
    """The tokens of the calls that a document has so far."""

    __slots__ = ("_known", "_repeated", "digests")

    def __init__(self) -> None:
        self._known: dict[int, dict[str, Any]] = {}
        """The fields of each call that has a prompt, by the number of its response."""
        self._repeated = 0
        self.digests = PromptDigests()

    def read_prompt(self, prompt: _Prompt) -> bytes:
        added = _check_integers(prompt.int32)
        if prompt.base is UNSET and prompt.shared is UNSET:
            return added
        if prompt.base is UNSET or prompt.shared is UNSET or prompt.base not in self._known:
            raise _NotPlain
        before, shared = self._known[prompt.base], prompt.shared
        start, count = before["prompt_token_ids"], len(before["prompt_token_ids"])
        completion = before.get("token_ids", ())
        self._repeated += shared * TOKEN_BYTES
        if not 0 < shared <= count + len(completion) or self._repeated > MAX_PROMPT_BYTES:
            raise _NotPlain
        return b"".join((start[:shared], completion[: shared - count] if shared > count else b"", added))

    def note(self, number: int, fields: dict[str, Any]) -> None:
        if "prompt_token_ids" in fields:
            self._known[number] = fields


def _check_integers(data: bytes) -> bytes:
    if len(data) % TOKEN_BYTES or not data[TOKEN_BYTES - 1 :: TOKEN_BYTES].isascii():  # the sign is the top bit of the last byte
        raise _NotPlain
    return data


def _read_call(call: _Call, sample_id: str, overlay: _OverlayTexts, tokens: _DocumentTokens, number: int) -> CallRecord:
    """Return the record of response `number`, and its digest in it."""
    template = overlay.overlay.template_id if call.template_id is True else call.template_id
    name = sample_id if call.sample_id is True else call.sample_id
    if template is False or name is False:
        raise _NotPlain
    spans, sampling, derived = bytes(call.policy_spans) or None, bytes(call.sampling) or None, call.prompt_derived or None
    said = (call.finish_reason, call.logprob_mode, call.model, spans, call.policy_version, derived, sampling, template, call.tokenizer)
    alike = _read_alike(said)
    fields = dict(alike.fields)
    texts = [alike.head]
    if call.request_digest is not None:
        fields["request_digest"] = call.request_digest
        texts.append(f'"request_digest":{_escape(call.request_digest)}')
    if name is not None:
        fields["sample_id"] = name
        texts.append(f'"sample_id":{_escape(name)}')
    texts.append(alike.body)
    if tools := bytes(call.tools):
        fields["tools"], text = (overlay.overlay.tools, overlay.tools) if tools == b"true" else _read_tools(tools)
        texts.append(text)
    if call.usage is not None:
        usage = fields["usage"] = freeze_object(call.usage, "usage")
        texts.append(f'"usage":{canonical_json(usage)}')
    parts = _read_prompt(call, fields, tokens) + _read_completion(call, fields)
    tokens.note(number, fields)
    return CallRecord.of_checked(fields, call_digest(parts, f"{{{','.join(filter(None, texts))}}}".encode("ascii")))


def _read_prompt(call: _Call, fields: dict[str, Any], tokens: _DocumentTokens) -> bytes:
    """Read the prompt into the fields; return its digest."""
    if call.prompt_token_ids is UNSET:
        return _NO_PROMPT
    prompt = tokens.read_prompt(call.prompt_token_ids)
    fields["prompt_token_ids"] = array("i", prompt)
    return tokens.digests.digest_bytes(prompt)


_NO_PROMPT = PromptDigests().digest(None)


def _read_completion(call: _Call, fields: dict[str, Any]) -> bytes:
    """Read what belongs to the completion into the fields; return its digest."""
    texts = []
    if call.extra is not None:
        extra = fields["extra"] = freeze_object(call.extra, "extra")
        texts.append(b'"extra":' + canonical(extra))
    if call.logprobs is not UNSET:
        data = call.logprobs.float32
        logprobs = fields["logprobs"] = array("f", data)
        check_array(logprobs, "logprobs")
        texts.append(b'"logprobs":{"float32":"%b"}' % b2a_base64(data, newline=False))
    if call.raw_text is not None:
        fields["raw_text"] = call.raw_text
        texts.append(b'"raw_text":' + canonical_text(call.raw_text))
    if call.token_ids is not UNSET:
        data = _check_integers(call.token_ids.int32)
        fields["token_ids"] = array("i", data)
        texts.append(b'"token_ids":{"int32":"%b"}' % b2a_base64(data, newline=False))
    return sha256(b"{%b}" % b",".join(texts)).digest()


class _AlikeFields(NamedTuple):
    """What many calls say alike, and its canonical bytes: the fields before `request_digest`, and those from `sampling` to `tokenizer`."""

    fields: Mapping[str, Any]
    head: str
    body: str


_ALIKE = (
    *("finish_reason", "logprob_mode", "model", "policy_spans", "policy_version", "prompt_derived"),
    *("sampling", "template_id", "tokenizer"),
)


@lru_cache(MAX_ALIKE)
def _read_alike(said: tuple[str | bytes | bool | None, ...]) -> _AlikeFields:
    """Read the fields `_ALIKE`; bytes are JSON, and None is a field that the call does not have."""
    given = {
        name: _VALUE.decode(value) if type(value) is bytes else value for name, value in zip(_ALIKE, said, strict=True) if value is not None
    }
    record = CallRecord.from_dict(given)
    fields = {name: value for name in given if (value := getattr(record, name)) is not None}
    texts = {name: f'"{name}":{canonical_json(value)}' for name, value in fields.items()}
    head, body = (",".join([texts[name] for name in names if name in texts]) for names in (_ALIKE[:6], _ALIKE[6:]))
    return _AlikeFields(fields, head, body)


@lru_cache(MAX_ALIKE)
def _read_tools(text: bytes) -> tuple[Sequence[Any] | None, str]:
    tools = CallRecord.from_dict({"tools": _VALUE.decode(text)}).tools
    return tools, _text_of_tools(tools)


def _text_of_tools(tools: Sequence[Any] | None) -> str:
    return f'"tools":{canonical_json(tools)}' if tools is not None else ""


# Ids -------------------------------------------------------------------------------------------------------------


def _seal(samples: Sequence[Sample], nodes: Sequence[Node], deltas: Sequence[Delta], seed: str) -> list[bytes]:
    """Compute the ids of all responses; return the context ids of the current list, as far as they were needed."""
    ids = [root_id(seed)]
    if not deltas:
        _seal_in(samples, nodes, ids)
        return ids
    by_place: dict[int, list[Sample]] = {}
    for sample in samples:
        by_place.setdefault(sample.head, []).append(sample)
    _seal_in(by_place.get(len(deltas), ()), nodes, ids)
    older, chain = list(nodes), list(ids)
    for place in range(len(deltas) - 1, -1, -1):
        delta = deltas[place]
        del chain[1 + (delta.hunks[0].start if delta.hunks else delta.tail) :]  # so far the version agrees with its successor
        delta.undo(older)
        _seal_in(by_place.get(place, ()), older, chain)
    return ids


def _seal_in(samples: Sequence[Sample], nodes: Sequence[Node], ids: list[bytes]) -> None:
    """Compute the ids of responses in one list; `ids` are the context ids known so far, and become longer."""
    for sample in samples:
        index = sample.index
        if not 0 <= index < len(nodes):
            raise _NotPlain
        if index >= len(ids):
            extend_ids(ids, nodes, index)
        digest = sample.call.digest if sample.call is not None else None
        sample.sealed = response_id(ids[index], sample.overlay, nodes[index], sample.sample_id, digest)
