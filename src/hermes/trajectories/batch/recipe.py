"""What a rollout is made with, and how fast a run goes.

The recipe belongs to the run: resumed with another recipe it would be two runs in one folder. The pace does not: a user may resume a
run with more rollouts at once, longer timeouts or a larger budget."""

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
    """temperature, top_p, … as they are sent to the model."""
    max_tokens: int | None = None
    """The longest answer; None leaves it to the model's own settings."""
    max_turns: int = 10
    """How often the model is asked at most in one chat."""
    system: str | None = None
    """The system message for items that have none."""
    ephemeral: str | None = None
    """Text that is sent with every request, joined to the system message; not part of the conversation."""
    prefill: Sequence[Mapping[str, Any]] = ()
    """Messages between the system message and the prompt. They are part of the conversation."""
    keep_reasoning: KeepReasoning = "current_turn"
    """Which earlier reasoning is sent again, if the server takes it."""
    toolsets: Distribution = field(default_factory=Distribution)
    subagent_depth: int = 0
    """How deep agents may delegate; 0: never."""
    verify: str | None = None
    """The name of the function that scores rollouts."""

    def messages(self, item: PromptItem) -> list[Mapping[str, Any]]:
        """Return the messages that a rollout begins with."""
        head, *rest = item.messages
        if head["role"] in ("system", "developer"):
            return [head, *self.prefill, *rest]
        system = item.system if item.system is not None else self.system
        return [*([{"role": "system", "content": system}] if system else []), *self.prefill, head, *rest]

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as JSON values; texts that may be long or private are replaced by their digests."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["toolsets"] = self.toolsets.to_dict()
        plain["sampling"] = dict(self.sampling)
        plain["prefill"] = _digest(json.dumps(list(map(dict, self.prefill)), sort_keys=True)) if self.prefill else None
        for name in ("system", "ephemeral"):
            plain[name] = None if plain[name] is None else _digest(plain[name])
        return plain


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPace:
    """How fast a run goes. Each process that works on the run may have another pace."""

    concurrency: int = 8
    """Rollouts at once."""
    timeout_s: float = 600.0
    """For one rollout with all its turns, tools and retries."""
    call_timeout_s: float | None = None
    """For one answer of the model; None leaves it to the model's own settings."""
    tool_timeout_s: float = 60.0
    verify_timeout_s: float = 60.0
    retries: int = 3
    """How often a failed call of the model is repeated."""
    backoff_s: float = 1.0
    """The longest wait before the first repetition; doubled each time."""
    max_backoff_s: float = 60.0


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
