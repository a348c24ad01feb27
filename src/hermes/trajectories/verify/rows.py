"""Check rows against the ledger: each sample is where the ledger says, after exactly its prompt, and nothing else is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import numpy as np

from hermes.trajectories.verify.exported_rows import ExportedConversation, ExportedRow, ExportedTree, Floats, Ints
from hermes.trajectories.verify.ledger import LedgerIndex, LedgerLine
from hermes.trajectories.verify.report import ProblemList
from hermes.trajectories.verify.tree_reader import path_to


def check_linear(exported: ExportedRow, ledger: LedgerIndex, problems: ProblemList) -> None:
    """Check one row of tokens."""
    complain = _Complaint(exported, problems)
    counted = np.zeros(len(exported.tokens), np.float32)
    samples = ledger.by_row.get(exported.row, [])
    for sample in samples:
        start, end = _range(sample)
        if not 0 <= start <= end <= len(exported.tokens) or end - start != sample.trained:
            complain(f"the ledger trains [{start}, {end}), which is not {sample.trained} of its {len(exported.tokens)} tokens", sample)
            continue
        counted[start:end] += 1
        _check_sample(sample, exported.tokens[:start], exported.tokens[start:end], complain)
    if not np.array_equal(counted > 0, exported.mask):
        at = int(np.argmax((counted > 0) != exported.mask))
        complain(
            f"token {at} is trained, but no sample accounts for it"
            if exported.mask[at]
            else f"token {at} is not trained, but a sample is there"
        )
    elif exported.weight is not None and not np.array_equal(counted, exported.weight):
        at = int(np.argmax(counted != exported.weight))
        complain(f"token {at} has weight {exported.weight[at]:g}, but {counted[at]:g} samples are there")
    _check_row(exported, samples, ledger, complain)
    _check_path(exported, samples, ledger, complain)
    if exported.samples is not None:
        known = {sample.sample: _range(sample) for sample in samples}
        if {name: where or known.get(name) for name, where in exported.samples.items()} != known:
            complain("names other samples than the ledger, or other places for them")


def check_turns(row: ExportedConversation, ledger: LedgerIndex, problems: ProblemList) -> None:
    """Check one conversation: each sample's turn is marked and equals the ledger's, and no other turn is marked."""

    def complain(what: str, sample: LedgerLine | None = None) -> None:
        problems.add(what, file=row.file, row=row.row, sample=sample.sample if sample else None)

    for fault in row.faults:
        complain(fault)
    samples = ledger.by_row.get(row.row, [])
    taken: dict[int, LedgerLine] = {}
    for sample in samples:
        where = sample.where or {}
        turn = where.get("turn")
        if type(turn) is not int or not 0 <= turn < len(row.digests):
            complain(f"the ledger trains turn {turn!r} of {len(row.digests)}", sample)
            continue
        if turn in taken:
            complain(f"turn {turn} is trained for sample {taken[turn].sample!r} already", sample)
        taken[turn] = sample
        for fault in _turn_faults(row, turn, where):
            complain(fault, sample)
        for key in ("session", "rollout"):
            if getattr(row, key) not in (None, getattr(sample, key)):
                complain(f"is of {key} {getattr(row, key)!r}, the sample of {getattr(sample, key)!r}", sample)
    for turn in (turn for turn, is_marked in enumerate(row.marked) if is_marked and turn not in taken):
        complain(f"turn {turn} is marked as trained, but no sample accounts for it")
    if row.responses is not None and list(row.responses) != [taken[turn].response for turn in sorted(taken)]:
        complain("names other responses than the ledger")


def _turn_faults(row: ExportedConversation, turn: int, where: Mapping[str, Any]) -> Iterator[str]:
    """Compare a turn and the turns before it with their digests in the ledger."""
    if row.digests[turn] != where.get("sha256"):
        yield f"turn {turn} is not the one in the ledger"
    first = row.starts[turn] if row.starts else 0
    if hashlib.sha256("".join(row.digests[first:turn]).encode("ascii")).hexdigest() != where.get("context"):
        yield f"the turns before turn {turn} are not those in the ledger"
    if not row.marked[turn]:
        yield f"turn {turn} is not marked as trained"


def check_tree(tree: ExportedTree, ledger: LedgerIndex, problems: ProblemList) -> None:
    """Check one tree: the entries of each sample are the segments in the ledger, and the path from the root to them is its prompt."""
    complain = _Complaint(tree, problems)
    samples = ledger.by_row.get(tree.row, [])
    for sample in samples:
        places = tree.entries.get(sample.sample, np.empty(0, np.int32))
        stated = list(_places(sample))
        if places.tolist() != stated or len(stated) != sample.trained or not stated:
            complain("the entries are not the segments of the ledger", sample)
            continue
        if not np.array_equal(tree.parents[places[1:]], places[:-1]):
            complain("one trained token does not follow the other", sample)
        _check_sample(sample, path_to(tree, int(tree.parents[places[0]])), tree.tokens[places], complain)
    for name in tree.entries.keys() - {sample.sample for sample in samples}:
        complain(f"trains sample {name!r}, which the ledger does not have there")
    _check_row(tree, samples, ledger, complain)


@dataclass(frozen=True, slots=True)
class _Complaint:
    exported: ExportedRow | ExportedTree
    problems: ProblemList

    def __call__(self, what: str, sample: LedgerLine | None = None) -> None:
        self.problems.add(what, file=self.exported.file, row=self.exported.row, sample=sample.sample if sample else None)


def _check_sample(sample: LedgerLine, prompt: Ints, trained: Ints, complain: _Complaint) -> None:
    if len(prompt) != sample.prompt.length:
        complain(f"{len(prompt)} tokens stand before it, but its prompt has {sample.prompt.length}", sample)
    elif _sha256(prompt) != sample.prompt.sha256:
        complain("the tokens before it are not its prompt", sample)
    # If only a part of a completion is trained, the ledger's hash does not apply; `--against` compares the part.
    if len(trained) == sample.completion.length and _sha256(trained) != sample.completion.sha256:
        complain("the tokens trained are not its completion", sample)


def _check_row(exported: ExportedRow | ExportedTree, samples: Sequence[LedgerLine], ledger: LedgerIndex, complain: _Complaint) -> None:
    """Check what holds for rows of any shape."""
    for fault in exported.faults:
        complain(fault)
    for sample in samples:
        for key in ("session", "rollout", "tokenizer"):
            stated = getattr(exported, key)
            if stated is not None and stated != getattr(sample, key):
                complain(f"is of {key} {stated!r}, the sample of {getattr(sample, key)!r}", sample)
    if exported.loss_scale is not None and samples:
        tokens = ledger.rollout_tokens[samples[0].session, samples[0].rollout]
        if not tokens or not isclose(exported.loss_scale * tokens, 1, rel_tol=1e-6):
            complain(f"loss_scale is {exported.loss_scale:g}, but {tokens} tokens are trained in its rollout, so its sum is not 1")
    settings = ledger.manifest["settings"]
    if exported.on_policy is False and settings["policies"]["derived"] == "exclude" and settings["tokenizer"] is None:
        complain("says on_policy: false, but derived prompts were excluded and nothing was tokenised")


def _check_path(exported: ExportedRow, samples: Sequence[LedgerLine], ledger: LedgerIndex, complain: _Complaint) -> None:
    """Check `path`: it names every sample trained in the row, and only responses whose prompt and completion the row holds."""
    if not exported.path:
        return
    named = [ledger.by_response.get(response) for response in exported.path]
    for sample in samples:
        if sample.response not in exported.path:
            complain("is trained here, but `path` does not name it", sample)
    prefixes = _prefixes(exported.tokens, {sample.prompt.length for sample in named if sample is not None})
    for response, held in zip(exported.path, named, strict=True):
        if held is None:
            complain(f"`path` names the response {str(response)[:12]}, which the ledger does not have")
            continue
        start, end = held.prompt.length, held.prompt.length + held.trained
        is_whole = held.trained == held.completion.length
        if prefixes.get(start) != held.prompt.sha256 or (is_whole and _sha256(exported.tokens[start:end]) != held.completion.sha256):
            complain("`path` names it, but the row does not hold it", held)


def _prefixes(tokens: Ints, lengths: Iterable[int]) -> dict[int, str]:
    """Return the hash of the prefix of each length, in one pass over the tokens."""
    hashes, running, done = {}, hashlib.sha256(), 0
    for length in sorted(lengths):
        if length <= len(tokens):
            running.update(_bytes(tokens[done:length]))
            hashes[length], done = running.copy().hexdigest(), length
    return hashes


def _range(sample: LedgerLine) -> tuple[int, int]:
    where = sample.where or {}
    start, end = where.get("start"), where.get("end")
    return (start, end) if type(start) is int and type(end) is int else (-1, -1)


def _places(sample: LedgerLine) -> Iterator[int]:
    """Yield the places in a tree that the ledger's segments name; nothing if the segments are malformed."""
    segments: Any = (sample.where or {}).get("segments")
    if isinstance(segments, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(at) is int for at in pair) for pair in segments
    ):
        for start, end in segments:
            yield from range(start, min(end, start + sample.sampled + 1))  # a wrong end may be huge


def _bytes(values: Ints | Floats) -> bytes:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()


def _sha256(tokens: Ints) -> str:
    return hashlib.sha256(_bytes(tokens)).hexdigest()
