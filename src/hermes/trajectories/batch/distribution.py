"""Draw the toolsets of an item: each one independently, by its own percentage. All rollouts of an item get the same toolsets, so that their
rewards can be compared.

    toolsets: {concierge: 80, my_tools: 50}
    least: 1            # at least so many: if fewer are drawn, those with the highest percentages are added"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hermes.trajectories.batch.seeds import seed_of
from hermes.trajectories.errors import TrajectorySettingsError

try:
    import yaml
except ModuleNotFoundError:
    has_yaml = False
else:
    has_yaml = True

NAMED_PERCENTAGES: Mapping[str, float] = {"all": 100, "balanced": 50, "minimal": 20}
"""Distributions by name: the percentage for each toolset of `--tools`."""
FILE_KEYS = ("toolsets", "least")


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


def all_toolsets(toolsets: Sequence[str]) -> Distribution:
    """Return a distribution that gives every item all toolsets."""
    return Distribution(dict.fromkeys(toolsets, 100.0))


def read_distribution(text: str, asked_for: Sequence[str]) -> Distribution:
    """Read a distribution: a name, which applies to the toolsets of `--tools`, or a file, to which those are added with 100 percent.

    Raises TrajectorySettingsError."""
    if text in NAMED_PERCENTAGES:
        if not asked_for:
            raise TrajectorySettingsError(f"--distribution {text} applies to the toolsets of --tools; name some, or give a file")
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
