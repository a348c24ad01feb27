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

from hermes.trajectories.calls import REJECTED, RETRIED, SUPERSEDED, Call, Excluded, Verdict

NAME_TAKEN = "sample id used by another sample"
LENIENT = frozenset({REJECTED, SUPERSEDED})
"""What a copy says of its own graph only: elsewhere the sample may be in good standing."""


class Standing(IntEnum):
    """What a sample is to those that came before it."""

    NEW = 0
    COPY = 1
    CLASH = 2
    """Another sample under a known id, which is said once."""


class Heard(NamedTuple):
    """What one graph says of one of its samples: all that copies are told by."""

    name: bytes
    """Of the sample id a hash, because ids may be long."""
    identity: bytes
    """The response id."""
    refused: str
    notes: Mapping[str, Any]


def heard(call: Call) -> Heard:
    name = hashlib.blake2b(call.sample_id.encode(), digest_size=16).digest()
    return Heard(name, bytes.fromhex(call.response_id), call.refused, call.notes)


def counted(calls: Iterable[Call], standings: Iterable[int]) -> Iterator[Call]:
    """Yield what counts: what is new, and as excluded what clashes."""
    for call, standing in zip(calls, standings, strict=True):
        if standing == Standing.NEW:
            yield call
        elif standing == Standing.CLASH:
            yield replace(call, trained=0, excluded=(Excluded(0, call.sampled, NAME_TAKEN),))


@dataclass(slots=True)
class Copies:
    """Remembers every sample of an export, and notes where copies disagree."""

    known: Mapping[str, Verdict]
    """By response id: what an earlier pass found out."""
    news: dict[str, Verdict] = field(default_factory=dict)
    """What this pass found out beyond that: then it has to be done over."""
    duplicates: int = 0
    _seen: dict[bytes, tuple[bytes, Verdict]] = field(default_factory=dict)
    _clashes: set[bytes] = field(default_factory=set)

    def hear(self, said: Heard) -> Standing:
        """Take in a sample, or what another copy of it says."""
        first = self._seen.get(said.name)
        if first is None:
            self._seen[said.name] = (said.identity, Verdict(said.refused, said.notes))
            return Standing.NEW
        if first[0] != said.identity and said.identity not in self._clashes:
            self._clashes.add(said.identity)
            return Standing.CLASH
        self.duplicates += 1
        if first[0] == said.identity:
            self._compare(said, first[1])
        return Standing.COPY

    def _compare(self, said: Heard, before: Verdict) -> None:
        both = Verdict(_refusal(before.refused, said.refused), _notes(before.notes, said.notes))
        if both != before:
            self._seen[said.name] = (said.identity, both)
            if self.known.get(said.identity.hex()) != both:
                self.news[said.identity.hex()] = both


def _refusal(one: str, other: str) -> str:
    strict = sorted((reason for reason in (one, other) if reason and reason not in LENIENT), key=lambda reason: reason == RETRIED)
    return strict[0] if strict else one if one and other else ""


def _notes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {**one, **other}
    if one.get("rollout") != other.get("rollout"):  # a fork may be a rollout of its own; the sample counts where it came first
        for key in ("rollout", "rollout_reward"):
            both.pop(key, None)
            both |= {key: one[key]} if key in one else {}
    if False in (one.get("consent"), other.get("consent")):
        both["consent"] = False
    return both
