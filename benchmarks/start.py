"""The embedded stores: from nothing to ready, later starts, joining, recovering after a crash, and stopping.

A few rounds, each in a fresh data folder; the interpreter and its imports are not counted. Exits with 1 if a promise is broken."""

from __future__ import annotations

import os
import platform
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes.stores import embedded

ROUNDS = 7
FIRST_START_S = 4.0
LATER_START_S = 1.0

Times = defaultdict[str, list[float]]


@contextmanager
def timed(times: Times, what: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    times[what].append(time.perf_counter() - begun)


def one_round(home: Path, times: Times) -> None:
    with timed(times, "first start, from nothing to ready"):
        held = embedded.start(home)
    with timed(times, "join servers that run"):
        other = embedded.start(home)
    other.release()
    with timed(times, "stop"):
        held.release()
    with timed(times, "later start"):
        held = embedded.start(home)
    kill_servers(home)
    with timed(times, "start after both servers were killed"):
        again = embedded.start(home)
    again.release()
    held.release()


def kill_servers(home: Path) -> None:
    seen = embedded.status(home)
    for pid in (seen.postgres, seen.valkey):
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Print the table and the promises."""
    times: Times = defaultdict(list)
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            one_round(Path(folder) / "home", times)
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}, {ROUNDS} rounds, seconds\n")
    print(f"  {'':40} {'best':>7} {'median':>7} {'worst':>7}")
    for what, values in times.items():
        print(f"  {what:40} {min(values):7.3f} {statistics.median(values):7.3f} {max(values):7.3f}")
    promises = {
        f"from nothing to ready in under {FIRST_START_S:.0f} s": max(times["first start, from nothing to ready"]) < FIRST_START_S,
        f"later starts in under {LATER_START_S:.0f} s": max(times["later start"]) < LATER_START_S,
    }
    print()
    for promise, is_kept in promises.items():
        print(f"  {'kept  ' if is_kept else 'BROKEN'}  {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
