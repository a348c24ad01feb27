"""Tree rows: the whole token trie of a rollout in one row, each unique token once.

Flattened depth first. `position_ids` is the depth of a token, `subtree_end` the place after the last token of its subtree, so that
a token at q sees the token at k exactly when `(q >= k) & (q < subtree_end[k])`. The logit that predicts a token is its trie
parent's (`parents`), which is not always at the position before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from hermes.trajectories.calls import TOKEN_BYTES, SampledCall, are_in_line
from hermes.trajectories.trie import Trie, TrieNode

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class TreePlacement:
    """Where the trained tokens of a call lie in a tree: one segment, or several if other calls branch off in the middle."""

    call: SampledCall
    segments: tuple[tuple[int, int], ...]


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class TreeRow:
    """The flattened trie, and where the trained tokens of every call lie in it. Tokens that two differing twins share have an entry for
    each."""

    session: str
    rollout: str
    tokenizer: str
    tokens: Ints = field(repr=False)
    position_ids: Ints = field(repr=False)
    subtree_end: Ints = field(repr=False)
    parents: Ints = field(repr=False)
    """The place of the token before each token, -1 at a root."""
    placed: tuple[TreePlacement, ...] = ()


def tree_row(calls: Sequence[SampledCall]) -> TreeRow | None:
    """Return the tree of one rollout and one tokenizer, or None if nothing in it is trained."""
    trainable = [call for call in calls if call.trained]
    if not trainable:
        return None
    if are_in_line(trainable):
        return _tree_of_line(trainable)
    trie = Trie(trainable)
    nodes, ends, above = _flatten(trie)
    lengths = [(node.end - node.start) // TOKEN_BYTES for node in nodes]
    starts = [0, *accumulate(lengths)]
    tokens = np.frombuffer(b"".join([node.source[node.start : node.end] for node in nodes]), np.int32)
    places = np.arange(starts[-1], dtype=np.int32)
    parents = places - np.int32(1)
    parents[starts[:-1]] = [starts[up + 1] - 1 if up >= 0 else -1 for up in above]
    offsets = np.array([start - node.start // TOKEN_BYTES for start, node in zip(starts, nodes, strict=False)], np.int32)
    subtree_ends = np.array([starts[end] for end in ends], np.int32)
    one = trainable[0]
    return TreeRow(
        one.session,
        one.rollout,
        one.tokenizer,
        tokens,
        places - offsets.repeat(lengths),
        subtree_ends.repeat(lengths),
        parents,
        tuple(_place(nodes, above, starts)),
    )


def _tree_of_line(calls: Sequence[SampledCall]) -> TreeRow:
    """Return the tree of calls of which each continues the one before: it has no branch."""
    one = calls[0]
    tokens = np.frombuffer(calls[-1].tokens, np.int32)
    places = np.arange(len(tokens), dtype=np.int32)
    ends = np.full(len(tokens), len(tokens), np.int32)
    placed = tuple([TreePlacement(call, ((call.start, call.end),)) for call in calls])
    return TreeRow(one.session, one.rollout, one.tokenizer, tokens, places, ends, places - np.int32(1), placed)


def _flatten(trie: Trie[SampledCall]) -> tuple[list[TrieNode[SampledCall]], list[int], list[int]]:
    """Return the nodes depth first, for each the number of nodes up to the end of its subtree, and for each its parent's number."""
    nodes: list[TrieNode[SampledCall]] = []
    ends: list[int] = []
    above: list[int] = []
    stack: list[tuple[TrieNode[SampledCall] | None, int]] = [(child, -1) for child in reversed(trie.root.children.values())]
    while stack:
        node, number = stack.pop()
        if node is None:
            ends[number] = len(nodes)
            continue
        place = len(nodes)
        nodes.append(node)
        ends.append(0)
        above.append(number)
        stack.append((None, place))
        stack += [(child, place) for child in reversed(node.children.values())]
    return nodes, ends, above


def _place(nodes: Sequence[TrieNode[SampledCall]], above: Sequence[int], starts: Sequence[int]) -> list[TreePlacement]:
    placed = []
    for number, node in enumerate(nodes):
        for call in node.items:
            segments: list[tuple[int, int]] = []
            at = number
            while at >= 0 and nodes[at].end > call.start * TOKEN_BYTES:
                here = nodes[at]
                offset = max(call.start - here.start // TOKEN_BYTES, 0)
                first = starts[at]
                segments.append((first + offset, first + (here.end - here.start) // TOKEN_BYTES))
                at = above[at]
            placed.append(TreePlacement(call, tuple(reversed(segments))))
    return sorted(placed, key=lambda place: place.call.order)


def ancestor_mask(subtree_end: Ints) -> npt.NDArray[np.bool_]:
    """Return the attention mask of a tree row as a matrix [query, key]: the reference for FlexAttention's mask function."""
    places = np.arange(len(subtree_end))
    query, key = places[:, None], places[None, :]
    return (query >= key) & (query < subtree_end[None, :])
