"""The gateway and its endpoint beside others: what a proxy adds and a call costs, what happens when a model fails, and if memory grows.

Against no proxy, a bare proxy in Python, and, with --peers, LiteLLM, Portkey, LangChain and pydantic-ai, which are installed into
.benchmarks/ once (minutes; Portkey needs Node and npm). Everything runs on this machine: the upstream, the load and each server are
processes of their own. Exits with 1 if a promise is broken. The parts are in benchmarks/gateway/."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

from gateway import process, served, targets
from gateway.machine import first_line, foreign_share, module, running
from gateway.peers import PEERS, PORTKEY
from gateway.soak import GROWTH, print_soak, soak
from gateway.tables import table

from hermes.stores import embedded

PARTS = ("served", "process", "faults", "soak")
BUSY = 0.10
"""The share of all cores that others may use at the start."""

P50_SHARE, TIMES_LITELLM, TIMES_PORTKEY = 0.25, 5.0, 1.0
"""At most this share of LiteLLM's p50 with one client; at least this many times their calls a second with 16 and with 64."""
P50_MS_WITH_REDIS, CALLS_PER_S_UNSTORED = 1.5, 1_500
FAILOVER_S = 0.05

broken: list[str] = []


def main() -> int:
    """Run the parts that are asked for, print their tables, and say which promises were not kept."""
    chosen = options()
    asked = [part for part in PARTS if part in (chosen.only or [part for part in PARTS if part != "soak" or chosen.soak])]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if not is_quiet(anyway=chosen.quick or chosen.anyway):
        return 2
    for peer in (*PEERS, PORTKEY) if chosen.peers else ():
        peer.install()
    results: dict[str, Any] = {"machine": {"cores": os.cpu_count(), "python": platform.python_version()}, "quick": chosen.quick}
    with tempfile.TemporaryDirectory(prefix="hermes-") as name, upstream_and_loader() as (port, loader):
        folder = Path(name)
        if {"served", "soak"} & set(asked):
            results |= through_targets(asked, chosen, folder, port, loader)
        if {"process", "faults"} & set(asked):
            results |= in_process(asked, chosen, folder, port)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(results, default=as_json, indent=1), encoding="utf-8")
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="measure LiteLLM, Portkey, LangChain and pydantic-ai too")
    parser.add_argument("--quick", action="store_true", help="short, to see that everything runs; the numbers mean little")
    parser.add_argument("--soak", type=int, metavar="N", help="send N requests of every kind through Hermes and watch its memory")
    parser.add_argument("--only", type=lambda text: text.split(","), metavar="PARTS", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--anyway", action="store_true", help="measure although others use the machine")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to a file")
    chosen = parser.parse_args()
    unknown = set(chosen.only or ()) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return chosen


def is_quiet(*, anyway: bool) -> bool:
    """Whether the machine is ours alone; says so if not. Numbers from a shared machine are numbers about the others."""
    share = foreign_share()
    if share <= BUSY:
        return True
    print(f"!!! Others use {share:.0%} of this machine; more than {BUSY:.0%} makes the numbers worthless.", flush=True)
    if not anyway:
        print("Try again when it is quiet, or with --anyway.")
    return anyway


@contextmanager
def upstream_and_loader() -> Iterator[tuple[int, Popen[str]]]:
    with running(module("upstream")) as upstream, running(module("load")) as loader:
        yield int(first_line(upstream)), loader


# --- through targets


def through_targets(asked: list[str], chosen: argparse.Namespace, folder: Path, port: int, loader: Popen[str]) -> dict[str, Any]:
    results: dict[str, Any] = {}
    with ExitStack() as stack:
        here = [stack.enter_context(targets.direct(port))]
        if "served" in asked:
            here.append(stack.enter_context(targets.bare(port)))
        ours = whole = None
        try:
            ours = stack.enter_context(targets.hermes(port, folder))
            here.append(ours)
            whole = stack.enter_context(targets.hermes_up(port, folder)) if "served" in asked else None
        except targets.TargetUnavailable as error:
            broken.append(str(error))
        if "served" in asked:
            litellm = stack.enter_context(targets.litellm(port, folder)) if chosen.peers else None
            portkey = stack.enter_context(targets.portkey(port, folder)) if chosen.peers else None
            cells = side_by_side([*here, *(peer for peer in (whole, litellm, portkey) if peer)], chosen, loader)
            names = ("target", "work", "model", "at_once")
            results["served"] = [{**dict(zip(names, key, strict=True)), "rounds": taken} for key, taken in cells.items()]
            if ours and whole and litellm and portkey:
                results["ratios"] = {
                    f"{one.name} against {peer.name}": against(cells, one.name, peer.name, bars if is_promised else None)
                    for one, is_promised in ((ours, False), (whole, True))
                    for peer, bars in ((litellm, Bars(P50_SHARE, TIMES_LITELLM)), (portkey, Bars(math.inf, TIMES_PORTKEY)))
                }
        if "soak" in asked and ours:
            results["soak"] = soaked(ours, chosen, loader)
    return results


def side_by_side(here: list[targets.Target], chosen: argparse.Namespace, loader: Popen[str]) -> dict[served.Key, list[served.Cell]]:
    usual = served.Pace(rounds=3, seconds=4.0, warm_s=1.0, chats={1: 10, 16: 2, 64: 1})
    pace = served.Pace(rounds=1, seconds=1.0, warm_s=0.5, chats={1: 2, 16: 1, 64: 1}) if chosen.quick else usual
    cells = served.measure(here, loader, pace, say)
    served.print_served(here, cells)
    wrong = sum(sum(cell.wrong.values()) for taken in cells.values() for cell in taken)
    promise(wrong == 0, f"{wrong} answers were not what was asked for")
    return cells


@dataclass(frozen=True, slots=True)
class Bars:
    """What is promised against one peer."""

    p50_share: float
    times: float


def against(cells: dict[served.Key, list[served.Cell]], ours: str, theirs: str, bars: Bars | None) -> list[served.Ratio]:
    """Print how Hermes stands to another server, and check the promises, which are about fresh chats without a delay. The peers are one
    process each, as they are started without further settings."""
    found = served.ratios(cells, ours, theirs)
    rows = [[each.title, str(each.at_once), f"{each.p50:.2f}", f"{each.rps:.2f}"] for each in found]
    table(f"{ours} against {theirs}", ["work", "at once", "share of its p50", "times its requests/s"], rows)
    for each in found:
        if bars is None or (each.work, each.model) != served.CROWDED:
            continue
        if each.at_once == 1:
            promise(each.p50 <= bars.p50_share, f"with one client p50 is {each.p50:.2f} of {theirs}'s, more than {bars.p50_share}")
        else:
            what = f"with {each.at_once} clients {each.rps:.2f} times the requests/s of {theirs}, less than {bars.times:g}"
            promise(each.rps >= bars.times, what)
    return found


def soaked(target: targets.Target, chosen: argparse.Namespace, loader: Popen[str]) -> dict[str, Any]:
    told = soak(target, loader, chosen.soak or (1_000 if chosen.quick else 50_000), say)
    print_soak(told)
    promise(told["grown"] <= GROWTH, f"memory grew {told['grown']:.2f} times during the soak")
    promise(not told["wrong"], f"{sum(told['wrong'].values())} answers of the soak were not what was expected")
    return told


# --- in process


def in_process(asked: list[str], chosen: argparse.Namespace, folder: Path, port: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    home = folder / "in-process"
    with embedded.run_servers(home) as stores:
        ours = process.ours(stores.database_url, stores.redis_url)
        peers = process.theirs(PEERS) if chosen.peers else []
        if "process" in asked:
            calls = ((1, 200), (16, 400), (64, 400)) if chosen.quick else ((1, 1_000), (16, 2_000), (64, 2_000))
            plan = process.Plan(rounds=1 if chosen.quick else 3, warm_up=20 if chosen.quick else 100, calls=calls)
            speeds = process.speed([*ours, *peers], port, plan, targets.store_pids(home), say)
            process.print_speed(speeds)
            check_speeds(speeds)
            results["process"] = speeds
        if "faults" in asked:
            found = process.faults([ours[0], *peers], port, say)
            process.print_faults(found)
            took_s = found[process.OURS]["529"]["seconds"]
            promise(took_s <= FAILOVER_S, f"failing over from a 529 takes {took_s * 1e3:.0f} ms, more than {FAILOVER_S * 1e3:.0f}")
            results["faults"] = found
    return results


def check_speeds(speeds: dict[str, Any]) -> None:
    for name in (process.OURS, process.REDIS_ONLY):
        p50 = speeds[name]["at_once"]["1"]["p50_ms"]
        print(f"- {name}: p50 {p50:.2f} ms, target {P50_MS_WITH_REDIS}")
    calls = speeds[process.UNSTORED]["at_once"]["64"]["calls_per_s"]
    print(f"- {process.UNSTORED}: {calls:,.0f} calls/s at 64 at once, target {CALLS_PER_S_UNSTORED:,}\n")
    p50 = speeds[process.OURS]["at_once"]["1"]["p50_ms"]
    promise(p50 <= P50_MS_WITH_REDIS, f"a call with its budget and its row takes {p50:.2f} ms, more than {P50_MS_WITH_REDIS}")
    promise(calls >= CALLS_PER_S_UNSTORED, f"{calls:,.0f} calls a second without stores, less than {CALLS_PER_S_UNSTORED:,}")


# --- saying


def say(line: str) -> None:
    """Progress, for whoever waits; the tables are on standard output."""
    print(line, file=sys.stderr, flush=True)


def as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


def promise(is_kept: bool, otherwise: str) -> None:  # noqa: FBT001  # reads as a sentence
    if not is_kept:
        broken.append(otherwise)


if __name__ == "__main__":
    sys.exit(main())
