"""What traces cost a turn: CPU time of a whole turn, its acceptance included, with traces off and on, and in another source tree.

Every measurement is a process of its own, and the kinds take turns: what disturbs the machine disturbs all of them. CPU time of the
process, because the wait for the stores says nothing about us. Starts the stores in a folder of its own.

    python benchmarks/traces.py --rounds 5 --base /path/to/older/src
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from router import AtOnce, environment, turn

from hermes.app.root import open_hermes
from hermes.cli.runtime import new_event_loop
from hermes.config import load
from hermes.ops import logs
from hermes.stores import embedded

WARM_TURNS, TURNS, USERS = 100, 500, 50


def main() -> int:
    """Measure in turns, and print the medians and their ratios."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5, help="measurements of each kind")
    options.add_argument("--base", type=Path, help="the src folder of another version, to compare with")
    options.add_argument("--one", choices=["off", "on"], help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.one is not None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            print(runner.run(measure(is_traced=chosen.one == "on")))
        return 0
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores, Collector() as url:
        environ = {**environment(Path(folder), stores), "OTEL_EXPORTER_OTLP_ENDPOINT": url}
        kinds: dict[str, tuple[str, dict[str, str]]] = {"off": ("off", environ), "on": ("on", environ)}
        if chosen.base is not None:
            kinds["base"] = ("off", {**environ, "PYTHONPATH": str(chosen.base)})
        spent: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(chosen.rounds):
            for kind in sorted(kinds, reverse=number % 2 == 1):
                one, variables = kinds[kind]
                command = [sys.executable, __file__, "--one", one]
                spent[kind].append(float(subprocess.check_output(command, env=variables, text=True).split()[-1]))  # noqa: S603  # ourselves
    print("| kind | CPU ms per turn, median | each round | to `off` |\n|---|---|---|---|")
    off = statistics.median(spent["off"])
    for kind, times in spent.items():
        median = statistics.median(times)
        print(f"| {kind} | {median:.2f} | {', '.join(f'{each:.2f}' for each in times)} | {median / off:.3f} |")
    return 0


async def measure(*, is_traced: bool) -> float:
    """CPU milliseconds of one turn, with a model that answers at once."""
    logs.configure("json", "error", sys.stderr)
    async with open_hermes(load(os.environ), **(tracing() if is_traced else {})) as hermes:
        await hermes.prepare()
        hermes.fleet._backends["scripted"] = AtOnce()  # nobody else exchanges a model for none
        for number in range(WARM_TURNS):
            await turn(hermes, number % USERS)
        began = time.process_time()
        for number in range(TURNS):
            await turn(hermes, number % USERS)
        return (time.process_time() - began) / TURNS * 1e3


def tracing() -> dict[str, Any]:
    from hermes.ops.trace_export import open_traces  # noqa: PLC0415  # an older tree has none

    return {"open_tracer": open_traces}


class Collector:
    """Takes every request and forgets it."""

    def __enter__(self) -> str:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self.server.server_port}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()


class Forgetful(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    sys.exit(main())
