"""Random draws that are the same in each run: every draw depends on the seed and on what it is about, and on nothing else.

It does not depend on earlier draws. So if two people write at once, each gets the same draws whichever message comes first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
assert len(LETTERS) == 64  # noqa: S101  # six bits for each; with any other number some letters would be more likely


@dataclass(frozen=True, slots=True)
class SeededRandom:
    """The draws of one seed."""

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
