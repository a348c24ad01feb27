"""Check rows against the ledger: each sample is where the ledger says, after exactly its prompt, and nothing else is trained.

Fills `RowEvidence`: digests of what the rows hold of each sample, so that the source is compared later without reading rows again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any

import numpy as np

from hermes.trajectories.verify.exported_rows import ExportedConversation, ExportedRow, ExportedTree, Floats, Ints
from hermes.trajectories.verify.ledger import LedgerIndex, LedgerLine
from hermes.trajectories.verify.report import ProblemList
from hermes.trajectories.verify.tree_reader import path_to


@dataclass(frozen=True, slots=True)
class SampleEvidence:
    """What a row holds of one sample."""

    tokens: bytes | None
    """Digest of its trained tokens; None in a text format."""
    logprobs: bytes | None
    """Digest of their logprobs; None where the format has none."""
    are_zero: bool
    """Whether all these logprobs are 0, as they are for tokens that Hermes tokenised itself."""
    on_policy: bool | None
    file: str
    row: int
    group: int | None = None
    """Rows with the same group share one stated on_policy; None if each row states its own."""
    text: bytes | None = None
    """In a text format, the digest of its turn and all turns before it."""


@dataclass(slots=True)
class RowEvidence:
    """What was found in the rows, by the number of the ledger's line."""

    rows: int = 0
    found: dict[int, SampleEvidence] = field(default_factory=dict)


def digest(values: Ints | Floats) -> bytes:
    """Return a digest of tokens or logprobs, so that every sample needs the same memory."""
    return hashlib.blake2b(_bytes(values), digest_size=16).digest()


def check_linear(exported: ExportedRow, ledger: LedgerIndex, evidence: RowEvidence, problems: ProblemList) -> None:
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
        scores = None if exported.logprobs is None else exported.logprobs[start:end]
        _keep_evidence(sample, exported.tokens[start:end], scores, exported, evidence)
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
    _check_row(exported, samples, ledger, evidence, complain)
    _check_path(exported, samples, ledger, complain)
    if exported.samples is not None:
        known = {sample.sample: _range(sample) for sample in samples}
        if {name: where or known.get(name) for name, where in exported.samples.items()} != known:
            complain("names other samples than the ledger, or other places for them")


def check_turns(row: ExportedConversation, ledger: LedgerIndex, evidence: RowEvidence, problems: ProblemList) -> None:
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
        evidence.found[sample.line] = SampleEvidence(
            None, None, are_zero=False, on_policy=None, file=row.file, row=row.row, text=_turn_digest(row, turn)
        )
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


def _turn_digest(row: ExportedConversation, turn: int) -> bytes:
    """Return a digest of a turn and the turns before it, without tool results."""
    first = row.starts[turn] if row.starts else 0
    return conversation_digest((row.speakers[at], row.texts[at]) for at in range(first, turn + 1) if row.speakers[at])


def conversation_digest(turns: Iterable[tuple[str, str]]) -> bytes:
    """Return a digest of turns, each as role and text."""
    return hashlib.blake2b(json.dumps(list(turns)).encode("ascii"), digest_size=16).digest()


def check_tree(tree: ExportedTree, ledger: LedgerIndex, evidence: RowEvidence, problems: ProblemList) -> None:
    """Check one tree: the entries of each sample are the segments in the ledger, and the path from the root to them is its prompt."""
    complain = _Complaint(tree, problems)
    samples = ledger.by_row.get(tree.row, [])
    for sample in samples:
        places, scores = tree.entries.get(sample.sample, (np.empty(0, np.int32), np.empty(0, np.float32)))
        stated = list(_places(sample))
        if places.tolist() != stated or len(stated) != sample.trained or not stated:
            complain("the entries are not the segments of the ledger", sample)
            continue
        if not np.array_equal(tree.parents[places[1:]], places[:-1]):
            complain("one trained token does not follow the other", sample)
        _check_sample(sample, path_to(tree, int(tree.parents[places[0]])), tree.tokens[places], complain)
        _keep_evidence(sample, tree.tokens[places], scores, tree, evidence)
    for name in tree.entries.keys() - {sample.sample for sample in samples}:
        complain(f"trains sample {name!r}, which the ledger does not have there")
    _check_row(tree, samples, ledger, evidence, complain)


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


def _keep_evidence(
    sample: LedgerLine, tokens: Ints, scores: Floats | None, exported: ExportedRow | ExportedTree, evidence: RowEvidence
) -> None:
    logprobs = None if scores is None else digest(scores.astype(np.float32))
    are_zero = scores is not None and not scores.any()
    group = exported.group if isinstance(exported, ExportedRow) else None
    evidence.found[sample.line] = SampleEvidence(digest(tokens), logprobs, are_zero, exported.on_policy, exported.file, exported.row, group)


def _check_row(
    exported: ExportedRow | ExportedTree, samples: Sequence[LedgerLine], ledger: LedgerIndex, evidence: RowEvidence, complain: _Complaint
) -> None:
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
    is_alone = isinstance(exported, ExportedTree) or exported.group is None
    if exported.on_policy is False and is_alone and ledger.manifest["settings"]["policies"].get("derived") == "exclude":
        # Tokens that Hermes tokenised itself have no logprobs; with derived prompts excluded, nothing else can be off-policy.
        known = [evidence.found[sample.line] for sample in samples if sample.line in evidence.found]
        if not any(found.are_zero or found.logprobs is None for found in known):
            complain("says on_policy: false, but derived prompts were excluded and every sample has logprobs")


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
            complain(f"`path` names the response {response[:12]}, which the ledger does not have")
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
