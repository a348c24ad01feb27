"""One sample in several graphs: a later snapshot, a fork, a file given twice. It counts once, and all its copies are heard.

Equal response ids make two occurrences the same sample (the id covers context, message, sample id and call). Where copies say
different things about it, the stricter word holds: erased, not consented to or left out in one copy means so in all; given up by an
edit means so only if every copy agrees. Annotations add up, the later one stands."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hermes.trajectories.calls import REJECTED, RETRIED, SUPERSEDED, Call, Excluded, Verdict

NAME_TAKEN = "sample id used by another sample"
LENIENT = frozenset({REJECTED, SUPERSEDED})
"""What a copy says of its own graph only: elsewhere the sample may be in good standing."""


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

    def unseen(self, calls: Iterable[Call]) -> Iterator[Call]:
        """Yield what was not counted before. Another sample under a known id is yielded too, as excluded with that reason."""
        for call in calls:
            name = hashlib.blake2b(call.sample_id.encode(), digest_size=16).digest()
            identity = bytes.fromhex(call.response_id)
            first = self._seen.get(name)
            if first is None:
                self._seen[name] = (identity, Verdict(call.refused, call.notes))
                yield call
            elif first[0] == identity:
                self.duplicates += 1
                self._hear(call, name, first[1])
            elif identity in self._clashes:
                self.duplicates += 1
            else:
                self._clashes.add(identity)
                yield replace(call, trained=0, excluded=(Excluded(0, call.sampled, NAME_TAKEN),))

    def _hear(self, call: Call, name: bytes, before: Verdict) -> None:
        """Take in what another copy says of a sample."""
        both = Verdict(_refusal(before.refused, call.refused), _notes(before.notes, call.notes))
        if both != before:
            self._seen[name] = (bytes.fromhex(call.response_id), both)
            if self.known.get(call.response_id) != both:
                self.news[call.response_id] = both


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
