"""The ledger: for every sample of an export, where it is trained or why it is not. `ledger.jsonl` lies beside every export.

The first line is the manifest: counts, what is trained on and off policy, reasons, files with their hashes, the Merkle root over all
samples, and one hash over all graphs. Every other line is one sample:

    {"sample", "response", "session", "rollout", "tokenizer", "sampled",
     "prompt": {"length", "sha256"}, "completion": {"length", "sha256"},
     "trained": [{"row", "start", "end"}], "excluded": [{"start", "end", "reason"}]}

`trained` says: tokens [start, end) of that row are the first end - start tokens of the completion, and the tokens before `start` are
the prompt. A tree row has `segments` instead of start and end; a text format has `turn`, with the hashes of the turn and of the turns
before it. `excluded` counts in tokens of the completion. prompt and completion are hashed as little-endian int32. Nothing
here reads rows: hermes.trajectories.verify does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from json.encoder import encode_basestring_ascii
from typing import IO, Any, NamedTuple

from hermes.graph.message import canonical, canonical_json
from hermes.trajectories.calls import TOKEN_BYTES, ExcludedSpan, SampledCall
from hermes.trajectories.merkle import SampleLeaves, merkle_root

FILE_NAME = "ledger.jsonl"
VERSION = 1

POLICIES = ("on_policy", "off_policy")

_escape = encode_basestring_ascii

_ROW = re.compile(rb'"row":(\d+)')


class Placement(NamedTuple):
    """Where one call is trained: `where` is its entry in the ledger's `trained`."""

    call: SampledCall
    where: Mapping[str, Any]
    differs: bool = False
    """Whether the row differs from what was sent, for a reason that the call itself does not have."""

    @property
    def is_on_policy(self) -> bool:
        return self.call.on_policy and not self.differs


@dataclass(slots=True)
class Ledger:
    """Writes the lines and counts them; `manifest` returns the counts at the end."""

    body: IO[bytes]
    sessions: int = 0
    samples: int = 0
    duplicates: int = 0
    placed: int = 0
    """How many samples are trained, wholly or in part."""
    sampled: int = 0
    trained: int = 0
    leaves: SampleLeaves = field(default_factory=SampleLeaves)
    roots: SampleLeaves = field(default_factory=SampleLeaves)
    """The root of every graph, in hexadecimal, as a leaf without a hash."""
    reasons: dict[str, list[int]] = field(default_factory=dict)
    """Reason to [samples, tokens]."""
    on_policy: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Rows in which everything trained is on policy, and the samples and tokens trained in them."""
    off_policy: list[int] = field(default_factory=lambda: [0, 0, 0])
    weighted: int = 0
    """How many trained samples have an advantage other than 0."""

    def enter_session(self, root: str, calls: Iterable[SampledCall], placements: Iterable[Placement], untrained: str = "") -> None:
        """Write the lines of a session's samples, and count its rows: a row is on policy if all samples trained in it are.

        `root` is the root of the session's graph."""
        placed = {id(placement.call): placement for placement in placements}
        rows: dict[int, bool] = {}
        for placement in placed.values():
            row = placement.where["row"]
            rows[row] = rows.get(row, True) and placement.is_on_policy
        for is_on_policy in rows.values():
            (self.on_policy if is_on_policy else self.off_policy)[0] += 1
        for call in calls:
            found = placed.get(id(call))
            trained = self.enter(call, found, untrained)
            if found is not None:
                count = self.on_policy if rows[found.where["row"]] else self.off_policy
                count[1] += 1
                count[2] += trained
                self.weighted += call.effective_advantage != 0.0
        self.sessions += 1
        self.roots.add((root, b""))

    def enter(self, call: SampledCall, placement: Placement | None, untrained: str = "") -> int:
        """Write one sample's line; return how many of its tokens are trained. Without a placement the whole sample is excluded: for its own
        reasons, else because of `untrained`."""
        is_text = placement is not None and "turn" in placement.where
        excluded = [] if is_text else list(call.excluded)  # a turn is trained whole, whether its tokens are known or not
        if placement is None and (call.trained or not excluded):
            excluded.insert(0, ExcludedSpan(0, call.trained, untrained))
        trained = call.sampled if is_text else call.trained if placement is not None else 0
        head, tail = _line_of(call)
        spans = canonical_json([part._asdict() for part in excluded]) if excluded else "[]"
        where = canonical_json(placement.where) if placement is not None else ""
        self.body.write(f'{head},"excluded":{spans}{tail},"trained":[{where}]}}\n'.encode("ascii"))
        self.samples += 1
        self.placed += placement is not None
        self.sampled += call.sampled
        self.trained += trained
        self.leaves.add((call.sample_id, _hash_leaf(f"{head}{tail}}}\n".encode("ascii"))))
        for part in excluded:
            count = self.reasons.setdefault(part.reason, [0, 0])
            count[0] += 1
            count[1] += part.end - part.start
        return trained

    def take(self, part: Ledger, first_row: int) -> None:
        """Append all entries of another ledger, as if they had been entered here; their rows are counted from `first_row` on."""
        part.body.seek(0)
        self.body.write(renumber_rows(part.body.read(), first_row))
        self.sessions += part.sessions
        self.samples += part.samples
        self.placed += part.placed
        self.sampled += part.sampled
        self.trained += part.trained
        self.weighted += part.weighted
        self.leaves.take(part.leaves)
        self.roots.take(part.roots)
        self.on_policy = [one + other for one, other in zip(self.on_policy, part.on_policy, strict=True)]
        self.off_policy = [one + other for one, other in zip(self.off_policy, part.off_policy, strict=True)]
        for reason, (samples, tokens) in part.reasons.items():
            count = self.reasons.setdefault(reason, [0, 0])
            count[0] += samples
            count[1] += tokens

    def manifest(self, settings: Mapping[str, Any], rows: int, files: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the first line of the ledger."""
        excluded = sum(tokens for _, tokens in self.reasons.values())
        return {
            "ledger": "hermes.trajectories",
            "version": VERSION,
            "settings": dict(settings),
            "files": list(files),
            "rows": rows,
            "sessions": self.sessions,
            "samples": self.samples,
            "duplicates": self.duplicates,
            "tokens": {"sampled": self.sampled, "trained": self.trained, "excluded": excluded},
            "trained": {name: dict(zip(("rows", "samples", "tokens"), getattr(self, name), strict=True)) for name in POLICIES},
            "nonzero_advantages": self.weighted,
            "excluded": {reason: {"samples": samples, "tokens": tokens} for reason, (samples, tokens) in sorted(self.reasons.items())},
            "merkle_root": merkle_root(leaf for _, leaf in self.leaves),
            "source_root": source_root(root for root, _ in self.roots),
        }


def _line_of(call: SampledCall) -> tuple[str, str]:
    """Return a sample's line as `dump` writes it, in two pieces: `excluded` comes between them and `trained` after them, in the order of
    keys. The Merkle leaf covers these two pieces."""
    at = call.start * TOKEN_BYTES
    head = f'{{"completion":{_fingerprint(call.whole[at:])}'
    tail = (
        f',"prompt":{_fingerprint(call.whole[:at])},"response":"{call.response_id}","rollout":{_escape(call.rollout)},'
        f'"sample":{_escape(call.sample_id)},"sampled":{call.sampled},"session":{_escape(call.session)},"tokenizer":{_escape(call.tokenizer)}'
    )
    return head, tail


def source_root(roots: Iterable[str]) -> str:
    """Return the one hash over all graphs: the SHA-256 of their roots, sorted."""
    whole = sha256()
    for root in roots:
        whole.update(bytes.fromhex(root))
    return whole.hexdigest()


def _fingerprint(tokens: bytes) -> str:
    """Return length and hash of some tokens, as they stand in a line."""
    return f'{{"length":{len(tokens) // TOKEN_BYTES},"sha256":"{sha256(tokens).hexdigest()}"}}'


def merkle_leaf(line: Mapping[str, Any]) -> bytes:
    """Return the Merkle leaf of a sample: it covers what was sampled and in which context, not where it is trained."""
    return _hash_leaf(dump({key: value for key, value in line.items() if key not in ("trained", "excluded")}))


def _hash_leaf(text: bytes) -> bytes:
    return sha256(b"\0" + text).digest()


def dump(value: Any) -> bytes:
    """Write one line of JSON, always the same bytes for the same value."""
    return canonical(value) + b"\n"


def renumber_rows(lines: bytes, first_row: int) -> bytes:
    """Return lines of `dump` with every `row` counted from `first_row` on. A quote inside a text is escaped, so `"row":` is a key.

    Only for lines whose keys Hermes chose: another program's key `row` may mean something else."""
    return _ROW.sub(lambda found: b'"row":%d' % (first_row + int(found[1])), lines) if first_row else lines
