"""Erase content for good: in every version, every attached chat and every call whose text or tokens hold it.

A tombstone with the digest stays, so that ids built on it are still valid and nothing else has to be erased."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hermes.graph.call import CallRecord
from hermes.graph.delta import Delta, Hunk
from hermes.graph.edit import REDACTION, rewrite
from hermes.graph.history import GraphHistory
from hermes.graph.message import METADATA, FrozenDict
from hermes.graph.node import REDACTED, AttachedChat, Node, Tombstone, attached_chats

Chats = Mapping[int, AttachedChat]
"""Attached chats as they are after the erasure, by the id of the history they had before."""


def redact(history: GraphHistory, digest: bytes) -> bool:
    """Erase every message with that digest; return whether there was one.

    In the current list an ordinary message `[redacted]` replaces it, so that the ids of later contexts match what models are sent.
    The edit rule keeps the version that was sampled with the erased text; in that version the tombstone stands."""
    chats = _redact_chats(history.all_nodes(), {digest})
    is_here = any(node.digest == digest and not node.redacted for node in history.all_nodes())
    if is_here or chats:
        _redact(history, digest, chats)
    return is_here or any(digest in chat.history.erased for chat in chats.values())


def without_erased(history: GraphHistory, nodes: Sequence[Node]) -> Sequence[Node]:
    """Return the nodes with erased content replaced by tombstones: a turn may have been prepared before an erasure."""
    if not history.erased:
        return nodes
    chats = _redact_chats(nodes, history.erased)
    return [_erase_node(node, history.erased, chats) for node in nodes]


def erase_call(call: CallRecord, nodes: Sequence[Node], index: int) -> CallRecord:
    """Erase the call's prompt if a message of its context is a tombstone, and its completion if its own message is one.

    Token ids can be decoded to the text of the messages."""
    if any(node.redacted for node in nodes[:index]):
        call = call.erase("prompt")
    return call.erase("completion") if nodes[index].redacted else call


def _redact(history: GraphHistory, digest: bytes, chats: Chats) -> None:
    history.erased.add(digest)
    at = [index for index, node in enumerate(history.nodes) if node.digest == digest]
    if at:
        region = history.nodes[at[0] : at[-1] + 1]
        placeholders = [Node(role=node["role"], content=REDACTED) if node.digest == digest else node for node in region]
        rewrite(history, at[0], at[-1] + 1, placeholders, REDACTION)
    known: dict[int, Node] = {}

    def erase(node: Node) -> Node:
        if id(node) not in known:
            known[id(node)] = _erase_node(node, {digest}, chats)
        return known[id(node)]

    alive = list(history.all_nodes())  # keeps the old nodes alive: an object's id is unique only while it lives
    history.nodes[:] = map(erase, history.nodes)
    history.deltas = [
        Delta(delta.tail, tuple(map(erase, delta.end)), [Hunk(a, b, tuple(map(erase, nodes))) for a, b, nodes in delta.hunks])
        for delta in history.deltas
    ]
    history.snapshots = {place: tuple(map(erase, nodes)) for place, nodes in history.snapshots.items()}
    history.forget_reading()
    alive.clear()
    for place, sample in enumerate(history.settle()):
        if sample.call is not None:
            history.seal(sample)
            history.samples[place] = replace(sample, call=erase_call(sample.call, history.nodes_of(sample.head), sample.index))


def _redact_chats(nodes: Iterable[Node], digests: set[bytes]) -> dict[int, AttachedChat]:
    """Redact the chats attached to these nodes, innermost first, each once; return those in which something changed."""
    done: dict[int, AttachedChat] = {}
    for chat in attached_chats(nodes):
        inner = chat.history
        found = digests & {node.digest for node in inner.all_nodes() if not node.redacted}
        below = {id(node.chat.history) for node in inner.all_nodes() if node.chat is not None}
        if not found and not below & done.keys():
            continue
        copy = inner.copy()
        for digest in found or digests:
            _redact(copy, digest, done)
        done[id(inner)] = chat.with_history(copy)
    return done


def _erase_node(node: Node, digests: set[bytes], chats: Chats) -> Node:
    chat = node.chat
    new = chats.get(id(chat.history)) if chat is not None else None
    if node.digest in digests and not node.redacted:  # an attached chat stays: it holds other messages
        return Tombstone.of(node["role"], node.digest, new or chat)
    if new is None:
        return node
    metadata = FrozenDict({**node[METADATA], "chat": new, "length": len(new)})
    return Tombstone.of(node["role"], node.digest, new) if node.redacted else Node({**node, METADATA: metadata})
