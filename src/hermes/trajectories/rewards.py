"""Rewards and advantages: which annotation is a reward, of one response or of a whole rollout, and what a trainer multiplies.

    annotations ──▶ reward of each response, reward of each rollout ──▶ advantages

Without rules the annotations `reward` and `rollout_reward` count. Knows nothing about tokens or files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

from hermes.trajectories.errors import AnnotationError, TrajectorySettingsError

RewardScope = Literal["response", "rollout"]
AdvantageKind = Literal["reward", "group", "grpo"]
"""What the advantage of a sample is, if none is annotated: the reward as it is; the rollout's reward less the mean of its group; that
divided by the group's standard deviation. A group is all rollouts of a session that have a reward."""

SCOPES: tuple[RewardScope, ...] = ("response", "rollout")
MAX_FLOAT32 = 3.4e38
MIN_DEVIATION = 1e-6
"""Added to the standard deviation, as in GRPO, so that rewards that hardly differ do not become huge advantages."""


@dataclass(frozen=True, slots=True)
class RewardRule:
    """An annotation that counts as the reward.

    A number counts as it is; true and false count as 1 and 0. With `value` the reward is 1 where the annotation equals this text, else 0.
    Another text counts with the `reward` that stands in the same annotation: a user's reaction has its number there."""

    name: str
    value: str | None = None
    scope: RewardScope = "response"

    @classmethod
    def parse(cls, text: str) -> RewardRule:
        """Read `NAME`, `NAME=VALUE`, `NAME:rollout` or `NAME=VALUE:rollout`; raise TrajectorySettingsError for anything else."""
        known, colon, scope = text.rpartition(":")
        if not colon:
            known, scope = text, "response"
        name, equals, value = known.partition("=")
        if not name or scope not in SCOPES:
            raise TrajectorySettingsError(f"--reward {text!r}: expected NAME, NAME=VALUE, or one of them with :response or :rollout")
        return cls(name, value if equals else None, "rollout" if scope == "rollout" else "response")


def check_rules(rules: Sequence[RewardRule]) -> None:
    """Raise TrajectorySettingsError if two rules say what the reward of a response is, or of a rollout."""
    for scope in SCOPES:
        names = [rule.name for rule in rules if rule.scope == scope]
        if len(names) > 1:
            raise TrajectorySettingsError(f"only one annotation can be the reward of a {scope}, not {' and '.join(names)}")


def merge_notes(annotations: Iterable[Mapping[str, Any]], rules: Sequence[RewardRule]) -> dict[str, Any]:
    """Return all annotations of a response as one mapping; a later value replaces an earlier one.

    A text that a rule names is replaced by the reward of its annotation: after the merge, their connection would be lost."""
    merged: dict[str, Any] = {}
    for note in annotations:
        merged |= note
        for rule in rules:
            if rule.value is None and isinstance(note.get(rule.name), str) and "reward" in note:
                merged[rule.name] = note["reward"]
    return merged


def response_reward(notes: Mapping[str, Any], rules: Sequence[RewardRule], response_id: str) -> float | None:
    """Return the reward of one response; None if it has none of its own."""
    if not rules:
        return number(notes, "reward", response_id)
    return next((_reward_by(notes, rule, response_id) for rule in rules if rule.scope == "response"), None)


def stated_rollout_reward(notes: Mapping[str, Any], rules: Sequence[RewardRule], response_id: str) -> float | None:
    """Return what the annotations of one response say about its whole rollout; None if they say nothing."""
    if not rules:
        return number(notes, "rollout_reward", response_id)
    return next((_reward_by(notes, rule, response_id) for rule in rules if rule.scope == "rollout"), None)


def group_advantages(rewards: Mapping[str, float], kind: AdvantageKind) -> dict[str, float]:
    """Return the advantage of each rollout of a session from the rewards of all of them; nothing if rewards themselves are advantages.

    >>> group_advantages({"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}, "group")
    {'a': 0.5, 'b': -0.5, 'c': -0.5, 'd': 0.5}
    """
    if kind == "reward" or not rewards:
        return {}
    mean = sum(rewards.values()) / len(rewards)
    centred = {rollout: reward - mean for rollout, reward in rewards.items()}
    if kind == "group" or len(rewards) == 1:
        return centred
    deviation = sqrt(sum(value * value for value in centred.values()) / (len(rewards) - 1))
    return {rollout: value / (deviation + MIN_DEVIATION) for rollout, value in centred.items()}


def number(notes: Mapping[str, Any], key: str, response_id: str) -> float | None:
    """Read an annotated number; raise AnnotationError for any other value, because a dropped reward would go unnoticed."""
    value = notes.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AnnotationError(f"annotation {key}={value!r} of response {response_id[:12]} is not a number")
    if not -MAX_FLOAT32 < value < MAX_FLOAT32:
        raise AnnotationError(f"annotation {key} of response {response_id[:12]} is too large for a float32")
    return float(value)


def _reward_by(notes: Mapping[str, Any], rule: RewardRule, response_id: str) -> float | None:
    value = notes.get(rule.name)
    if rule.value is not None:
        return None if value is None else float(value == rule.value)
    return float(value) if isinstance(value, bool) else number(notes, rule.name, response_id)
