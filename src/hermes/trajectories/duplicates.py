"""One sample in several graphs: a later snapshot, a fork, a file given twice. It counts once, and all its copies are heard.

Equal response ids make two occurrences the same sample (the id covers context, message, sample id and call). Where copies say
different things about it, the stricter word holds: erased, not consented to or left out in one copy means so in all; given up by an
edit means so only if every copy agrees. Annotations add up, the later one stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from hermes.trajectories.calls import REJECTED, RETRIED, SUPERSEDED, ExcludedSpan, SampledCall, SampleVerdict

NAME_TAKEN = "sample id used by another sample"
LENIENT_REASONS = frozenset({REJECTED, SUPERSEDED})
"""What a copy says of its own graph only: elsewhere the sample may be in good standing."""


class SampleStatus(IntEnum):
    """What a sample is to those that came before it."""

    NEW = 0
    COPY = 1
    CLASH = 2
    """Another sample under a known id, which is said once."""


class SampleOccurrence(NamedTuple):
    """What one graph says of one of its samples: all that copies are told by."""

    name: bytes
    """Of the sample id a hash, because ids may be long."""
    identity: bytes
    """The response id."""
    refused: str
    notes: Mapping[str, Any]


def occurrence_of(call: SampledCall) -> SampleOccurrence:
    name = hashlib.blake2b(call.sample_id.encode(), digest_size=16).digest()
    return SampleOccurrence(name, bytes.fromhex(call.response_id), call.refused, call.notes)


def calls_to_count(calls: Iterable[SampledCall], statuses: Iterable[int]) -> Iterator[SampledCall]:
    """Yield what counts: what is new, and as excluded what clashes."""
    for call, status in zip(calls, statuses, strict=True):
        if status == SampleStatus.NEW:
            yield call
        elif status == SampleStatus.CLASH:
            yield replace(call, trained=0, excluded=(ExcludedSpan(0, call.sampled, NAME_TAKEN),))


@dataclass(slots=True)
class SeenSamples:
    """Remembers every sample of an export, and notes where copies disagree."""

    known: Mapping[str, SampleVerdict]
    """By response id: what an earlier pass found out."""
    changed_verdicts: dict[str, SampleVerdict] = field(default_factory=dict)
    """What this pass found out beyond that: then it has to be done over."""
    duplicates: int = 0
    _seen: dict[bytes, tuple[bytes, SampleVerdict]] = field(default_factory=dict)
    _clashes: set[bytes] = field(default_factory=set)

    def add(self, said: SampleOccurrence) -> SampleStatus:
        """Take in a sample, or what another copy of it says."""
        first = self._seen.get(said.name)
        if first is None:
            self._seen[said.name] = (said.identity, SampleVerdict(said.refused, said.notes))
            return SampleStatus.NEW
        if first[0] != said.identity and said.identity not in self._clashes:
            self._clashes.add(said.identity)
            return SampleStatus.CLASH
        self.duplicates += 1
        if first[0] == said.identity:
            self._compare(said, first[1])
        return SampleStatus.COPY

    def _compare(self, said: SampleOccurrence, before: SampleVerdict) -> None:
        both = SampleVerdict(_stricter_refusal(before.refused, said.refused), _merge_notes(before.notes, said.notes))
        if both != before:
            self._seen[said.name] = (said.identity, both)
            if self.known.get(said.identity.hex()) != both:
                self.changed_verdicts[said.identity.hex()] = both


def _stricter_refusal(one: str, other: str) -> str:
    strict = sorted((reason for reason in (one, other) if reason and reason not in LENIENT_REASONS), key=lambda reason: reason == RETRIED)
    return strict[0] if strict else one if one and other else ""


def _merge_notes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if one.get("rollout") != other.get("rollout"):  # a fork may be a rollout of its own; the sample counts where it came first
        for key in ("rollout", "rollout_reward"):
            both.pop(key, None)
            both |= {key: one[key]} if key in one else {}
    if False in (one.get("consent"), other.get("consent")):
        both["consent"] = False
    return both
