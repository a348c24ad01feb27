"""Fuzz every parser that reads what a stranger wrote: webhooks, bodies of the APIs, graphs, rows, exports, the settings file.

    scripts/bench fuzz                        ten minutes in all
    scripts/bench fuzz --seconds 60 --seed 7 --only graph

Prints inputs, different outcomes and crashes by target, and writes each crash into .benchmarks/fuzz. Exits with 1 if there is one."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the targets stand beside the tests of hostile inputs

from tests.hostile.fuzz_targets import targets  # noqa: E402
from tests.hostile.fuzzer import Crash, fuzz  # noqa: E402

CRASHES = ROOT / ".benchmarks" / "fuzz"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets whose name has this text")
    options = parser.parse_args()
    chosen = [target for target in targets() if options.only in target.name]
    if not chosen:
        parser.error(f"no target has {options.only!r} in its name")
    crashes: list[Crash] = []
    print(f"{'target':<28}{'inputs':>10}{'outcomes':>10}{'crashes':>9}")
    began = time.monotonic()
    for target in chosen:
        found = fuzz(target, seconds=options.seconds / len(chosen), seed=options.seed)
        crashes += found.crashes.values()
        print(f"{target.name:<28}{found.inputs:>10,}{len(found.outcomes):>10,}{len(found.crashes):>9}", flush=True)
        for name in found.crashes:
            print(f"    {name}")
    print(f"{time.monotonic() - began:,.0f} s, seed {options.seed}")
    for crash in crashes:
        write_crash(crash)
    return 1 if crashes else 0


def write_crash(crash: Crash) -> None:
    CRASHES.mkdir(parents=True, exist_ok=True)
    name = f"{crash.target.replace(' ', '-')}-{hashlib.sha256(crash.data).hexdigest()[:12]}"
    (CRASHES / name).write_bytes(crash.data)
    (CRASHES / f"{name}.txt").write_text(crash.what, encoding="utf-8")
    print(f"wrote {CRASHES / name}")


if __name__ == "__main__":
    sys.exit(main())
