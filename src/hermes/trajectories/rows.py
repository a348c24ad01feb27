"""Linear rows: one for each leaf of the token trie, the smallest number of rows that holds every call in its own context.

Rows come depth first, so that trainers which merge consecutive calls lose nothing. A call is trained in the first row that holds
it and is context in the others. Samples with equal tokens share their span (its weight counts them) if they agree in everything
else; a sample that differs gets a row of its own. Knows nothing about files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hermes.trajectories.calls import TOKEN_BYTES, SampledCall, are_in_line
from hermes.trajectories.trie import Trie


@dataclass(slots=True, eq=False)  # never changed; `frozen` would make its constructor three times as slow
class Row:
    """A sequence of tokens, and which of them are trained for which call."""

    session: str
    rollout: str
    tokenizer: str
    tokens: bytes = field(repr=False)
    calls: tuple[SampledCall, ...]
    """The calls trained here: for each, row tokens [call.start, call.end)."""
    path: tuple[SampledCall, ...]
    """Every call whose prompt and completion this row holds, trained here or elsewhere, from the shortest to the longest."""
    parent: int
    """The index, among the rollout's rows, of the earlier row that shares the most tokens with this one; -1 for none."""
    shared: int
    """How many leading tokens it shares with its parent."""

    @property
    def length(self) -> int:
        return len(self.tokens) // TOKEN_BYTES


@dataclass(slots=True)
class _RowDraft:
    tokens: bytes
    calls: list[SampledCall]
    path: tuple[SampledCall, ...]
    parent: int
    shared: int
    covered: int = 0
    """No token from this one on is trained yet."""


def linear_rows(calls: Sequence[SampledCall]) -> list[Row]:
    """Return the rows of one rollout and one tokenizer; calls without trained tokens have none."""
    trainable = [call for call in calls if call.trained]
    if not trainable:
        return []
    if are_in_line(trainable):
        one, whole = trainable[0], tuple(trainable)
        return [Row(one.session, one.rollout, one.tokenizer, trainable[-1].tokens, whole, whole, -1, 0)]
    drafts: list[_RowDraft] = []
    first_rows: list[int] = []  # for each node of the current path, the row that held it first
    on_path: list[SampledCall] = []
    for path, shared in Trie(trainable).leaves():
        del first_rows[shared:]
        del on_path[sum(len(node.items) for node in path[:shared]) :]
        parent = first_rows[-1] if first_rows else -1
        number = len(drafts)
        first_rows += [number] * (len(path) - shared)
        new = [call for node in path[shared:] for call in node.items]
        on_path += new
        leaf = path[-1]
        draft = _RowDraft(leaf.source[: leaf.end], [], tuple(on_path), parent, path[shared - 1].end // TOKEN_BYTES if shared else 0)
        drafts.append(draft)
        for call in sorted(new, key=lambda call: call.order):
            # A call after all trained tokens fits without comparing it with each other call: else a row of n turns costs n * n.
            if call.start >= draft.covered or _fits(call, draft.calls):
                draft.calls.append(call)
                draft.covered = max(draft.covered, call.end)
            else:
                _place_twin(call, number, drafts)
    one = trainable[0]
    return [
        Row(one.session, one.rollout, one.tokenizer, draft.tokens, tuple(draft.calls), draft.path, draft.parent, draft.shared)
        for draft in drafts
    ]


def _place_twin(call: SampledCall, number: int, drafts: list[_RowDraft]) -> None:
    """Put a sample that differs from its twins into the first later row with the same tokens where it fits, or into a new row."""
    tokens = call.tokens
    for draft in drafts[number + 1 :]:
        if draft.tokens == tokens and _fits(call, draft.calls):
            draft.calls.append(call)
            return
    path = tuple(other for other in drafts[number].path if other.end <= call.end)
    drafts.append(_RowDraft(tokens, [call], path, number, len(tokens) // TOKEN_BYTES))


def _fits(call: SampledCall, placed: Sequence[SampledCall]) -> bool:
    """Whether a row can train this call together with these: they train other tokens, or the same tokens with equal attributes."""
    return all(_agree(call, other) for other in placed)


def _agree(one: SampledCall, other: SampledCall) -> bool:
    start, end = max(one.start, other.start), min(one.end, other.end)
    if start >= end:
        return True
    return _attributes(one, start, end) == _attributes(other, start, end)


def _attributes(call: SampledCall, start: int, end: int) -> tuple[object, ...]:
    """Return everything that a trainer reads of a call besides its tokens, for row tokens [start, end)."""
    scores = call.logprobs[(start - call.start) * TOKEN_BYTES : (end - call.start) * TOKEN_BYTES]
    spans = [
        (version, max(first + call.start, start), min(last + call.start, end))
        for version, first, last in call.policy_spans
        if first + call.start < end and last + call.start > start
    ]
    return scores, spans, call.reward, call.advantage, call.rollout, call.on_policy


def loss_scale(trained: int) -> float:
    """Return the factor for each of a rollout's trained tokens that makes every rollout weigh 1, forked or not."""
    return 1.0 / trained if trained else 0.0
