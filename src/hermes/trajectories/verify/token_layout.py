"""Which rows the samples of one rollout and tokenizer give, computed from their tokens alone.

Sequences are divided by their common beginnings, depth first; branches come in the order of their first sample. Each sequence that
no other continues ends a row. Knows nothing about files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hermes.trajectories.verify.source_samples import TOKEN, SourceSample


@dataclass(frozen=True, slots=True)
class RolloutSamples:
    """The samples of one rollout that share a tokenizer."""

    session: str
    rollout: str
    tokenizer: str
    samples: tuple[SourceSample, ...]
    loss_scale: float


@dataclass(slots=True)
class LayoutRow:
    """A row: its tokens, the samples that are trained in it, and the samples that it holds."""

    tokens: bytes
    trained: list[SourceSample]
    path: list[SourceSample]
    parent: int
    shared: int
    covered: int = 0
    """No token from this one on is trained so far."""

    def columns(self) -> dict[str, Any]:
        """Return mask, weight, logprob and advantage of each token."""
        size = len(self.tokens) // TOKEN
        out = {"weight": np.zeros(size, np.float32), "logprobs": np.zeros(size, np.float32), "advantages": np.zeros(size, np.float32)}
        for sample in self.trained:
            out["weight"][sample.start : sample.end] += 1
            out["logprobs"][sample.start : sample.end] = np.frombuffer(sample.logprobs, "<f4")
            out["advantages"][sample.start : sample.end] = sample.best_reward or 0.0
        return out | {"mask": out["weight"] > 0}

    @property
    def reward(self) -> float | None:
        return self.trained[0].rollout_reward

    @property
    def on_policy(self) -> bool:
        return all(sample.on_policy for sample in self.trained)


@dataclass(slots=True)
class LayoutTree:
    """All tokens of a rollout, each once, and where those of each sample are."""

    tokens: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32]
    depths: npt.NDArray[np.int32]
    ends: npt.NDArray[np.int32]
    segments: dict[SourceSample, list[list[int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A sequence that no other continues."""

    samples: tuple[SourceSample, ...]
    """The samples whose tokens it begins with, from the shortest."""
    cuts: tuple[int, ...]
    """Where a sample ends or a branch begins, in tokens."""

    @property
    def tokens(self) -> bytes:
        return self.samples[-1].tokens


def group_samples(samples: Sequence[SourceSample]) -> list[RolloutSamples]:
    """Divide a session's samples by rollout and tokenizer."""
    groups: dict[tuple[str, str], list[SourceSample]] = {}
    totals: dict[str, int] = {}
    for sample in samples:
        groups.setdefault((sample.rollout, sample.tokenizer), []).append(sample)
        totals[sample.rollout] = totals.get(sample.rollout, 0) + sample.trained
    return [
        RolloutSamples(members[0].session, rollout, tokenizer, tuple(members), 1.0 / totals[rollout] if totals[rollout] else 0.0)
        for (rollout, tokenizer), members in groups.items()
    ]


def layout_rows(samples: Sequence[SourceSample]) -> list[LayoutRow]:
    """Return the linear rows of one rollout and tokenizer."""
    rows: list[LayoutRow] = []
    done: set[SourceSample] = set()
    before, holders = b"", list[tuple[int, int]]()  # (end, row): the first row with the tokens up to that end
    for leaf in _leaves(samples):
        tokens = leaf.tokens
        shared = _common(before, tokens, 0, min(len(before), len(tokens))) // TOKEN
        parent = next((row for end, row in holders if end >= shared), -1) if shared else -1
        holders = [(min(end, shared), row) for end, row in holders if end <= shared or row == parent]
        holders.append((len(tokens) // TOKEN, len(rows)))
        number, before = len(rows), tokens
        rows.append(LayoutRow(tokens, [], list(leaf.samples), parent, shared))
        for sample in sorted((sample for sample in leaf.samples if sample not in done), key=lambda sample: sample.order):
            done.add(sample)
            same = (row for row in rows[number:] if row is rows[number] or row.tokens == sample.tokens)
            row = next((row for row in same if _fits(sample, row)), None)
            if row is None:
                held = [other for other in leaf.samples if other.end <= sample.end]
                row = LayoutRow(sample.tokens, [], held, number, sample.end)
                rows.append(row)
            row.trained.append(sample)
            row.covered = max(row.covered, sample.end)
    return rows


def single_rows(samples: Sequence[SourceSample]) -> Iterator[LayoutRow]:
    """Yield the rows of formats without weights: each token is trained for one sample."""
    for row in layout_rows(samples):
        layers: list[list[SourceSample]] = []
        for sample in in_order(row):
            layer = next((layer for layer in layers if layer[-1].end <= sample.start), None)
            if layer is None:
                layers.append([sample])
            else:
                layer.append(sample)
        for layer in layers:
            yield replace(row, trained=layer, tokens=row.tokens[: max(sample.end for sample in layer) * TOKEN])


def in_order(row: LayoutRow) -> list[SourceSample]:
    """Return the samples trained in a row, from the shortest context."""
    return sorted(row.trained, key=lambda sample: (sample.start, sample.end, sample.order))


def layout_tree(samples: Sequence[SourceSample]) -> LayoutTree | None:
    """Return the tree of one rollout and tokenizer; None if nothing in it is trained."""
    pieces: list[Any] = []
    parents: list[Any] = []
    depths: list[Any] = []
    closed: list[tuple[Any, int]] = []
    segments: dict[SourceSample, list[list[int]]] = {}
    before, places, size = b"", np.empty(0, np.int32), 0
    for leaf in _leaves(samples):
        tokens = leaf.tokens
        shared = _common(before, tokens, 0, min(len(before), len(tokens))) // TOKEN
        new = np.frombuffer(tokens, "<i4")[shared:]
        above = int(places[shared - 1]) if shared else -1
        closed.append((places[shared:], size))
        fresh = np.arange(size, size + len(new), dtype=np.int32)
        places = np.concatenate([places[:shared], fresh])
        pieces.append(new)
        parents.append(np.concatenate([[above], fresh[:-1]]).astype(np.int32))
        depths.append(np.arange(shared, shared + len(new), dtype=np.int32))
        size, before = size + len(new), tokens
        for sample in leaf.samples:
            if sample not in segments:
                bounds = [sample.start, *(cut for cut in leaf.cuts if sample.start < cut <= sample.end)]
                segments[sample] = [[int(places[start]), int(places[end - 1]) + 1] for start, end in pairwise(bounds)]
    if not pieces:
        return None
    ends = np.full(size, size, np.int32)
    for left, end in closed:
        ends[left] = end
    ordered = {sample: segments[sample] for sample in sorted(segments, key=lambda sample: sample.order)}
    return LayoutTree(np.concatenate(pieces), np.concatenate(parents), np.concatenate(depths), ends, ordered)


def _leaves(samples: Sequence[SourceSample]) -> Iterator[_Leaf]:
    """Yield the leaves depth first."""
    trained = [sample for sample in samples if sample.trained]
    stack: list[tuple[int, list[SourceSample], tuple[SourceSample, ...], tuple[int, ...]]] = [(0, trained, (), ())] if trained else []
    while stack:
        start, group, path, cuts = stack.pop()
        end = min(len(sample.tokens) for sample in group)
        for sample in group[1:]:
            end = _common(group[0].tokens, sample.tokens, start, end)
        path = (*path, *(sample for sample in group if len(sample.tokens) == end))
        cuts = (*cuts, end // TOKEN)
        branches: dict[bytes, list[SourceSample]] = {}
        for sample in group:
            if len(sample.tokens) > end:
                branches.setdefault(sample.tokens[end : end + TOKEN], []).append(sample)
        if not branches:
            yield _Leaf(path, cuts)
        stack += [(end, branch, path, cuts) for branch in reversed(branches.values())]


def _common(one: bytes, other: bytes, start: int, end: int) -> int:
    """Return up to where two sequences agree, in bytes, given that they agree before `start`; at most `end`."""
    if one[start:end] == other[start:end]:
        return end
    same = np.frombuffer(one[start:end], "<i4") == np.frombuffer(other[start:end], "<i4")
    return start + int(np.argmin(same)) * TOKEN


def _fits(sample: SourceSample, row: LayoutRow) -> bool:
    return sample.start >= row.covered or all(_agree(sample, other) for other in row.trained)


def _agree(one: SourceSample, other: SourceSample) -> bool:
    """Whether two samples can be trained in one row: on other tokens, or with the same values on the same tokens."""
    start, end = max(one.start, other.start), min(one.end, other.end)
    return start >= end or _values(one, start, end) == _values(other, start, end)


def _values(sample: SourceSample, start: int, end: int) -> tuple[Any, ...]:
    scores = sample.logprobs[(start - sample.start) * TOKEN : (end - sample.start) * TOKEN]
    spans = [
        (version, max(first + sample.start, start), min(last + sample.start, end))
        for version, first, last in sample.policy_spans
        if first + sample.start < end and last + sample.start > start
    ]
    return scores, spans, sample.reward, sample.advantage, sample.on_policy


def policy_spans(sample: SourceSample) -> list[dict[str, Any]]:
    """Return the policy versions of a sample's trained tokens, in tokens of its row."""
    return [
        {"version": version, "start": sample.start + start, "end": sample.start + min(end, sample.trained)}
        for version, start, end in sample.policy_spans
        if start < min(end, sample.trained)
    ]
