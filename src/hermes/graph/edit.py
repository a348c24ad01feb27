"""The edit rule: when does an edit keep the version it changes?

    An edit keeps the previous version exactly when some sampled response, in the list or inside a chat attached to it,
    would otherwise no longer be reachable with its context. Any other edit replaces messages without keeping them.

A response is reachable when some head (the current list or a kept version) holds its context followed by its message.
Worked example, * = sampled:

    [S U A* U B*]    edit at 1   keeps it: A and B were sampled after the old U. Now [S U' A U B]: copies, no samples
    [S U' A U B]     edit at 1   keeps nothing: no model saw this list
    [S U" A U B C*]  edit at 3   keeps it: C was sampled after the message at 3
    [S U A* W B C]   edit at 1   keeps nothing. U" was edited back to U, so A is a sample again; but a kept version holds it too

Three facts make the rule cheap:
- Only samples at k or later can lose their context, where k is the first index at which the lists before and after differ.
- Keeping a version saves every sample in the list at once, so only samples that came after it (`fresh`) can be lost.
  Of these the last decides: a kept head that agrees with the list up to this sample, and in it, holds the earlier ones too.
- A chat attached to a message does not depend on the messages before it: it is lost only when its own message is replaced or removed.

The decision is made here; `version_tree.depth` says how far a kept head agrees with the list. Knows nothing about files, threads or how
lists are indexed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hermes.graph.delta import Delta
from hermes.graph.history import GraphHistory
from hermes.graph.message import METADATA, canonical
from hermes.graph.node import Node, common_prefix, is_same_content

EDIT = "edit"
ALTERNATIVE = "alternative"
COMPACTION = "compaction"
REDACTION = "redaction"
SUBAGENT_CALL = "subagent_call"
SUBAGENT_RETURN = "subagent_return"
SEQUENTIAL = "sequential"


def rewrite(history: GraphHistory, start: int, stop: int, nodes: Sequence[Node], kind: str = EDIT) -> bool:
    """Replace the current list's [start:stop] by `nodes`, keeping the previous version if the rule asks for it.

    Returns whether a version was kept. Equal messages at both ends of the region are left as they are, so an equal value is a
    no-op and the slots around a change keep their nodes."""
    current = history.nodes
    lead, size = 0, len(nodes)
    while start < stop and lead < size and _is_unchanged(current[start], nodes[lead]):
        start, lead = start + 1, lead + 1
    while start < stop and lead < size and _is_unchanged(current[stop - 1], nodes[size - 1]):
        stop, size = stop - 1, size - 1
    new = list(nodes[lead:size])
    if start == stop and not new:
        return False
    broken_at = _first_difference(current, start, stop, new)
    keep = _loses_sample(history, broken_at) or _loses_chat(history, start, stop, new)
    if keep:
        _keep_version(history, kind)
    elif history.fresh and history.fresh[-1] >= broken_at:
        _reanchor(history, broken_at)
    if history.deltas:
        history.deltas[-1].record(current, start, stop, len(new))
    is_changed = broken_at < len(current)
    history.version_tree.cut(broken_at, current)
    current[start:stop] = new
    if is_changed or broken_at < len(current):
        history.revision += 1
        history.forget_ids(broken_at)
        history.version_tree.follow(broken_at, current, history.nodes_of)
    return keep


def extend(history: GraphHistory, nodes: Iterable[Node]) -> None:
    """Put nodes at the end of the current list. Never keeps a version: no sampled context changes."""
    for node in nodes:
        history.nodes.append(node)
        history.version_tree.follow(len(history.nodes) - 1, history.nodes, history.nodes_of)


def branch(history: GraphHistory, context: Sequence[Node], node: Node) -> tuple[int, int]:
    """Find or make a head that holds `context` followed by `node`; return the head and the index of the node on it.

    The current list stays as it is. A new head becomes a kept version, joined to the current list by an edge."""
    nodes = [*context, node]
    depth = common_prefix(nodes, history.nodes)
    head = history.live if depth == len(nodes) else history.version_tree.find(nodes, depth, history.nodes_of)
    if head is not None:
        attached = _responses_in(nodes)
        if not attached or not attached - _responses_in(history.all_nodes()):
            return head, len(context)
    if history.deltas:
        history.deltas[-1] = Delta.between(history.nodes_of(history.kept[-1]), nodes)
    history.numbers += 1
    history.enter(history.numbers, Delta.between(nodes, history.nodes), (history.live, ALTERNATIVE), nodes)
    history.version_tree.add(history.numbers, nodes, depth, history.nodes_of)
    return history.numbers, len(context)


def _is_unchanged(old: Node, new: Node) -> bool:
    """Whether putting `new` in the slot of `old` would change nothing at all, metadata included."""
    if old is new:
        return True
    if not is_same_content(old, new) or old.chat is not new.chat:
        return False
    return _metadata_bytes(old) == _metadata_bytes(new)


def _metadata_bytes(node: Node) -> bytes:
    """Return the metadata in canonical form, without the chat in it."""
    metadata = node.get(METADATA)
    return canonical({key: value for key, value in metadata.items() if key != "chat"} if metadata else metadata)


def _first_difference(current: Sequence[Node], start: int, stop: int, new: Sequence[Node]) -> int:
    """Return the first index where the list before and the list after differ in content; the list's length if they do not.

    [A A A] without its first A is [A A]: they differ at the end only, and a sample at 1 still has its context."""
    shift = stop - start - len(new)
    end = len(current) - max(shift, 0)
    if shift == 0:
        end = stop
    for index in range(start, end):
        after = new[index - start] if index - start < len(new) else current[index + shift]
        if not is_same_content(current[index], after):
            return index
    return len(current) if shift == 0 else end


def _loses_sample(history: GraphHistory, broken_at: int) -> bool:
    if not history.fresh or history.fresh[-1] < broken_at:
        return False
    return history.fresh[-1] >= history.version_tree.depth


def _loses_chat(history: GraphHistory, start: int, stop: int, new: Iterable[Node]) -> bool:
    current = history.nodes
    lost = _responses_in(current[start:stop])
    if not lost:
        return False
    lost -= _responses_in(new)
    if not lost:  # the usual case: a tool's output was trimmed and its chat stays attached
        return False
    lost -= _responses_in(current[:start])
    lost -= _responses_in(current[stop:])
    for delta in history.deltas:
        lost -= _responses_in(delta.restored_nodes())
    if lost and history.kept:
        lost -= _responses_in(history.nodes_of(history.kept[-1]))
    return bool(lost)


def _responses_in(nodes: Iterable[Node]) -> set[str]:
    """Return the ids of the responses inside the chats attached to these nodes."""
    found: set[str] = set()
    for node in nodes:
        chat = node.chat
        if chat is not None:
            found |= chat.response_ids
    return found


def _keep_version(history: GraphHistory, kind: str) -> None:
    """Make the current list a kept version; the current list gets a new number."""
    history.settle()
    head, length = history.live, len(history.nodes)
    history.numbers += 1
    history.live = history.numbers
    history.fresh = []
    history.since = len(history.samples)
    history.enter(head, Delta(length), (history.live, kind), history.nodes)
    history.version_tree.keep(head, length)


def _reanchor(history: GraphHistory, broken_at: int) -> None:
    """Move the samples from `broken_at` on to a kept head: it holds them too, and the current list is about to lose them."""
    samples = history.settle()
    head = history.version_tree.deepest_head()
    for at in range(history.since, len(samples)):
        if samples[at].head == history.live and samples[at].index >= broken_at:
            history.samples[at] = replace(samples[at], head=head)
    del history.fresh[bisect_left(history.fresh, broken_at) :]
    if not history.fresh:
        history.since = len(samples)
