"""One sample in several graphs: a later snapshot, a fork, a file given twice. It counts once, and what all its copies say is merged.

Two occurrences with equal response ids are the same sample (the id covers context, message, sample id and call). Where copies
disagree, the stricter one decides: a sample that is erased, not consented to or left out in one copy is refused in all. A sample
given up by an edit is refused only if every copy says so. Annotations are merged; a later one replaces an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, NamedTuple

from hermes.trajectories.calls import REJECTED, RETRIED, SUPERSEDED, ExcludedSpan, SampledCall, SampleVerdict
from hermes.trajectories.sample_table import KnownSample, SampleTable

NAME_TAKEN = "sample id used by another sample"
LENIENT_REASONS = frozenset({REJECTED, SUPERSEDED})
"""Reasons that hold in one graph only: in another graph the same sample may be accepted."""


class SampleStatus(IntEnum):
    """How a sample relates to the samples before it."""

    NEW = 0
    COPY = 1
    CLASH = 2
    """Another sample with a sample id that is already used; reported once, later occurrences of it are copies."""


class SampleOccurrence(NamedTuple):
    """What one graph says about one of its samples: all that is needed to find and merge copies."""

    name: bytes
    """A hash of the sample id, because ids may be long."""
    identity: bytes
    """The response id."""
    refused: str
    notes: Mapping[str, Any]


def occurrence_of(call: SampledCall) -> SampleOccurrence:
    name = hashlib.blake2b(call.sample_id.encode(), digest_size=16).digest()
    return SampleOccurrence(name, bytes.fromhex(call.response_id), call.refused, call.notes)


def calls_to_count(calls: Iterable[SampledCall], statuses: Iterable[int]) -> Iterator[SampledCall]:
    """Yield the calls that count: new ones as they are, clashing ones as excluded."""
    for call, status in zip(calls, statuses, strict=True):
        if status == SampleStatus.NEW:
            yield call
        elif status == SampleStatus.CLASH:
            yield replace(call, trained=0, excluded=(ExcludedSpan(0, call.sampled, NAME_TAKEN),))


@dataclass(slots=True)
class SeenSamples:
    """Remembers every sample of an export, and collects the verdicts that copies change."""

    known: Mapping[str, SampleVerdict]
    """The merged verdicts of an earlier pass, by response id."""
    changed_verdicts: dict[str, SampleVerdict] = field(default_factory=dict)
    """Verdicts that this pass changed. If there are any, the pass must be repeated with them."""
    duplicates: int = 0
    table: SampleTable = field(default_factory=SampleTable)
    """By name. The only thing that an export remembers of every sample until its end."""
    _clashes: set[bytes] = field(default_factory=set)

    def count(self, calls: Sequence[SampledCall]) -> Iterator[SampledCall]:
        """Add the samples of a session; yield those that count."""
        return calls_to_count(calls, [self.add(occurrence_of(call)) for call in calls])

    def add(self, occurrence: SampleOccurrence) -> SampleStatus:
        """Add a sample, or merge what another copy of it says."""
        first = self.table.get(occurrence.name)
        if first is None:
            self.table.put(occurrence.name, KnownSample(occurrence.identity, occurrence.refused, occurrence.notes))
            return SampleStatus.NEW
        if first.identity != occurrence.identity and occurrence.identity not in self._clashes:
            self._clashes.add(occurrence.identity)
            return SampleStatus.CLASH
        self.duplicates += 1
        if first.identity == occurrence.identity:
            self._compare(first, occurrence)
        return SampleStatus.COPY

    def _compare(self, before: KnownSample, occurrence: SampleOccurrence) -> None:
        both = SampleVerdict(_stricter_refusal(before.refused, occurrence.refused), _merge_notes(before.notes, occurrence.notes))
        if (both.refused, both.notes) != (before.refused, before.notes):
            self.table.put(occurrence.name, KnownSample(occurrence.identity, both.refused, both.notes))
            if self.known.get(occurrence.identity.hex()) != both:
                self.changed_verdicts[occurrence.identity.hex()] = both


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
