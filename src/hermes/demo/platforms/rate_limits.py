"""How many calls a platform accepts in a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BucketRate:
    """`burst` calls at once, and after that one every `every_s` seconds."""

    every_s: float
    burst: int


@dataclass(slots=True)
class RateBucket:
    """What is left of a rate, for each key separately: a chat, a person, or None for all."""

    rate: BucketRate
    _full_at: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))
    """When each key has its whole burst again."""

    def wait_s(self, key: Hashable, now: float) -> float:
        """Seconds until one more call is accepted; 0 if it is accepted now. Counts nothing."""
        owed = max(self._full_at[key] - now, 0.0)
        return max(owed - self.rate.every_s * (self.rate.burst - 1), 0.0)

    def take(self, key: Hashable, now: float) -> None:
        self._full_at[key] = max(self._full_at[key], now) + self.rate.every_s
