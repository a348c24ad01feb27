"""What a rollout is made with, and how fast a run goes.

The recipe is part of what a run *is*: a run that goes on with another recipe would be two runs in one folder. The pace is not: one may
hurry, wait longer or spend more the next day."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hermes.graph.context import KeepReasoning
from hermes.trajectories.batch.distribution import Distribution
from hermes.trajectories.batch.prompt_file import PromptItem


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecipe:
    """How every rollout of a run is made."""

    model: str
    seed: int = 0
    is_seeded: bool = True
    """Whether the model is sent a seed: the same for the same run, item and rollout."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """temperature, top_p, … as they are sent."""
    max_tokens: int | None = None
    """Of one answer; None leaves it to the model's own settings."""
    max_turns: int = 10
    """How often the model is asked in one chat."""
    system: str | None = None
    """For items that have none of their own."""
    ephemeral: str | None = None
    """Sent with every request, joined to the system message; not a part of the conversation."""
    prefill: Sequence[Mapping[str, Any]] = ()
    """Messages between the system message and the prompt. They are a part of the conversation."""
    keep_reasoning: KeepReasoning = "current_turn"
    """Which earlier reasoning is sent again, where the server takes it."""
    toolsets: Distribution = field(default_factory=Distribution)
    subagent_depth: int = 0
    """How deep agents may delegate; 0: not at all."""
    verify: str | None = None
    """The name of what scores rollouts."""

    def messages(self, item: PromptItem) -> list[Mapping[str, Any]]:
        """What a rollout begins with."""
        head, *rest = item.messages
        if head["role"] in ("system", "developer"):
            return [head, *self.prefill, *rest]
        system = item.system if item.system is not None else self.system
        return [*([{"role": "system", "content": system}] if system else []), *self.prefill, head, *rest]

    def to_dict(self) -> dict[str, Any]:
        """The recipe as JSON values; texts that may be long or private are given by their digests."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["toolsets"] = self.toolsets.to_dict()
        plain["sampling"] = dict(self.sampling)
        plain["prefill"] = _digest(json.dumps(list(map(dict, self.prefill)), sort_keys=True)) if self.prefill else None
        for name in ("system", "ephemeral"):
            plain[name] = None if plain[name] is None else _digest(plain[name])
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPace:
    """How a run goes about its work. May be another one each time."""

    concurrency: int = 8
    """Rollouts at once."""
    timeout_s: float = 600.0
    """For one rollout with all of its turns, tools and retries."""
    call_timeout_s: float | None = None
    """For one answer of the model; None: as the model's own settings say."""
    tool_timeout_s: float = 60.0
    verify_timeout_s: float = 60.0
    retries: int = 3
    """How often a failed call of the model is repeated."""
    backoff_s: float = 1.0
    """What is waited at most before the first repetition; doubled each time."""
    max_backoff_s: float = 60.0


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
