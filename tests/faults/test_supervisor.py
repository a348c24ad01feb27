"""`hermes up` notices: a process that was stopped, whose event loop hangs, that is silent, or that dies again and again, is replaced. A
database that is away kills none."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from hermes.cli.output import BAD_INPUT
from hermes.stores import embedded
from tests.faults.house import Nursery
from tests.faults.tree import PATIENCE_S, Tree, ask

REPLACE_S = 4.0

STRANGE = """
import os, signal, sys, time

if "worker" in sys.argv and os.path.exists(crash := os.environ["STRANGE_FOLDER"] + "/crash"):
    os._exit(int(open(crash).read()))

def hang(*_):
    time.sleep(3600)

def silence(*_):
    from hermes.ops.work_activity import WorkActivity
    WorkActivity.is_silent = True

signal.signal(signal.SIGUSR1, hang)
signal.signal(signal.SIGUSR2, silence)
"""
"""What goes wrong in a process, at a signal: its event loop hangs while its threads go on, or its worker says that no turn ends. And as
long as there is a file, a worker dies as soon as it is started."""


@pytest.fixture
def watched(environ: dict[str, str], tmp_path: Path) -> Iterator[Tree]:
    """A tree that waits for a moment, with processes that can go wrong."""
    (tmp_path / "sitecustomize.py").write_text(STRANGE, encoding="utf-8")
    limits = {"HERMES_WORK_REPLACE_AFTER_S": str(REPLACE_S), "HERMES_WORK_STALLED_AFTER_S": str(REPLACE_S)}
    strange = {"PYTHONPATH": str(tmp_path), "STRANGE_FOLDER": str(tmp_path), **limits}
    tree = Tree(Path(environ["HERMES_HOME"]), {**environ, **strange})
    try:
        tree.wait_until_ready()
        tree.wait_until(lambda: tree.process_events().count("process_started") == 2, "both have written their rows")
        yield tree
    finally:
        tree.clear_away()


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGUSR1], ids=["stopped", "hanging"])
def test_a_worker_that_gives_no_beat_is_replaced_and_every_answer_is_given_once(
    watched: Tree, nursery: Nursery, tmp_path: Path, blow: signal.Signals
) -> None:
    [worker] = watched.children("worker")
    os.kill(worker, blow)
    began = time.monotonic()
    watched.wait_until(lambda: watched.children("worker") not in ([worker], []), "another worker")
    assert time.monotonic() - began < 30
    assert asyncio.run(ask(watched, nursery, tmp_path, "a1", "a2", "b1")) == ["a1", "a2", "b1"]
    [event] = watched.events("process_replaced")
    assert (event["role"], event["pid"], event["reason"]) == ("worker", worker, "stalled")
    assert not Path(f"/proc/{worker}").exists(), "SIGKILL, because a stopped process gets no SIGTERM"
    watched.wait_until(lambda: "process_restarted" in watched.process_events(), "the restart is recorded")
    assert watched.process_events(worker) == ["process_started", "process_stalled", "process_restarted"]
    assert (worker, True) in watched.rows("select pid, stopped_at is not null from processes")
    assert worker in {alert["pid"] for alert in watched.events("process_stalled")}


def test_a_web_process_that_gives_no_beat_is_replaced(watched: Tree) -> None:
    [web] = watched.children("serve")
    os.kill(web, signal.SIGSTOP)
    watched.wait_until(lambda: len(watched.events("web_ready")) == 2, "another web process")
    assert watched.children("serve") != [web]
    with urlopen(watched.events("web_ready")[1]["url"] + "health", timeout=PATIENCE_S) as answer:  # noqa: S310  # our own address
        assert answer.status == 200
    assert len(watched.children("worker")) == 1
    assert [event["role"] for event in watched.events("process_replaced")] == ["serve"]


def test_a_silent_worker_is_told_to_stop_and_replaced(watched: Tree) -> None:
    [worker] = watched.children("worker")
    os.kill(worker, signal.SIGUSR2)
    watched.wait_until(lambda: len(watched.events("worker_ready")) == 2, "another worker")
    assert watched.events("worker_drained"), "it may end its turns first"
    [event] = watched.events("process_replaced")
    assert (event["pid"], event["reason"]) == (worker, "silent")
    watched.wait_until(lambda: "process_restarted" in watched.process_events(), "the restart is recorded")
    assert "process_silent" in watched.process_events()


def test_a_worker_that_dies_again_and_again_is_started_slowly_and_reported_once(watched: Tree, tmp_path: Path) -> None:
    (tmp_path / "crash").write_text("1", encoding="ascii")
    [worker] = watched.children("worker")
    os.kill(worker, signal.SIGKILL)
    watched.wait_until(lambda: "process_crash_loop" in watched.process_events(), "the crash loop is recorded")
    parents = [event for event in watched.events("process_died") if "alert" not in event]
    pauses_s = [event["restarts_in_s"] for event in parents]
    assert pauses_s in ([0.5, 1.0, 2.0, 4.0, 30.0], [0.5, 0.5, 1.0, 2.0, 30.0]), "the first one ran for less, or for more, than ten seconds"
    assert len([event for event in watched.events("process_crash_loop") if "alert" in event]) == 1
    assert (watched.process.poll(), len(watched.children("serve"))) == (None, 1), "everything else goes on"
    assert watched.children("worker") == []


def test_settings_that_became_bad_stop_no_process_that_works(watched: Tree, tmp_path: Path) -> None:
    """At the first start they stop everything. Later a web process still answers: it must not end because a worker cannot come back."""
    (tmp_path / "crash").write_text(str(BAD_INPUT), encoding="ascii")
    [worker], [web] = watched.children("worker"), watched.children("serve")
    os.kill(worker, signal.SIGKILL)
    watched.wait_until(lambda: BAD_INPUT in {event["code"] for event in watched.events("process_died")}, "a worker with bad settings")
    (tmp_path / "crash").unlink()
    watched.wait_until(lambda: len(watched.events("worker_ready")) == 2, "a worker, after the settings were mended")
    assert (watched.process.poll(), watched.children("serve")) == (None, [web])


@contextmanager
def stopped_database(tree: Tree) -> Iterator[None]:
    """PostgreSQL answers nothing, and closes no connection."""
    postmaster = embedded.status(tree.home).postgres
    assert postmaster is not None
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii")
    servers = [postmaster, *map(int, children.split())]
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)


def test_no_process_is_replaced_while_the_database_is_away(watched: Tree, nursery: Nursery, tmp_path: Path) -> None:
    before = [watched.children(role) for role in ("serve", "worker")]
    with stopped_database(watched):
        time.sleep(3 * REPLACE_S)  # not a wait for something: the time in which nothing may happen
    assert asyncio.run(ask(watched, nursery, tmp_path, "a1")) == ["a1"]
    assert [watched.children(role) for role in ("serve", "worker")] == before
    assert (watched.events("process_replaced"), watched.events("process_died")) == ([], [])
    assert "process_stalled" not in watched.process_events(), "a process that could not write its row is not stalled"


@pytest.mark.parametrize("store", ["postgres", "valkey"])
def test_a_killed_store_runs_again_and_no_process_is_replaced(watched: Tree, nursery: Nursery, tmp_path: Path, store: str) -> None:
    children, killed = watched.children("serve") + watched.children("worker"), getattr(embedded.status(watched.home), store)
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    watched.wait_until(lambda: getattr(embedded.status(watched.home), store) not in (None, killed), f"{store} runs again")
    assert asyncio.run(ask(watched, nursery, tmp_path, "a1", "a2", "b1")) == ["a1", "a2", "b1"]
    assert watched.children("serve") + watched.children("worker") == children
    assert watched.events("store_died")[0]["stores"] == [store]
