"""The root of a graph: one hash over all of it, so that nothing in a saved graph can be changed, dropped or moved unnoticed.

    root = H("hermes.graph\\0", canonical bytes of
        seed, length           of the current list
        messages               H(the digests of all messages, in the order in which `all_nodes` yields them)
        metadata               by message number; an attached chat as its own root
        redacted               message number to role, of tombstones
        versions, edges        as the document has them: deltas, and [version, successor, kind]
        responses              [version, index, sample id, digest of the overlay, digest of the call, recorded id]
        annotations, erased
        broken_root            if the graph was read from a document whose root did not hold)

It covers what the graph holds, not how a document writes it: with prompts whole or as deltas, with keys in another order, the root is the
same. A response's id follows from context, overlay, message, sample id and call, so the root covers it too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import Any

from hermes.graph.call import CallRecord
from hermes.graph.delta import Delta
from hermes.graph.history import EMPTY_OVERLAY, GraphHistory, Sample
from hermes.graph.message import METADATA, canonical, digest
from hermes.graph.node import Node, attached_chats
from hermes.graph.token_arrays import PromptDigests

ChatRoots = dict[int, str]
"""The roots of attached chats by the id of their history."""


def root_of(top: GraphHistory, known: ChatRoots | None = None) -> str:
    """Return the root of a graph, in hexadecimal. The caller holds its lock.

    `known` are the roots of chats that are computed already; those of the other attached chats are added to it."""
    roots = {} if known is None else known
    for chat in attached_chats(top.all_nodes()):
        if id(chat.history) not in roots:
            roots[id(chat.history)] = _root(chat.history, roots)
    return _root(top, roots)


def _root(history: GraphHistory, roots: ChatRoots) -> str:
    nodes = list(history.all_nodes())
    refs = {id(node): ref for ref, node in enumerate(nodes)} if history.deltas else {}
    prompts = PromptDigests()
    parts = {
        "seed": history.seed,
        "length": len(history.nodes),
        "messages": digest(b"".join([node.digest for node in nodes])).hex(),
        "metadata": {str(ref): _metadata(node, roots) for ref, node in enumerate(nodes) if METADATA in node},
        "redacted": {str(ref): node["role"] for ref, node in enumerate(nodes) if node.redacted},
        "versions": list(versions_as_json(history, refs)),
        "edges": edges_as_json(history),
        "responses": [_sample(history, sample, prompts) for sample in history.settle()],
        "annotations": history.annotations,
        "erased": sorted(each.hex() for each in history.erased),
        **({"broken_root": history.broken_root} if history.broken_root is not None else {}),
    }
    return digest(b"hermes.graph\0" + canonical(parts)).hex()


def root_of_list(seed: str, nodes: Sequence[Node], samples: Sequence[Sample]) -> str:
    """Return the root of a graph that is nothing but one list of messages without metadata and samples without overlays, all of whose
    digests are computed."""
    responses = []
    for sample in samples:
        call = "null" if sample.call is None else f'"{sample.call.digest.hex()}"'
        responses.append(f"[0,{sample.index},{encode_basestring_ascii(sample.sample_id)},null,{call},null]")
    return root_of_parts(seed, len(nodes), [node.digest for node in nodes], responses)


def root_of_parts(
    seed: str,
    length: int,
    messages: Iterable[bytes],
    responses: Iterable[str],
    *,
    annotations: str = "{}",
    edges: str = "[]",
    metadata: str = "{}",
    versions: str = "[]",
) -> str:
    """Return the root of a graph of which nothing was erased, from the digests of its messages and the canonical form of its other parts:
    the same as `root_of`, without the encoder of objects, which would take most of the time."""
    text = (
        f'hermes.graph\0{{"annotations":{annotations},"edges":{edges},"erased":[],"length":{length},'
        f'"messages":"{sha256(b"".join(messages)).hexdigest()}","metadata":{metadata},"redacted":{{}},'
        f'"responses":[{",".join(responses)}],"seed":{encode_basestring_ascii(seed)},"versions":{versions}}}'
    )
    return sha256(text.encode("ascii")).hexdigest()


def versions_as_json(history: GraphHistory, refs: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    """Yield the kept versions, oldest first, each as the delta that restores it from the next one; `refs` numbers the nodes."""

    def numbers(nodes: tuple[Node, ...]) -> list[int]:
        return [refs[id(node)] for node in nodes]

    delta: Delta
    for delta in history.deltas:
        hunks = [[hunk.start, hunk.stop, numbers(hunk.nodes)] for hunk in delta.hunks]
        yield {"tail": delta.tail, "end": numbers(delta.end), "hunks": hunks}


def edges_as_json(history: GraphHistory) -> list[list[Any]]:
    return [[history.place_of(head), history.place_of(successor), kind] for head, successor, kind in history.edges]


def _metadata(node: Node, roots: ChatRoots) -> Any:
    metadata, chat = node[METADATA], node.chat
    return metadata if chat is None else {**metadata, "chat": {"root": roots[id(chat.history)]}}


def _sample(history: GraphHistory, sample: Sample, prompts: PromptDigests) -> list[Any]:
    call: CallRecord | None = sample.call
    if call is not None:
        call.seal(prompts)
    return [
        *(history.place_of(sample.head), sample.index, sample.sample_id),
        None if sample.overlay is EMPTY_OVERLAY or sample.overlay == EMPTY_OVERLAY else sample.overlay.digest.hex(),
        None if call is None else call.digest.hex(),
        sample.sealed if sample.is_recorded else None,
    ]
