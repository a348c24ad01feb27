"""The ledger: for every sample of an export, where it is trained or why it is not. `ledger.jsonl` lies beside every export.

The first line is the manifest: counts, reasons, files with their hashes, and the Merkle root over all samples. Every other line is
one sample:

    {"sample", "response", "session", "rollout", "tokenizer", "sampled",
     "prompt": {"length", "sha256"}, "completion": {"length", "sha256"},
     "trained": [{"row", "start", "end"}], "excluded": [{"start", "end", "reason"}]}

`trained` says: tokens [start, end) of that row are the first end - start tokens of the completion, and the tokens before `start` are
the prompt. A tree row has `segments` instead of start and end; a text format has `turn`, with the hashes of the turn and of the turns
before it. `excluded` counts in tokens of the completion. prompt and completion are hashed as little-endian int32. Nothing
here reads rows: hermes.trajectories.verify does."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from hermes.trajectories.calls import TOKEN_BYTES, ExcludedSpan, SampledCall

FILE_NAME = "ledger.jsonl"
VERSION = 1

_ROW = re.compile(rb'"row":(\d+)')


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one call is trained: `where` is its entry in the ledger's `trained`."""

    call: SampledCall
    where: Mapping[str, Any]


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
    leaves: list[tuple[str, bytes]] = field(default_factory=list)
    reasons: dict[str, list[int]] = field(default_factory=dict)
    """Reason to [samples, tokens]."""

    def enter(self, call: SampledCall, placement: Placement | None, untrained: str = "") -> None:
        """Write one sample's line. Without a placement the whole sample is excluded: for its own reasons, else because of `untrained`."""
        is_text = placement is not None and "turn" in placement.where
        excluded = [] if is_text else list(call.excluded)  # a turn is trained whole, whether its tokens are known or not
        if placement is None and (call.trained or not excluded):
            excluded.insert(0, ExcludedSpan(0, call.trained, untrained))
        trained = call.sampled if is_text else call.trained if placement is not None else 0
        line = {
            "sample": call.sample_id,
            "response": call.response_id,
            "session": call.session,
            "rollout": call.rollout,
            "tokenizer": call.tokenizer,
            "sampled": call.sampled,
            "prompt": fingerprint(call.prompt),
            "completion": fingerprint(call.completion),
            "trained": [dict(placement.where)] if placement is not None else [],
            "excluded": [{"start": part.start, "end": part.end, "reason": part.reason} for part in excluded],
        }
        self.body.write(dump(line))
        self.samples += 1
        self.placed += placement is not None
        self.sampled += call.sampled
        self.trained += trained
        self.leaves.append((call.sample_id, merkle_leaf(line)))
        for part in excluded:
            count = self.reasons.setdefault(part.reason, [0, 0])
            count[0] += 1
            count[1] += part.end - part.start

    def take(self, part: Ledger, first_row: int) -> None:
        """Append all entries of another ledger, as if they had been entered here; their rows are counted from `first_row` on."""
        part.body.seek(0)
        self.body.write(renumber_rows(part.body.read(), first_row))
        self.sessions += part.sessions
        self.samples += part.samples
        self.placed += part.placed
        self.sampled += part.sampled
        self.trained += part.trained
        self.leaves += part.leaves
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
            "excluded": {reason: {"samples": samples, "tokens": tokens} for reason, (samples, tokens) in sorted(self.reasons.items())},
            "merkle_root": merkle_root(digest for _, digest in sorted(self.leaves)),
        }


def fingerprint(tokens: bytes) -> dict[str, Any]:
    return {"length": len(tokens) // TOKEN_BYTES, "sha256": hashlib.sha256(tokens).hexdigest()}


def merkle_leaf(line: Mapping[str, Any]) -> bytes:
    """Return the Merkle leaf of a sample: it covers what was sampled and in which context, not where it is trained."""
    keys = ("sample", "response", "session", "rollout", "tokenizer", "sampled", "prompt", "completion")
    return hashlib.sha256(b"\0" + dump({key: line[key] for key in keys})).digest()


def merkle_root(leaves: Iterable[bytes]) -> str:
    """Return the root over the leaves in their order: pairs are hashed level by level, an odd leaf moves up unhashed."""
    level = list(leaves)
    if not level:
        return hashlib.sha256(b"").hexdigest()
    while len(level) > 1:
        pairs = [hashlib.sha256(b"\1" + level[at] + level[at + 1]).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + ([level[-1]] if len(level) % 2 else [])
    return level[0].hex()


def dump(value: Any) -> bytes:
    """Write one line of JSON, always the same bytes for the same value."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def renumber_rows(lines: bytes, first_row: int) -> bytes:
    """Return lines of `dump` with every `row` counted from `first_row` on. A quote inside a text is escaped, so `"row":` is a key.

    Only for lines whose keys Hermes chose: another program's key `row` may mean something else."""
    return _ROW.sub(lambda found: b'"row":%d' % (first_row + int(found[1])), lines) if first_row else lines
