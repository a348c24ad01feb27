"""Processes, what they use, and who else is using the machine. Reads /proc: Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]
ROOT = BENCHMARKS.parent
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20
CORES = os.cpu_count() or 1
WITH_BENCHMARKS = {**os.environ, "PYTHONPATH": str(BENCHMARKS), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""The environment in which these modules find each other, and in which nothing is fetched from elsewhere at the first call."""


@contextmanager
def running(
    command: Sequence[str], *, environ: Mapping[str, str] | None = None, log: Path | None = None, pipes: bool = True
) -> Iterator[subprocess.Popen[str]]:
    """A process as long as the block lasts, with all of its environment where one is given.

    `log` takes what it writes on standard error, and without pipes all that it writes."""
    errors = log.open("w", encoding="utf-8") if log is not None else None
    kept = subprocess.Popen(  # noqa: S603  # our own commands
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if pipes else errors,
        stderr=errors,
        text=True,
        env=environ or WITH_BENCHMARKS,
        cwd=ROOT,
    )
    try:
        yield kept
    finally:
        if kept.stdin is not None:
            kept.stdin.close()
        kept.send_signal(signal.SIGTERM)
        try:
            kept.wait(20)
        except subprocess.TimeoutExpired:
            kept.kill()
            kept.wait()
        if errors is not None:
            errors.close()


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs one of these modules in Hermes' own environment."""
    return [sys.executable, "-m", f"gateway.{name}", *arguments]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise SystemExit(f"{process.args!r} ended at once")
    return line


# --- what processes use


def tree(roots: Iterable[int]) -> list[int]:
    """Processes with all of their children."""
    children: dict[int, list[int]] = {}
    for pid, fields in stats().items():
        children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    left = list(roots)
    while left:
        pid = left.pop()
        if pid not in found:
            found.append(pid)
            left += children.get(pid, [])
    return found


def stats() -> dict[int, list[str]]:
    """`/proc/PID/stat` of every process, from the state on."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile
    return found


def cpu_s(roots: Iterable[int]) -> float:
    """Processor time of processes, of their children, and of the children that have ended."""
    everybody = stats()
    return sum(sum(map(int, everybody[pid][11:15])) * TICK_S for pid in tree(roots) if pid in everybody)


def rss_mb(roots: Iterable[int]) -> float:
    everybody = stats()
    return sum(int(everybody[pid][21]) * PAGE_MB for pid in tree(roots) if pid in everybody)


# --- who else


@dataclass(frozen=True, slots=True)
class Moment:
    """The processor time that the whole machine and our own processes had used at some time."""

    at: float
    busy_s: float
    ours_s: float

    @classmethod
    def now(cls, ours: Iterable[int]) -> Moment:
        user, nice, system, _, _, irq, soft, steal, *_ = map(
            int, Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        )
        return cls(time.monotonic(), (user + nice + system + irq + soft + steal) * TICK_S, cpu_s(ours))

    def foreign_since(self, before: Moment) -> float:
        """Which share of all cores somebody else has used since then."""
        foreign_s = (self.busy_s - before.busy_s) - (self.ours_s - before.ours_s)
        return max(0.0, foreign_s / max(1e-9, (self.at - before.at) * CORES))


def foreign_share(seconds: float = 2.0) -> float:
    """Which share of all cores somebody else uses just now."""
    before = Moment.now([os.getpid()])
    time.sleep(seconds)
    return Moment.now([os.getpid()]).foreign_since(before)
