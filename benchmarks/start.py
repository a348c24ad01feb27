"""The embedded stores: from nothing to ready, later starts, joining, recovering after a crash, and stopping. And all of `hermes up`.

A few rounds, each in a fresh data folder; the interpreter and its imports are not counted. `hermes up` is the whole command, until /ready
says so. Exits with 1 if a promise is broken."""

from __future__ import annotations

import os
import platform
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from hermes.stores import embedded

ROUNDS = 7
FIRST_START_S = 4.0
LATER_START_S = 1.0
UP_S = 3.0
UP_ROUNDS = 5

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


def up_until_ready(home: Path, times: Times, what: str) -> None:
    """Start everything by the command, wait until it takes messages, and stop it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    environ |= {"HERMES_HOME": str(home), "HERMES_WEB_PORT": str(port), "HERMES_LOG_LEVEL": "error"}
    cpu_before = children_cpu_s()
    with timed(times, what):
        process = subprocess.Popen([sys.executable, "-m", "hermes", "up"], env=environ, stderr=subprocess.DEVNULL)
        while not is_ready(port):
            time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    times[f"{what}: its processor time, to its end"].append(children_cpu_s() - cpu_before)


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def main() -> int:
    """Print the table and the promises."""
    times: Times = defaultdict(list)
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            one_round(Path(folder) / "home", times)
    with tempfile.TemporaryDirectory() as folder:
        up_until_ready(Path(folder) / "home", times, "hermes up, first")
        for _ in range(UP_ROUNDS):
            up_until_ready(Path(folder) / "home", times, "hermes up, used home")
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f}, {ROUNDS} rounds, seconds\n")
    print(f"  {'':48} {'best':>7} {'median':>7} {'worst':>7}")
    for what, values in times.items():
        print(f"  {what:48} {min(values):7.3f} {statistics.median(values):7.3f} {max(values):7.3f}")
    promises = {
        f"from nothing to ready in under {FIRST_START_S:.0f} s": max(times["first start, from nothing to ready"]) < FIRST_START_S,
        f"hermes up is ready in under {UP_S:.0f} s on a used home": statistics.median(times["hermes up, used home"]) < UP_S,
        f"later starts in under {LATER_START_S:.0f} s": max(times["later start"]) < LATER_START_S,
    }
    print()
    for promise, is_kept in promises.items():
        print(f"  {'kept  ' if is_kept else 'BROKEN'}  {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
