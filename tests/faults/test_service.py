"""`hermes up` as its owner sees it: one process tree that starts, mends itself, and ends without leaving anything behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes.stores import embedded
from tests.faults.house import Nursery
from tests.faults.tree import PATIENCE_S, Tree, ask, processes_of


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
    [event, alert] = tree.events("process_died")
    assert (event["role"], event["pid"], event["code"]) == ("worker", worker, -signal.SIGKILL)
    assert (alert["alert"], alert["role"], alert["pid"], alert["code"]) == (True, "worker", worker, -signal.SIGKILL)
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
