"""`hermes up` as its owner sees it: one process tree that starts, mends itself, and ends without leaving anything behind."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes.stores import embedded
from hermes.stores.embedded import StoreUrls
from hermes.stores.embedded.home import home_at
from hermes.stores.seal import new_master_key
from tests.faults.house import QUICK, Nursery, open_house

PATIENCE_S = 40.0


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


@pytest.fixture
def environ() -> Iterator[dict[str, str]]:
    """The settings of a service that has its home and its port for itself. In a short folder, because a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        script = Path(folder) / "echo.toml"
        script.write_text('otherwise = "{words}"', encoding="utf-8")
        yield {
            **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
            **QUICK,
            "HERMES_HOME": str(Path(folder) / "home"),
            "HERMES_WEB_PORT": "0",
            "HERMES_MASTER_KEYS": new_master_key(),
            "HERMES_LOG_FORMAT": "json",
            "HERMES_LLM_SCRIPT": str(script),
        }


@pytest.fixture
def tree(environ: dict[str, str]) -> Iterator[Tree]:
    tree = Tree(Path(environ["HERMES_HOME"]), environ)
    try:
        yield tree
    finally:
        tree.clear_away()


async def ask(tree: Tree, nursery: Nursery, folder: Path, *texts: str) -> list[str | None]:
    """Send messages to the running service, and wait for its answers."""
    settings = {name: value for name, value in tree.environ.items() if name in ("HERMES_MASTER_KEYS", *QUICK)}
    async with open_house(nursery, folder, tree.stores, **settings) as house:
        receipts = await house.send_all(*texts)
        await house.until_quiet(PATIENCE_S)
        return [await house.answer(receipt.turn_id) for receipt in receipts]


def test_a_service_that_is_told_to_stop_answers_and_leaves_nothing_behind(tree: Tree, nursery: Nursery, tmp_path: Path) -> None:
    tree.wait_until_ready()
    assert asyncio.run(ask(tree, nursery, tmp_path, "a1", "a2", "b1")) == ["a1", "a2", "b1"]
    tree.process.send_signal(signal.SIGTERM)
    assert tree.process.wait(PATIENCE_S) == 0
    assert tree.is_gone()
    assert tree.events("worker_drained")


def test_the_children_of_a_killed_parent_end_by_themselves_and_stop_the_stores(tree: Tree) -> None:
    tree.wait_until_ready()
    tree.process.kill()
    assert tree.process.wait() == -signal.SIGKILL
    began = time.monotonic()
    tree.wait_until(tree.is_gone, "nothing is left")
    assert time.monotonic() - began < 10


def test_a_killed_worker_is_started_again_and_answers_what_was_sent_meanwhile(tree: Tree, nursery: Nursery, tmp_path: Path) -> None:
    tree.wait_until_ready()
    [worker] = tree.children("worker")
    os.kill(worker, signal.SIGKILL)
    assert asyncio.run(ask(tree, nursery, tmp_path, "a1", "a2", "b1")) == ["a1", "a2", "b1"]
    [event] = tree.events("process_died")
    assert (event["role"], event["code"]) == ("worker", -signal.SIGKILL)
    [another] = tree.children("worker")
    assert another != worker
    tree.process.send_signal(signal.SIGTERM)
    assert tree.process.wait(PATIENCE_S) == 0
    assert tree.is_gone()


def up(environ: dict[str, str]) -> tuple[int, list[str]]:
    """Run `hermes up` to its end; return its exit code, and the lines for its owner."""
    ended = subprocess.run(
        [sys.executable, "-m", "hermes", "up"],
        env=environ,
        cwd=Path(environ["HERMES_HOME"]).parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ended.returncode, [line for line in ended.stderr.splitlines() if not line.startswith("{")]


def test_bad_settings_are_one_line_and_exit_code_2(environ: dict[str, str]) -> None:
    code, said = up({**environ, "HERMES_WORK_CONCURRENCY": "many"})
    assert (code, said) == (2, ["hermes: HERMES_WORK_CONCURRENCY is 'many'; expected a whole number of at least 1"])
    assert not Path(environ["HERMES_HOME"]).exists(), "nothing was touched"


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = up({**environ, "HERMES_WEB_PORT": str(port)})
    assert (code, len(said)) == (2, 1)
    assert said[0].startswith(f"hermes: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert said[0].endswith("; choose another port with HERMES_WEB_PORT")
    home = Path(environ["HERMES_HOME"])
    assert (processes_of(home), embedded.status(home)) == ({}, embedded.ServerStatus(None, None, ()))


def test_what_starting_again_would_not_mend_stops_everything(environ: dict[str, str]) -> None:
    code, said = up({**environ, "HERMES_ENVIRONMENT": "production", "HERMES_MASTER_KEYS": "", "ANTHROPIC_API_KEY": "a key"})
    assert code == 2
    assert any("there is no master key" in line for line in said)


def test_a_worker_that_hangs_is_killed_when_everything_stops(environ: dict[str, str]) -> None:
    tree = Tree(Path(environ["HERMES_HOME"]), environ)
    try:
        tree.wait_until_ready()
        [worker] = tree.children("worker")
        os.kill(worker, signal.SIGSTOP)
        tree.process.send_signal(signal.SIGTERM)
        time.sleep(1.0)
        assert tree.process.poll() is None, "it is given time first"
        tree.process.send_signal(signal.SIGTERM)
        assert tree.process.wait(PATIENCE_S) == 0
        tree.wait_until(tree.is_gone, "nothing is left")
        assert tree.events("process_killed")
    finally:
        tree.clear_away()


@pytest.mark.parametrize("after_s", [0.9, 1.4, 2.0])
def test_a_server_that_is_told_to_stop_while_it_starts_leaves_no_store_running(environ: dict[str, str], after_s: float) -> None:
    home = Path(environ["HERMES_HOME"])
    process = subprocess.Popen([sys.executable, "-m", "hermes", "serve"], env=environ, cwd=home.parent, stderr=subprocess.DEVNULL)
    try:
        time.sleep(after_s)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        status = embedded.status(home)
        assert (status.postgres, status.valkey) == (None, None)
    finally:
        process.kill()
        process.wait()
        embedded.stop(home, even_if_in_use=True)
