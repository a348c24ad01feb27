"""Which response led to which, beyond the order of messages: across an edit or a compaction, into a subagent and back.

A graph's parallel edges join contexts; trainers that keep such edges join responses. Here a link starts at the last response in the
edge's source context, and ends at the first response sampled after the edge. Knows nothing about tokens or files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hermes.graph import Edge, MessageGraph
from hermes.graph.node import extend_ids, root_id

SEQUENTIAL = "sequential"
SUBAGENT_EDGES = frozenset({"subagent_call", "subagent_return"})


class ResponseLink(NamedTuple):
    """A connection between two responses, by their ids."""

    kind: str
    source: str
    target: str


def response_links(graph: MessageGraph) -> list[ResponseLink]:
    """Return every link once. A response that only follows the message before it has no link."""
    if len(graph.versions) == 1 and all(node.chat is None for node in graph.versions[0]):
        return []  # the usual case: no edit and no subagent
    sampled = _sampled_contexts(graph)
    edges = list(graph.edges())
    parent = {edge.target: edge.source for edge in edges if edge.kind == SEQUENTIAL}
    first = _first_below(sampled, parent)
    found: dict[ResponseLink, None] = {}
    for edge in edges:
        if edge.kind == SEQUENTIAL:
            continue
        source = next((context for context in _ancestors(edge.source, parent) if context in sampled), None)
        if source is None:
            continue
        targets = first.get(edge.target, []) if edge.kind in SUBAGENT_EDGES else _first_after(edge, sampled, parent)
        for target in targets:
            found.update(dict.fromkeys(ResponseLink(edge.kind, sampled[source][0], response) for response in sampled[target]))
    return list(found)


def _sampled_contexts(graph: MessageGraph) -> dict[str, list[str]]:
    """Return the response ids by the context that ends with the response; twins share a context."""
    found: dict[str, list[str]] = {}
    for chat in _chats(graph):
        ids = []
        for version in chat.versions:
            chain = [root_id(chat.seed)]
            extend_ids(chain, version[:], len(version))
            ids.append(chain)
        for response in chat.responses():
            if response.is_own:
                found.setdefault(ids[response.version][response.index + 1].hex(), []).append(response.id)
    return found


def _chats(graph: MessageGraph) -> Iterator[MessageGraph]:
    """Yield the graph, and every chat attached anywhere in it once."""
    waiting, seen = [graph], set()
    for chat in waiting:  # the loop appends to `waiting`
        yield chat
        for version in chat.versions:
            for node in version:
                if node.chat is not None and id(node.chat.history) not in seen:
                    seen.add(id(node.chat.history))
                    waiting.append(node.chat.graph)


def _ancestors(context: str, parent: dict[str, str]) -> Iterator[str]:
    at: str | None = context
    while at is not None:
        yield at
        at = parent.get(at)


def _first_below(sampled: dict[str, list[str]], parent: dict[str, str]) -> dict[str, list[str]]:
    """Return for each context the nearest sampled contexts: itself if it is sampled, else the first below it on each branch."""
    first: dict[str, list[str]] = {}
    for context in sampled:
        first.setdefault(context, []).append(context)
        for above in _ancestors(parent[context], parent):
            if above in sampled:
                break
            first.setdefault(above, []).append(context)
    return first


def _first_after(edge: Edge, sampled: dict[str, list[str]], parent: dict[str, str]) -> list[str]:
    """Return the first sampled context on the path to an edge's target that is not on the path to its source."""
    shared = set(_ancestors(edge.source, parent))
    after = []
    for context in _ancestors(edge.target, parent):
        if context in shared:
            break
        if context in sampled:
            after.append(context)
    return after[-1:]
