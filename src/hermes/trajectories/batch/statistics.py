"""The statistics of a whole run: all its finished rollouts, also those of earlier processes. Reads the index, one line at a time."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, sqrt
from typing import Any

from hermes.trajectories.batch.rollout import FAILED_OUTCOMES, RolloutEntry
from hermes.trajectories.batch.run import MICRO_PER_USD
from hermes.trajectories.batch.tools import ToolOutcome

DEFAULT_PASS_MARK = 1.0
"""A rollout with at least this reward counts as passed."""


@dataclass(slots=True)
class ItemStatistics:
    """The rollouts of one item."""

    outcomes: Counter[str] = field(default_factory=Counter)
    rewards: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Statistics:
    """Sums over rollouts."""

    pass_mark: float = DEFAULT_PASS_MARK
    outcomes: Counter[str] = field(default_factory=Counter)
    finish_reasons: Counter[str] = field(default_factory=Counter)
    tools: dict[str, Counter[str]] = field(default_factory=dict)
    toolsets: Counter[str] = field(default_factory=Counter)
    items: dict[str, ItemStatistics] = field(default_factory=dict)
    verify_errors: int = 0
    aside: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Of rollouts that are aside: their number, tokens and micro-dollars."""
    _columns: dict[str, array[float]] = field(default_factory=dict)

    def add(self, entry: RolloutEntry) -> None:
        """Count a finished rollout."""
        self.outcomes[entry.outcome] += 1
        self.finish_reasons.update(entry.finish_reasons)
        for name, counts in entry.tools.items():
            self.tools.setdefault(name, Counter()).update(counts)
        self.toolsets.update(entry.toolsets)
        self.verify_errors += bool(entry.verify_error)
        item = self.items.setdefault(entry.item, ItemStatistics())
        item.outcomes[entry.outcome] += 1
        if entry.reward is not None:
            item.rewards.append(entry.reward)
        for name in ("calls", "messages", "prompt_tokens", "completion_tokens", "micro_usd", "retries", "subagents", "seconds"):
            self._columns.setdefault(name, array("d")).append(getattr(entry, name))

    def add_aside(self, entry: RolloutEntry) -> None:
        """Count a rollout that was interrupted or made again: it was paid for too."""
        for at, value in enumerate((1, entry.tokens, entry.micro_usd)):
            self.aside[at] += value

    @property
    def rollouts(self) -> int:
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        return sum(self.outcomes[outcome] for outcome in FAILED_OUTCOMES)

    def total(self, column: str) -> float:
        return sum(self._columns.get(column, ()))

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as JSON values."""
        prompt, completion = int(self.total("prompt_tokens")), int(self.total("completion_tokens"))
        each = max(self.rollouts, 1)
        usd = self.total("micro_usd") / MICRO_PER_USD
        return {
            "items": len(self.items),
            "rollouts": self.rollouts,
            "failed": self.failed,
            "outcomes": _sort_counts(self.outcomes),
            "finish_reasons": _sort_counts(self.finish_reasons),
            "turns": spread(self._columns.get("calls", ())),
            "messages": spread(self._columns.get("messages", ())),
            "seconds": spread(self._columns.get("seconds", ())),
            "tokens": {
                "prompt": prompt,
                "completion": completion,
                "total": prompt + completion,
                "mean": round((prompt + completion) / each, 1),
            },
            "cost_usd": {"total": round(usd, 6), "mean": round(usd / each, 6)},
            "retries": int(self.total("retries")),
            "subagents": int(self.total("subagents")),
            "tools": {name: tool_statistics(counts) for name, counts in sorted(self.tools.items())},
            "toolsets": _sort_counts(self.toolsets),
            "rewards": self.rewards(),
            "aside": {"rollouts": self.aside[0], "tokens": self.aside[1], "cost_usd": round(self.aside[2] / MICRO_PER_USD, 6)},
        }

    def rewards(self) -> dict[str, Any]:
        """Return statistics of the rewards over rollouts, and pass@k over items."""
        every = [reward for item in self.items.values() for reward in item.rewards]
        out: dict[str, Any] = {"scored": len(every), "verify_errors": self.verify_errors}
        if not every:
            return out
        mean = sum(every) / len(every)
        out |= {
            "mean": round(mean, 6),
            "std": round(sqrt(sum((reward - mean) ** 2 for reward in every) / len(every)), 6),
            "min": min(every),
            "max": max(every),
            "pass_mark": self.pass_mark,
            "pass_at": {},
            # A training method that compares the rollouts of a prompt learns nothing from equal rewards.
            "items_all_equal": sum(len(item.rewards) > 1 and len(set(item.rewards)) == 1 for item in self.items.values()),
        }
        for k in pass_at_ks(max(len(item.rewards) for item in self.items.values())):
            known = [self.pass_at(item, k) for item in self.items.values() if len(item.rewards) >= k]
            out["pass_at"][str(k)] = round(sum(known) / len(known), 6)
        return out

    def pass_at(self, item: ItemStatistics, k: int) -> float:
        return pass_at(len(item.rewards), sum(reward >= self.pass_mark for reward in item.rewards), k)

    def item_lines(self) -> Iterator[str]:
        """Yield a line of JSON for each item."""
        for name, item in self.items.items():
            line: dict[str, Any] = {"id": name, "rollouts": item.outcomes.total(), "outcomes": _sort_counts(item.outcomes)}
            if item.rewards:
                line["reward"] = {"mean": sum(item.rewards) / len(item.rewards), "max": max(item.rewards), "all": item.rewards}
                line["pass_at"] = {str(k): round(self.pass_at(item, k), 6) for k in pass_at_ks(len(item.rewards))}
            yield json.dumps(line) + "\n"


def statistics_of(
    entries: Iterable[RolloutEntry], aside: Iterable[RolloutEntry] = (), *, pass_mark: float = DEFAULT_PASS_MARK
) -> Statistics:
    """Return the statistics of a run."""
    sums = Statistics(pass_mark)
    for entry in entries:
        sums.add(entry)
    for entry in aside:
        sums.add_aside(entry)
    return sums


def pass_at(rollouts: int, passed: int, k: int) -> float:
    """Return the probability that at least one of k rollouts, drawn at random from these, passed: 1 - C(n-c, k) / C(n, k), without bias.

    >>> pass_at(4, 1, 1), pass_at(4, 1, 2), pass_at(4, 0, 4)
    (0.25, 0.5, 0.0)
    """
    return 1 - comb(rollouts - passed, k) / comb(rollouts, k)


def pass_at_ks(most: int) -> list[int]:
    """Return 1, 2, 4, … and the number of rollouts itself."""
    doubled = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*doubled, most]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return mean, median, 95th percentile, minimum and maximum."""
    if not values:
        return {}
    ordered = sorted(values)
    at = {"min": 0, "median": (len(ordered) - 1) // 2, "p95": min(len(ordered) - 1, int(len(ordered) * 0.95)), "max": len(ordered) - 1}
    return {"mean": round(sum(ordered) / len(ordered), 3), **{name: round(ordered[place], 3) for name, place in at.items()}}


def tool_statistics(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return how the calls of a tool ended, and the share that succeeded."""
    calls = sum(counts.values())
    return {"calls": calls, **_sort_counts(counts), "success_rate": round(counts.get(ToolOutcome.DONE, 0) / calls, 4) if calls else 0.0}


def _sort_counts(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
