"""Erase content for good: in every version, every attached chat and every call that carried it.

What stays is a tombstone with the digest, so that ids built on it still hold and nothing else has to be thrown away."""

from __future__ import annotations

from dataclasses import replace

from hermes.graph.edit import REDACTION, rewrite
from hermes.graph.history import History
from hermes.graph.message import SIDE, FrozenDict
from hermes.graph.node import REDACTED, AttachedChat, Node, Tombstone
from hermes.graph.splice import Delta, Hunk


def redact(history: History, digest: bytes) -> None:
    """Erase every message with that digest.

    The current list gets an ordinary message that says so: what a model is shown from now on is exactly what its ids
    say, and the edit rule keeps the version that was sampled under the erased text. There the tombstone stands."""
    history.erased.add(digest)
    at = [index for index, node in enumerate(history.nodes) if node.digest == digest]
    if at:
        region = history.nodes[at[0] : at[-1] + 1]
        placeholders = [Node(role=node["role"], content=REDACTED) if node.digest == digest else node for node in region]
        rewrite(history, at[0], at[-1] + 1, placeholders, REDACTION)
    _erase_nodes(history, digest)
    _erase_calls(history)


def _erase_nodes(history: History, digest: bytes) -> None:
    stones: dict[int, Node] = {}
    chats: dict[int, AttachedChat] = {}

    def erased(node: Node) -> Node:
        if id(node) not in stones:
            stones[id(node)] = _erased(node, digest, chats)
        return stones[id(node)]

    alive = list(history.all_nodes())  # ids of objects are names only while the objects live
    history.nodes[:] = map(erased, history.nodes)
    history.deltas = [
        Delta(delta.tail, tuple(map(erased, delta.end)), [Hunk(a, b, tuple(map(erased, nodes))) for a, b, nodes in delta.hunks])
        for delta in history.deltas
    ]
    history.snapshots.clear()
    history.forget_reading()
    alive.clear()


def _erased(node: Node, digest: bytes, chats: dict[int, AttachedChat]) -> Node:
    chat = node.chat
    if chat is not None and id(chat) not in chats:
        inner = chat.history.copy()
        redact(inner, digest)
        chats[id(chat)] = chat.reopened(inner)
    if node.digest == digest:  # a chat attached to it stays: its samples are other messages
        return node if node.redacted else Tombstone.of(node["role"], digest, chats[id(chat)] if chat is not None else None)
    return node if chat is None else Node({**node, SIDE: FrozenDict({**node[SIDE], "chat": chats[id(chat)]})})


def _erase_calls(history: History) -> None:
    """A call's token ids spell out its messages: erase the prompt's behind a tombstone, the completion's on one."""
    for at, sample in enumerate(history.settle()):
        nodes = history.nodes_of(sample.head)
        own, before = nodes[sample.index].redacted, any(node.redacted for node in nodes[: sample.index])
        if sample.call is not None and (own or before):
            history.seal(sample)
            history.samples[at] = replace(sample, call=sample.call.erase(completion=own))
