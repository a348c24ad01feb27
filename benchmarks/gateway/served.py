"""The targets side by side: the same loads on each, in turns, round after round; what a target adds is its time less the direct call's.

What others do on the machine meanwhile is measured with every cell; a cell that was disturbed is done again, and marked if that does not
help."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gateway.load import Load, Work
from gateway.machine import Moment, cpu_s, rss_mb
from gateway.tables import ms, table
from gateway.targets import Target

DISTURBED = 0.12
"""The share of all cores that others may use during a cell."""
TRIES = 3
BUSY_LOADER = 0.85

AT_ONCE = (1, 16, 64)
CROWD = 256
"""Clients at once of the last load, in which no call may fail."""
CROWDED = (Work.FRESH, "bench")
KINDS = (
    (Work.FRESH, "bench", "no delay, each request a fresh chat"),
    (Work.GROWING, "bench", "no delay, chats that grow over 20 turns"),
    (Work.FRESH, "slow", "200 ms delay, each request a fresh chat"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long everything takes."""

    rounds: int
    seconds: float
    warm_s: float
    chats: Mapping[int, int]
    """How many growing chats each client has, by how many clients there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load on one target, once."""

    p50_ms: float
    p99_ms: float | None
    rps: float
    cpu_ms: float
    """Processor time of the server for a request, and below that of its stores."""
    stores_cpu_ms: float
    rss_mb: float
    foreign: float
    loader_share: float
    wrong: dict[str, int]


Key = tuple[str, str, str, int]
"""The target's name, the kind of work, the model, and how many at once."""


def measure(targets: Sequence[Target], loader: subprocess.Popen[str], pace: Pace, say: Callable[[str], None]) -> dict[Key, list[Cell]]:
    """Every load on every target, in turns, so that whatever changes on the machine with time meets all of them."""
    cells: dict[Key, list[Cell]] = defaultdict(list)
    for number in range(pace.rounds):
        for work, model, _ in KINDS:
            for at_once in (*AT_ONCE, CROWD) if (work, model) == CROWDED else AT_ONCE:
                for target in targets:
                    cell = undisturbed(target, loader, load_for(target, pace, work=work, model=model, at_once=at_once))
                    cells[target.name, work, model, at_once].append(cell)
                    say(f"round {number + 1}: {target.name}, {work}, {model}, {at_once} at once: {ms(cell.p50_ms)} ms, {cell.rps:,.0f}/s")
                    for what, count in cell.wrong.items():
                        say(f"  WRONG, {count} times: {what}")
    return cells


def load_for(target: Target, pace: Pace, *, work: str, model: str, at_once: int) -> Load:
    return Load(
        port=target.port,
        path=target.path_to(model),
        clients=at_once,
        model=model,
        key=target.keys.get(model, ""),
        headers=target.headers.get(model, ()),
        warm_s=pace.warm_s,
        # With 200 ms for each request, one client needs longer for as many of them.
        seconds=pace.seconds * 2 if model == "slow" else pace.seconds,
        chats=pace.chats[at_once] if work == Work.GROWING else 0,
    )


def undisturbed(target: Target, loader: subprocess.Popen[str], load: Load) -> Cell:
    tries = [once(target, loader, load)]
    while tries[-1].foreign > DISTURBED and len(tries) < TRIES:
        tries.append(once(target, loader, load))
    return min(tries, key=lambda cell: cell.foreign)


def once(target: Target, loader: subprocess.Popen[str], load: Load) -> Cell:
    everybody = [os.getpid(), *target.stores()]
    before, server, stores = Moment.now(everybody), cpu_s(target.pids), cpu_s(target.stores())
    told = loaded(loader, load)
    sent = max(1, told["sent"])
    return Cell(
        p50_ms=told["p50_ms"] or float("nan"),
        p99_ms=told["p99_ms"],
        rps=told["rps"],
        cpu_ms=(cpu_s(target.pids) - server) / sent * 1e3,
        stores_cpu_ms=(cpu_s(target.stores()) - stores) / sent * 1e3,
        rss_mb=rss_mb(target.pids),
        foreign=Moment.now(everybody).foreign_since(before),
        loader_share=told["loader_share"],
        wrong=told["wrong"],
    )


def loaded(loader: subprocess.Popen[str], load: Load) -> dict[str, Any]:
    """Have the loader run a load, and return what it saw."""
    assert loader.stdin is not None
    assert loader.stdout is not None
    loader.stdin.write(json.dumps(asdict(load)) + "\n")
    loader.stdin.flush()
    return dict(json.loads(loader.stdout.readline()))


# --- tables


def median(cells: Sequence[Cell], field: str) -> float:
    return statistics.median(getattr(cell, field) for cell in cells)


def print_served(targets: Sequence[Target], cells: dict[Key, list[Cell]]) -> None:
    for work, model, title in KINDS:
        loads = (*AT_ONCE, CROWD) if (work, model) == CROWDED else AT_ONCE
        rows = [row(target, cells, work, model, at_once) for at_once in loads for target in targets]
        head = [
            "at once",
            "target",
            "p50 ms",
            "p99 ms",
            "added p50",
            "added p99",
            "requests/s",
            "CPU ms/request",
            "stores' CPU ms",
            "RSS MB",
        ]
        table(f"Served: {title}", head, rows)
    marked = [key for key, taken in cells.items() if min(cell.foreign for cell in taken) > DISTURBED]
    if marked:
        print(f"**Disturbed**: others used more than {DISTURBED:.0%} of the machine in {len(marked)} of {len(cells)} cells (*).\n")
    busy = [key for key, taken in cells.items() if key[0] != "direct" and median(taken, "loader_share") > BUSY_LOADER]
    if busy:
        print(f"**The loader was the bottleneck** in {busy}.\n")


def row(target: Target, cells: dict[Key, list[Cell]], work: str, model: str, at_once: int) -> list[str]:
    taken, base = cells[target.name, work, model, at_once], cells["direct", work, model, at_once]
    is_base = target.name == "direct"
    mark = "*" if min(cell.foreign for cell in taken) > DISTURBED else ""
    wrong = sum(sum(cell.wrong.values()) for cell in taken)
    return [
        str(at_once),
        f"{target.name}{mark}" + (f" ({wrong} wrong)" if wrong else ""),
        ms(median(taken, "p50_ms")),
        ms(p99(taken)),
        "" if is_base else ms(added(taken, base)),
        "" if is_base else ms(less(p99(taken), p99(base))),
        f"{median(taken, 'rps'):,.0f}",
        "" if is_base else f"{median(taken, 'cpu_ms'):.2f}",
        f"{median(taken, 'stores_cpu_ms'):.2f}" if target.stores() else "",
        "" if is_base else f"{taken[-1].rss_mb:.0f}",
    ]


def added(taken: Sequence[Cell], base: Sequence[Cell]) -> float:
    """The median over rounds of what the target adds, each round less the direct call of that round."""
    return statistics.median(cell.p50_ms - direct.p50_ms for cell, direct in zip(taken, base, strict=True))


def p99(taken: Sequence[Cell]) -> float | None:
    known = [cell.p99_ms for cell in taken if cell.p99_ms is not None]
    return statistics.median(known) if known else None


def less(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


@dataclass(frozen=True, slots=True)
class Ratio:
    """One load on two targets: our share of their p50, and how many times their throughput we have."""

    work: str
    model: str
    at_once: int
    title: str
    p50: float
    rps: float


def ratios(cells: dict[Key, list[Cell]], ours: str, theirs: str) -> list[Ratio]:
    """Every load, for one process each."""
    found = []
    for work, model, title in KINDS:
        for at_once in AT_ONCE:
            mine, other = (cells[name, work, model, at_once] for name in (ours, theirs))
            p50, rps = (median(mine, field) / median(other, field) for field in ("p50_ms", "rps"))
            found.append(Ratio(work, model, at_once, title, p50, rps))
    return found
