"""What the verifier returns: every problem as one line that names the place, and the counts it made itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MAX_PROBLEMS = 1_000
"""This many problems are listed; the others are only counted."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome of a verification. `counts` are recounted from the lines and rows, not copied from the manifest."""

    folder: Path
    format: str
    problems: tuple[str, ...]
    counts: Mapping[str, int]
    proven: tuple[str, ...] = ()
    """What holds if there is no problem, one sentence each."""
    not_proven: tuple[str, ...] = ()
    """What this verification cannot tell, one sentence each."""

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class ProblemList:
    """Gathers problems; holds no more than MAX_PROBLEMS of them, so that a wholly broken export does not fill the memory."""

    found: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, what: str, *, file: str, row: int | None = None, line: int | None = None, sample: str | None = None) -> None:
        """Note one problem: file, row or line, sample, what is wrong."""
        self.count += 1
        if len(self.found) < MAX_PROBLEMS:
            places = [file]
            places += [f"row {row}"] if row is not None else []
            places += [f"line {line}"] if line is not None else []
            places += [f"sample {sample!r}"] if sample is not None else []
            self.found.append(" ".join(f"{', '.join(places)}: {what}".split()))

    def take(self, other: ProblemList) -> None:
        """Append the problems of another list."""
        self.count += other.count
        self.found += other.found[: MAX_PROBLEMS - len(self.found)]

    def close(self) -> tuple[str, ...]:
        more = self.count - len(self.found)
        return (*self.found, f"and {more} more problems") if more else tuple(self.found)
