"""How much a platform takes in a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BucketRate:
    """So many at once, and after that one every so many seconds."""

    every_s: float
    burst: int


@dataclass(slots=True)
class RateBucket:
    """What is left of a rate, for each of those who share none of it."""

    rate: BucketRate
    _full_at: dict[Hashable, float] = field(default_factory=lambda: defaultdict(float))
    """When each has its whole burst again."""

    def wait_s(self, who: Hashable, now: float) -> float:
        """Seconds until one more is taken; 0 if it is taken now. Takes nothing."""
        owed = max(self._full_at[who] - now, 0.0)
        return max(owed - self.rate.every_s * (self.rate.burst - 1), 0.0)

    def take(self, who: Hashable, now: float) -> None:
        self._full_at[who] = max(self._full_at[who], now) + self.rate.every_s
