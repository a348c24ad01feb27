"""The libraries side by side, each in fresh processes: how fast they call a healthy model, and what they do when it fails."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.machine import WITH_BENCHMARKS, Moment
from gateway.peers import Peer
from gateway.served import DISTURBED, TRIES
from gateway.tables import ms, table
from gateway.upstream_paths import FAULTS, HANG_S

OURS = "Hermes: Valkey and PostgreSQL"
REDIS_ONLY = "Hermes: Valkey, no row"
UNSTORED = "Hermes: nothing stored (no-op budgets, no row)"


@dataclass(frozen=True, slots=True)
class Library:
    """One row of the table."""

    name: str
    client: str
    python: str = sys.executable
    options: Mapping[str, Any] = field(default_factory=dict)


def ours(database_url: str, redis_url: str) -> list[Library]:
    addresses = {"database_url": database_url, "redis_url": redis_url}
    stores = {OURS: "all", REDIS_ONLY: "redis", UNSTORED: "none"}
    return [Library(name, "hermes_gateway", options={"stores": which, **addresses}) for name, which in stores.items()]


def theirs(peers: Sequence[Peer]) -> list[Library]:
    return [Library(f"{peer.title} {peer.version()}", peer.client, peer.python) for peer in peers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many calls, and how often."""

    rounds: int
    warm_up: int
    calls: tuple[tuple[int, int], ...]


def speed(libraries: Sequence[Library], port: int, plan: Plan, stores: tuple[int, ...], say: Callable[[str], None]) -> dict[str, Any]:
    """Each library in a fresh process for every round, the order another one each time; medians over the rounds."""
    taken: dict[str, list[dict[str, Any]]] = defaultdict(list)
    order = list(libraries)
    for number in range(plan.rounds):
        random.Random(number).shuffle(order)
        for library in order:
            told = undisturbed(library, port, plan, stores)
            taken[library.name].append(told)
            say(f"round {number + 1}: {library.name}: {ms(told['at_once']['1']['p50_ms'])} ms")
    return {library.name: combined(taken[library.name], plan) for library in libraries}


def undisturbed(library: Library, port: int, plan: Plan, stores: tuple[int, ...]) -> dict[str, Any]:
    tries: list[dict[str, Any]] = []
    while not tries or (tries[-1]["foreign"] > DISTURBED and len(tries) < TRIES):
        everybody = [os.getpid(), *stores]
        before = Moment.now(everybody)
        told = alone(library, port=port, plan=plan.calls, warm_up=plan.warm_up)
        tries.append({**told, "foreign": Moment.now(everybody).foreign_since(before)})
    return min(tries, key=lambda told: float(told["foreign"]))


def alone(library: Library, **aim: Any) -> dict[str, Any]:
    """Run a library in a process of its own, and return what that process found out."""
    given = json.dumps({"client": library.client, "options": dict(library.options), **aim})
    command = [library.python, "-m", "gateway.calls", given]
    told = subprocess.run(command, env=WITH_BENCHMARKS, capture_output=True, text=True, check=False)  # noqa: S603  # our own command
    if told.returncode:
        raise SystemExit(f"{library.name} failed:\n{told.stderr[-2000:]}")
    return dict(json.loads(told.stdout.strip().splitlines()[-1]))  # libraries print what they like before that


def combined(rounds: Sequence[dict[str, Any]], plan: Plan) -> dict[str, Any]:
    def median(at_once: int, what: str) -> float:
        return statistics.median(told["at_once"][str(at_once)][what] for told in rounds)

    fields = ("p50_ms", "p99_ms", "calls_per_s", "cpu_us")
    return {
        "at_once": {str(at_once): {what: median(at_once, what) for what in fields} for at_once, _ in plan.calls},
        "rss_mb": statistics.median(told["rss_mb"] for told in rounds),
        "foreign": min(told["foreign"] for told in rounds),
    }


def print_speed(speeds: Mapping[str, Any]) -> None:
    head = ["", "1 at once: p50 / p99 ms", "CPU us/call", "16: calls/s", "64: calls/s", "64: p99 ms", "RSS MB"]
    rows = []
    for name, told in speeds.items():
        one, sixteen, many = (told["at_once"][at_once] for at_once in ("1", "16", "64"))
        rows.append(
            [
                f"{name}{'*' if told['foreign'] > DISTURBED else ''}",
                f"{ms(one['p50_ms'])} / {ms(one['p99_ms'])}",
                f"{one['cpu_us']:,.0f}",
                f"{sixteen['calls_per_s']:,.0f}",
                f"{many['calls_per_s']:,.0f}",
                ms(many["p99_ms"]),
                f"{told['rss_mb']:.0f}",
            ]
        )
    table("In process: a healthy model that answers at once, another to fall back on", head, rows)
    if any(told["foreign"] > DISTURBED for told in speeds.values()):
        print(f"**Disturbed**: others used more than {DISTURBED:.0%} of the machine where there is a *.\n")


def faults(libraries: Sequence[Library], port: int, say: Callable[[str], None]) -> dict[str, Any]:
    found = {}
    for library in libraries:
        say(f"faults: {library.name} (up to a minute)")
        found[library.name] = alone(library, port=port, faults=True)
    return found


def print_faults(found: Mapping[str, Any]) -> None:
    rows = [[fault.name, *(outcome(told[fault.name]) for told in found.values())] for fault in FAULTS]
    table("Faults of the first model, the second one healthy: seconds to the answer, hits on the first", ["", *found], rows)
    print(f"All with their default retries. The {HANG_S:g} s are for one attempt. Hermes raises at a 400: it would be one everywhere.\n")


def outcome(told: Mapping[str, Any]) -> str:
    ended = (
        ""
        if told["outcome"] == "answered"
        else f", raises {told['outcome']}" + (f" after {told['said']} characters" if told["said"] else "")
    )
    return f"{told['seconds']:.2f} s, {told['hits']}{ended}"
