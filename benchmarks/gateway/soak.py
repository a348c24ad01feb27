"""Many requests of every kind through one target: does its memory stay where it is?"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.load import Load
from gateway.machine import rss_mb
from gateway.served import loaded
from gateway.tables import table
from gateway.targets import Target

CLIENTS = 16
STEPS = 10
SETTLED = 0.2
"""Until this share of the requests a process may grow: caches fill, pools open."""
GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Step:
    """The state after so many requests."""

    requests: int
    rss_mb: float
    requests_per_s: float


def soak(target: Target, loader: subprocess.Popen[str], requests: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Whole answers, streams, streams that are left in the middle, and failing models, in equal parts."""
    mix = tuple((kind, model, target.keys[model]) for kind, model in MIX)
    steps = [Step(0, rss_mb(target.pids), 0.0)]
    right: dict[str, int] = {}
    wrong: dict[str, int] = {}
    for number in range(1, STEPS + 1):
        load = Load(port=target.port, path=target.path_to("bench"), clients=CLIENTS, mix=mix, requests=requests // STEPS)
        told = loaded(loader, load)
        steps.append(Step(number * (requests // STEPS), rss_mb(target.pids), told["sent"] / told["took_s"]))
        say(f"soak: {steps[-1].requests:,} requests, {steps[-1].rss_mb:.1f} MB, {steps[-1].requests_per_s:,.0f}/s")
        for into, more in ((right, told["right"]), (wrong, told["wrong"])):
            into.update({what: into.get(what, 0) + count for what, count in more.items()})
    settled, last = steps[round(STEPS * SETTLED)], steps[-1]
    return {
        "steps": steps,
        "right": right,
        "wrong": wrong,
        "grown": last.rss_mb / settled.rss_mb,
        "bytes_per_request": (last.rss_mb - settled.rss_mb) * 2**20 / (last.requests - settled.requests),
    }


MIX = (("plain", "bench"), ("streamed", "bench"), ("aborted", "drip"), ("failing", "failing"))


def print_soak(told: dict[str, Any]) -> None:
    rows = [[f"{step.requests:,}", f"{step.rss_mb:.1f}", f"{step.requests_per_s:,.0f}"] for step in told["steps"]]
    table("Soak: memory of the web process", ["requests", "RSS MB", "requests/s"], rows)
    print("as expected: " + ", ".join(f"{count:,} {kind}" for kind, count in told["right"].items()))
    for what, count in told["wrong"].items():
        print(f"NOT as expected, {count:,} times: {what}")
    print(f"grown {told['grown']:.3f} times since {SETTLED:.0%} of the requests, {told['bytes_per_request']:,.0f} bytes a request\n")
