"""The beat of a process: it comes from the event loop, and reaches systemd, a file, and the parent."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import structlog

from hermes.ops.pulse import FileSink, ParentLink, Pulse, SystemdSink, sinks_from

QUICK_S = 0.01


def received(listener: socket.socket) -> list[str]:
    """All datagrams that have come."""
    found = []
    while True:
        try:
            found.append(listener.recv(1_000).decode())
        except BlockingIOError:
            return found


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """The end of systemd, and its name in NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        name = str(tmp_path / "notify") if request.param == "path" else f"@hermes-{uuid4()}"
        listener.bind(name if name[0] == "/" else f"\0{name[1:]}")
        listener.setblocking(False)
        yield listener, name


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while True:
            if is_so():
                return
            await asyncio.sleep(QUICK_S)


async def test_systemd_hears_that_the_service_is_ready_lives_and_stops(systemd: tuple[socket.socket, str]) -> None:
    listener, address = systemd
    pulse = Pulse([SystemdSink(address)], interval_s=QUICK_S)
    is_silent = False
    async with pulse.beating():
        await asyncio.sleep(3 * QUICK_S)
        assert received(listener) == [], "while it starts, the limit for starting counts"
        pulse.open(uuid4(), lambda: is_silent)
        assert received(listener)[:2] == ["READY=1", "WATCHDOG=1"]
        await until(lambda: received(listener))
        is_silent = True
        await asyncio.sleep(2 * QUICK_S)
        received(listener)
        await asyncio.sleep(3 * QUICK_S)
        assert received(listener) == [], "a silent worker is killed by the watchdog"
    assert received(listener) == ["STOPPING=1"]


async def test_a_service_that_finishes_its_turns_says_that_it_stops_and_goes_on_beating(systemd: tuple[socket.socket, str]) -> None:
    listener, address = systemd
    pulse, heard = Pulse([SystemdSink(address)], interval_s=QUICK_S), list[str]()

    async def work() -> None:
        async with pulse.beating():
            pulse.open(uuid4())
            try:
                await asyncio.Event().wait()
            finally:
                await until(lambda: heard.extend(received(listener)) or "STOPPING=1" in heard[:-2])

    working = asyncio.create_task(work())
    await until(lambda: pulse.is_open)
    working.cancel()
    await asyncio.wait({working}, timeout=10)
    assert heard.count("STOPPING=1") == 1
    assert heard[-1] == "WATCHDOG=1", "a long drain is not a stalled service"


async def test_a_blocked_event_loop_gives_no_beat(tmp_path: Path) -> None:
    file = tmp_path / "beat"
    pulse = Pulse([FileSink(file)], interval_s=QUICK_S)
    async with pulse.beating():
        await asyncio.sleep(2 * QUICK_S)
        assert not file.exists(), "it has not started"
        pulse.open(uuid4())
        before = file.stat().st_mtime_ns
        time.sleep(10 * QUICK_S)  # noqa: ASYNC251  # the fault itself
        assert file.stat().st_mtime_ns == before
        await until(lambda: file.stat().st_mtime_ns != before)
    assert not file.exists(), "a process that ended leaves no beat behind"


async def test_a_watcher_that_is_away_is_logged_once_and_harms_nothing(tmp_path: Path) -> None:
    file = tmp_path / "beat"
    pulse = Pulse([SystemdSink(str(tmp_path / "nobody")), FileSink(file)])
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            pulse.open(uuid4())
    assert [(line["event"], line["sink"]) for line in logs] == [("pulse_failed", "SystemdSink")]
    assert file.exists()


async def test_the_parent_hears_beats_and_tells_news() -> None:
    (parent, child), ended = socket.socketpair(), threading.Event()
    with parent, child:
        link = ParentLink(child.fileno(), ended=ended.set)
        link.start()
        pulse, process_id = Pulse([link]), uuid4()
        pulse.give()
        pulse.open(process_id, lambda: True)
        first, second = map(json.loads, parent.recv(1_000).splitlines())
        assert (first, second) == ({"id": None, "silent": False}, {"id": str(process_id), "silent": True})
        parent.sendall(b'{"a": 1}\n{"a"')
        parent.sendall(b": 2}\nrubbish\n")
        news: list[object] = []
        await until(lambda: news.extend(link.take_news()) or len(news) == 2)
        assert news == [{"a": 1}, {"a": 2}]
        parent.close()
        assert await asyncio.to_thread(ended.wait, 10)
        link.stop()
        pulse.give()


CHILD = """
import signal, sys, time
from hermes.ops.pulse import ParentLink, Pulse
link = ParentLink()
link.start()
Pulse([link]).give()
print("started", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["socket", "pipe"])
def test_a_process_ends_when_its_parent_ends(kind: str) -> None:
    own, other = socket.socketpair() if kind == "socket" else map(os.fdopen, os.pipe()[::-1], "wr")
    process = subprocess.Popen([sys.executable, "-c", CHILD], stdin=other, stdout=subprocess.PIPE, text=True)
    other.close()
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "started\n"
    own.close()
    assert process.wait(30) == -15


BLOCKED = """
import signal, time
from hermes.ops.pulse import ParentLink
signal.signal(signal.SIGTERM, lambda *_: print("asked to stop", flush=True))
ParentLink(kill_after_s=0.2).start()
print("started", flush=True)
while True:
    time.sleep(60)
"""


def test_a_blocked_process_is_killed_some_time_after_its_parent_ended() -> None:
    own, other = socket.socketpair()
    process = subprocess.Popen([sys.executable, "-c", BLOCKED], stdin=other, stdout=subprocess.PIPE, text=True)
    other.close()
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == "started\n"
        own.close()
        assert process.stdout.readline() == "asked to stop\n", "it may end by itself first"
    assert process.wait(30) == -9


async def test_a_parent_that_reads_nothing_blocks_no_beat() -> None:
    parent, child = socket.socketpair()
    with parent, child:
        child.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        link = ParentLink(child.fileno())
        pulse = Pulse([link])
        began = time.monotonic()
        for _ in range(10_000):
            pulse.give()
        assert time.monotonic() - began < 10
        link.stop()


def test_a_child_speaks_to_its_parent_and_not_to_systemd(tmp_path: Path) -> None:
    parent, child = socket.socketpair()
    with parent, child:
        link = ParentLink(child.fileno())
        notified = {"NOTIFY_SOCKET": "/run/systemd/notify"}
        assert sinks_from(notified, parent=link, beat_file=None) == [link]
        assert [type(sink) for sink in sinks_from(notified, parent=None, beat_file=tmp_path)] == [SystemdSink, FileSink]
        assert sinks_from({}, parent=None, beat_file=None) == []
        link.stop()
