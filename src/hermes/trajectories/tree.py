"""Tree rows: the whole token trie of a rollout in one row, each unique token once.

Flattened depth first. `position_ids` is the depth of a token, `subtree_end` the place after the last token of its subtree, so that
a token at q sees the token at k exactly when `(q >= k) & (q < subtree_end[k])`. The logit that predicts a token is its trie
parent's (`parents`), which is not always at the position before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

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


class TreeRun(NamedTuple):
    """Tokens of a tree that follow each other in it and in all sequences that they are in."""

    length: int
    depth: int
    """The depth of its first token; each other token is one deeper than the one before it."""
    end: int
    """The place after the last token of its subtree."""
    parent: int
    """The place of the token before its first token, -1 at a root."""


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class TreePlan:
    """A flattened trie as runs of tokens, and where the trained tokens of every call lie in it. Tokens that two differing twins share have
    an entry for each."""

    session: str
    rollout: str
    tokenizer: str
    tokens: bytes = field(repr=False)
    runs: list[TreeRun] = field(repr=False)
    placed: list[TreePlacement]

    @property
    def length(self) -> int:
        return len(self.tokens) // TOKEN_BYTES


@dataclass(frozen=True, slots=True, eq=False)
class TreeArrays:
    """What trainers read of each token of one tree, or of several trees one after the other."""

    position_ids: Ints
    subtree_end: Ints
    parents: Ints
    """The place of the token before each token, -1 at a root."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeRow:
    """One tree, every token with its arrays."""

    session: str
    rollout: str
    tokenizer: str
    tokens: Ints = field(repr=False)
    position_ids: Ints = field(repr=False)
    subtree_end: Ints = field(repr=False)
    parents: Ints = field(repr=False)
    placed: tuple[TreePlacement, ...] = ()


def tree_row(calls: Sequence[SampledCall]) -> TreeRow | None:
    """Return the tree of one rollout and one tokenizer, or None if nothing in it is trained."""
    plan = tree_plan(calls)
    if plan is None:
        return None
    arrays = tree_arrays([plan.runs])
    tokens = np.frombuffer(plan.tokens, np.int32)
    columns = (tokens, arrays.position_ids, arrays.subtree_end, arrays.parents)
    return TreeRow(plan.session, plan.rollout, plan.tokenizer, *columns, tuple(plan.placed))


def tree_plan(calls: Sequence[SampledCall]) -> TreePlan | None:
    """Return what `tree_row` returns, without an array for each token: `tree_arrays` makes those of many small trees at once."""
    trainable = [call for call in calls if call.trained]
    if not trainable:
        return None
    one = trainable[0]
    if are_in_line(trainable):
        tokens = trainable[-1].tokens
        count = len(tokens) // TOKEN_BYTES
        in_line = [TreePlacement(call, ((call.start, call.end),)) for call in trainable]
        return TreePlan(one.session, one.rollout, one.tokenizer, tokens, [TreeRun(count, 0, count, -1)], in_line)
    nodes, ends, above = _flatten(Trie(trainable))
    lengths = [(node.end - node.start) // TOKEN_BYTES for node in nodes]
    starts = [0, *accumulate(lengths)]
    depths = [node.start // TOKEN_BYTES for node in nodes]
    parents = [starts[up + 1] - 1 if up >= 0 else -1 for up in above]
    runs = list(map(TreeRun, lengths, depths, [starts[end] for end in ends], parents))
    tokens = b"".join([node.source[node.start : node.end] for node in nodes])
    return TreePlan(one.session, one.rollout, one.tokenizer, tokens, runs, _place(nodes, above, starts))


def tree_arrays(trees: Sequence[Sequence[TreeRun]]) -> TreeArrays:
    """Return the arrays of some trees, given as their runs; places and depths count from 0 in each tree."""
    columns = np.array([run for runs in trees for run in runs], np.int32).reshape(-1, 4)
    lengths, depths, ends, above = columns.T
    starts = lengths.cumsum(dtype=np.int32) - lengths
    counts = np.array([len(runs) for runs in trees], np.intp)
    tree_starts = starts[counts.cumsum() - counts].repeat(counts)
    places = np.arange(lengths.sum(), dtype=np.int32)
    # In place: the arrays of a row group are megabytes each.
    parents: Ints = (tree_starts + np.int32(1)).repeat(lengths)
    np.subtract(places, parents, out=parents)
    parents[starts] = above
    places -= (starts - depths).repeat(lengths)
    return TreeArrays(places, ends.repeat(lengths), parents)


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
