"""What a rollout is made with, and how fast a run goes.

The recipe belongs to the run: resumed with another recipe it would be two runs in one folder. The pace does not: a user may resume a
run with more rollouts at once, longer timeouts or a larger budget. Every random choice follows from the one seed of the recipe.

A distribution draws the toolsets of an item: each one independently, by its own percentage. All rollouts of an item get the same toolsets,
so that their rewards can be compared.

    toolsets: {concierge: 80, my_tools: 50}
    least: 1            # at least so many: if fewer are drawn, those with the highest percentages are added"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hermes.graph.context import KeepReasoning
from hermes.trajectories.batch.prompt_file import PromptItem
from hermes.trajectories.errors import TrajectorySettingsError

try:
    import yaml
except ModuleNotFoundError:
    has_yaml = False
else:
    has_yaml = True

MAX_SEED = 2**31 - 1
"""Model servers take a seed as a signed 32-bit number."""
NAMED_PERCENTAGES: Mapping[str, float] = {"all": 100, "balanced": 50, "minimal": 20}
"""Distributions by name: the percentage for each toolset that the user asked for."""
FILE_KEYS = ("toolsets", "least")


def seed_of(*parts: str | int) -> int:
    """Return a seed that depends only on these parts: the same run, item and rollout have the same seed on every machine.

    >>> seed_of(0, "item", 3) == seed_of(0, "item", 3) != seed_of(0, "item", 4)
    True
    """
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") % MAX_SEED


@dataclass(frozen=True, slots=True)
class Distribution:
    """Percentages by toolset."""

    toolsets: Mapping[str, float] = field(default_factory=dict)
    least: int = 0

    def draw(self, seed: int, item: str) -> tuple[str, ...]:
        """Return the toolsets of an item, in the order of the distribution: the same for the same seed and item."""
        chance = random.Random(seed_of(seed, item, "toolsets"))  # noqa: S311  # must be repeatable, and is no secret
        drawn = {name for name, percent in self.toolsets.items() if chance.random() * 100 < percent}
        likeliest = sorted(self.toolsets, key=lambda name: -self.toolsets[name])
        for name in likeliest:
            if len(drawn) >= self.least:
                break
            drawn.add(name)
        return tuple(name for name in self.toolsets if name in drawn)

    def to_dict(self) -> dict[str, Any]:
        return {"toolsets": dict(self.toolsets), "least": self.least}


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


def all_toolsets(toolsets: Sequence[str]) -> Distribution:
    """Return a distribution that gives every item all toolsets."""
    return Distribution(dict.fromkeys(toolsets, 100.0))


def read_distribution(text: str, asked_for: Sequence[str]) -> Distribution:
    """Read a distribution: a name, which applies to the toolsets in `asked_for`, or a file, to which those are added with 100 percent.

    Raises TrajectorySettingsError."""
    if text in NAMED_PERCENTAGES:
        if not asked_for:
            raise TrajectorySettingsError(f"distribution {text} applies to the toolsets of tools; name some, or give a file")
        return Distribution(dict.fromkeys(asked_for, float(NAMED_PERCENTAGES[text])))
    file = Path(text)
    if not file.is_file():
        raise TrajectorySettingsError(f"there is no distribution {text!r}; give a file, or one of {', '.join(NAMED_PERCENTAGES)}")
    found = _read_file(file)
    given = found if not found.keys() & set(FILE_KEYS) else found.get("toolsets") or {}
    if found is not given:
        for key in found.keys() - set(FILE_KEYS):
            near = get_close_matches(str(key), FILE_KEYS, n=1)
            raise TrajectorySettingsError(
                f"{file}: unknown key {key!r}; {f'did you mean {near[0]}?' if near else 'known are toolsets and least'}"
            )
    least = 0 if found is given else found.get("least", 0)
    if not isinstance(given, dict) or not given:
        raise TrajectorySettingsError(f"{file}: expected toolsets with their percentages, such as {{concierge: 80}}")
    if isinstance(least, bool) or not isinstance(least, int) or not 0 <= least <= len({*given, *asked_for}):
        raise TrajectorySettingsError(f"{file}: least is {least!r}; expected a whole number, and not more than there are toolsets")
    for name, percent in given.items():
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
            raise TrajectorySettingsError(f"{file}: {name} is {percent!r}; expected a percentage from 0 to 100")
    return Distribution({**dict.fromkeys(asked_for, 100.0), **{str(name): float(percent) for name, percent in given.items()}}, least)


def _read_file(file: Path) -> dict[Any, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TrajectorySettingsError(f"{file}: not UTF-8 text") from None
    if file.suffix == ".json" or not has_yaml:
        try:
            found = json.loads(text)
        except ValueError as error:
            hint = "" if file.suffix == ".json" else "; YAML needs pyyaml: pip install 'hermes-graph[export]'"
            raise TrajectorySettingsError(f"{file}: not JSON ({error}){hint}") from None
    else:
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise TrajectorySettingsError(f"{file}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(found, dict):
        raise TrajectorySettingsError(f"{file}: expected toolsets with their percentages, such as {{concierge: 80}}")
    return found
