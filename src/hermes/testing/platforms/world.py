"""What all fake platforms share: time, chance, rates, and the signal that something changed.

    PlatformClock   the platforms' time, at any speed; it can skip ahead
    SeededRandom    random draws that are the same in each run
    RateBucket      how many calls a platform accepts in a while
    ChangeSignal    wakes the tasks that wait for a change

A platform counts everything in its own seconds: retries, windows, limits, the life of a link, and the numbers that it sends
(`retry_after: 30`). The dates in its messages are real, because the receiver compares them with its own clock."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp


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


class ChangeSignal:
    """Notified after every change that a task may wait for; counts the changes."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """Wait until the condition holds. Raises TimeoutError; the seconds are real ones."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._changed.wait()


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
assert len(LETTERS) == 64  # noqa: S101  # six bits for each; with any other number some letters would be more likely


@dataclass(frozen=True, slots=True)
class SeededRandom:
    """The draws of one seed: each depends on the seed and on what it is about, and on nothing else.

    It does not depend on earlier draws. So if two people write at once, each gets the same draws whichever message comes first."""

    seed: int

    def fraction(self, *about: object) -> float:
        """A number from 0 up to, but not including, 1."""
        return int.from_bytes(self._bytes(about)[:8]) / 2**64

    def happens(self, share: float, *about: object) -> bool:
        """Whether something that happens in this share of all cases happens in this one."""
        return self.fraction(*about) < share

    def digits(self, count: int, *about: object) -> str:
        """A number of so many digits that does not begin with 0."""
        number = int.from_bytes(self._bytes(about)) % (9 * 10 ** (count - 1))
        return str(number + 10 ** (count - 1))

    def letters(self, count: int, *about: object) -> str:
        """Letters, digits, `_` and `-`."""
        drawn = b"".join(self._bytes((*about, part)) for part in range(count // 32 + 1))
        return "".join(LETTERS[byte & 63] for byte in drawn[:count])

    def _bytes(self, about: tuple[object, ...]) -> bytes:
        return hashlib.sha256("\x1f".join(map(str, (self.seed, *about))).encode()).digest()


class PlatformClock:
    """Counts the platforms' seconds since they were opened: `speed` of them in each real second."""

    def __init__(self, speed: float = 1.0) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be greater than 0, and is {speed}")
        self.speed = speed
        self._opened = time.monotonic()
        self._skipped_s = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return (time.monotonic() - self._opened) * self.speed + self._skipped_s

    def skip(self, seconds: float) -> None:
        """Skip so many seconds ahead. Tasks whose sleep ends within them wake up."""
        self._skipped_s += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep for so many of the platforms' seconds."""
        until = self.now() + seconds
        while (left_s := until - self.now()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s / self.speed):
                    await self._moved.wait()


def unix_seconds() -> int:
    """The real time in whole seconds, for the dates in messages."""
    return int(time.time())


@dataclass(frozen=True, slots=True)
class World:
    """What all platforms share."""

    url: str
    """The base URL of all platforms: each has its real paths below it."""
    clock: PlatformClock
    random: SeededRandom
    changes: ChangeSignal
    client: aiohttp.ClientSession
    """Posts the webhooks."""
