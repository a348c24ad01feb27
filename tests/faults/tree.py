"""A running `hermes up` in a home of its own, as its owner sees it: its processes, its log, its answers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from hermes.stores import embedded
from hermes.stores.embedded import StoreUrls
from hermes.stores.embedded.home import home_at
from tests.faults.house import QUICK, Nursery, open_house

PATIENCE_S = 90.0


@dataclass(slots=True)
class Tree:
    """A running `hermes up` in a home of its own."""

    home: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hermes", "up"],
                env=self.environ,
                cwd=self.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> Path:
        return self.home.parent / "log"

    @property
    def stores(self) -> StoreUrls:
        return home_at(self.home).addresses

    def events(self, name: str) -> list[dict[str, Any]]:
        lines = (line for line in self.log.read_text(encoding="utf-8").splitlines() if line.startswith("{"))
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def children(self, role: str) -> list[int]:
        """The processes of that role in this tree, found by their command line and their home."""
        return [pid for pid, line in processes_of(self.home).items() if f"hermes\0{role}\0" in line]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database of this tree says."""
        with psycopg.connect(self.stores.database_url) as connection:
            return connection.execute(query.encode()).fetchall()

    def process_events(self, pid: int | None = None) -> list[str]:
        """What happened to processes, or to one of them, in that order."""
        events = self.rows("select type, (facts ->> 'pid')::int from process_events order by number")
        return [kind for kind, each in events if pid in {None, each}]

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < end, f"not in time: {what}\n{self.log.read_text(encoding='utf-8')[-3000:]}"
            time.sleep(0.02)

    def wait_until_ready(self) -> None:
        self.wait_until(lambda: bool(self.events("web_ready") and self.events("worker_ready")), "web and worker are ready")

    def is_gone(self) -> bool:
        """Nothing is left of it: no process of Hermes, no server."""
        status = embedded.status(self.home)
        return not processes_of(self.home) and (status.postgres, status.valkey) == (None, None)

    def clear_away(self) -> None:
        for pid in [*processes_of(self.home), self.process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        embedded.stop(self.home, even_if_in_use=True)


def processes_of(home: Path) -> dict[int, str]:
    """Processes of Hermes that were started for a home, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                if "-m\0hermes\0" in line and f"HERMES_HOME={home}\0".encode() in (entry / "environ").read_bytes():
                    found[int(entry.name)] = line
    return found


async def ask(tree: Tree, nursery: Nursery, folder: Path, *texts: str) -> list[str | None]:
    """Send messages to the running service, and wait for its answers."""
    settings = {name: value for name, value in tree.environ.items() if name in ("HERMES_MASTER_KEYS", *QUICK)}
    settings["HERMES_VAULT"] = tree.environ["HERMES_HOME"]  # by the address of its stores, the house takes them for servers
    async with open_house(nursery, folder, tree.stores, **settings) as house:
        receipts = await house.send_all(*texts)
        await house.until_quiet(PATIENCE_S)
        return [await house.answer(receipt.turn_id) for receipt in receipts]
