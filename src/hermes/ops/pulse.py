"""The beat that a process gives to those who watch it: `hermes up`, systemd, the probe of a container.

A coroutine on the event loop gives it, so a blocked or stopped process gives none. It does not need the stores: while PostgreSQL is away,
every process goes on beating, and none is killed for it. A silent worker tells its parent so, and gives no beat to systemd or to the probe.

    pulse = Pulse([SystemdSink(address)])
    async with pulse.beating():
        async with open_hermes(settings) as hermes:
            pulse.open(hermes.process_id, lambda: hermes.activity.is_silent)
            ..."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import structlog

from hermes.tasks import end_tasks

log = structlog.get_logger()

PULSE_S = 0.5
"""Seconds between two beats. Short beside every limit that a watcher has."""


class PulseSink(Protocol):
    """One that watches this process. A sink never waits: it is called on the event loop. It may raise OSError."""

    def beat(self, pulse: Pulse) -> None:
        """Pass a beat on."""
        ...

    def stop(self) -> None:
        """Say that the process is about to end."""
        ...


class Pulse:
    """The beat of this process."""

    def __init__(self, sinks: Sequence[PulseSink], *, interval_s: float = PULSE_S) -> None:
        self._sinks, self._interval_s = tuple(sinks), interval_s
        self._failed = set[PulseSink]()
        self._is_silent: Callable[[], bool] = lambda: False
        self._owner: asyncio.Task[Any] | None = None
        self.is_open = False
        """Whether the process has started and works."""
        self.process_id: UUID | None = None
        """The id of this process; None while it starts, and in `hermes up` itself."""

    @property
    def is_silent(self) -> bool:
        return self._is_silent()

    @property
    def is_stopping(self) -> bool:
        """Whether the process was told to stop, and finishes what it has begun."""
        return self._owner is not None and self._owner.cancelling() > 0

    def open(self, process_id: UUID | None, is_silent: Callable[[], bool] = lambda: False) -> None:
        """Say that the process has started and works."""
        self.is_open, self.process_id, self._is_silent = True, process_id, is_silent
        self.give()

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Give beats until the block ends."""
        self._owner = asyncio.current_task()
        task = asyncio.create_task(self._run(), name="pulse")
        try:
            yield
        finally:
            await end_tasks(task)
            for sink in self._sinks:
                with suppress(OSError):
                    sink.stop()

    def give(self) -> None:
        """Give one beat. A watcher that cannot be reached is logged once."""
        for sink in self._sinks:
            try:
                sink.beat(self)
            except OSError as error:
                if sink not in self._failed:
                    self._failed.add(sink)
                    log.warning("pulse_failed", sink=type(sink).__name__, error=type(error).__name__)

    async def _run(self) -> None:
        while True:
            self.give()
            await asyncio.sleep(self._interval_s)


# --- the parent: `hermes up` holds the other end of a socket that is this process's standard input


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class ParentLink:
    """The socket to `hermes up`: beats go out, news about other processes come in. When it ends, this process stops as SIGTERM does: the
    parent may be killed with SIGKILL. If standard input is no socket, only its end is watched."""

    def __init__(self, fd: int = 0, *, ended: Callable[[], object] = stop_this_process, kill_after_s: float | None = None) -> None:
        """`ended` is called from the thread when the parent has ended. If the process has not ended `kill_after_s` later, it is killed: its
        event loop is blocked, so it does not act on SIGTERM."""
        self._ended, self._kill_after_s = ended, kill_after_s
        self._fd, self._news = fd, queue.SimpleQueue[Mapping[str, Any]]()
        self._socket = socket.socket(fileno=os.dup(fd)) if stat.S_ISSOCK(os.fstat(fd).st_mode) else None

    def start(self) -> None:
        """Watch the parent from a thread: the event loop may be blocked when the parent ends."""
        threading.Thread(target=self._read, name="hermes-parent-watch", daemon=True).start()

    def beat(self, pulse: Pulse) -> None:
        state = {"id": None if pulse.process_id is None else str(pulse.process_id), "silent": pulse.is_silent}
        if self._socket is not None:
            with suppress(BlockingIOError):  # a parent that reads nothing was stopped itself
                self._socket.send(f"{json.dumps(state)}\n".encode(), socket.MSG_DONTWAIT)

    def stop(self) -> None:
        """Give no more beats. The end of the parent is still watched."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def take_news(self) -> list[Mapping[str, Any]]:
        """Return what the parent said since the last call."""
        news = []
        with suppress(queue.Empty):
            while True:
                news.append(self._news.get_nowait())
        return news

    def _read(self) -> None:
        rest = b""
        with suppress(OSError):
            while chunk := os.read(self._fd, 65_536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    with suppress(ValueError):
                        self._news.put(json.loads(line))
        self._ended()
        if self._kill_after_s is not None:
            time.sleep(self._kill_after_s)  # in this thread, which ends with the process
            os.kill(os.getpid(), signal.SIGKILL)


# --- systemd: Type=notify and WatchdogSec


class SystemdSink:
    """Tells systemd that the service has started, lives, and stops: the protocol of sd_notify(3), one datagram each."""

    def __init__(self, address: str) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._is_ready, self._is_stopping = False, False

    def beat(self, pulse: Pulse) -> None:
        if pulse.is_stopping:
            self.stop()
        if pulse.is_open and not self._is_ready:
            self._send("READY=1")
            self._is_ready = True
        # While the process starts, systemd's own start limit counts; a beat then would be taken for one of a service that runs.
        if self._is_ready and not pulse.is_silent:
            self._send("WATCHDOG=1")

    def stop(self) -> None:
        if not self._is_stopping:
            self._send("STOPPING=1")
            self._is_stopping = True

    def _send(self, state: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notifier:
            notifier.setblocking(False)  # noqa: FBT003  # its signature
            notifier.sendto(state.encode(), self._address)


# --- a file, for the probe of a container


class FileSink:
    """Writes the time of the last change of a file. `hermes health --beat-file` reads it, and so can `stat`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def beat(self, pulse: Pulse) -> None:
        if pulse.is_open and not pulse.is_silent:
            self._path.touch()

    def stop(self) -> None:
        self._path.unlink(missing_ok=True)


def sinks_from(environ: Mapping[str, str], *, parent: ParentLink | None, beat_file: Path | None) -> list[PulseSink]:
    """Return the watchers of this process. A child of `hermes up` speaks to its parent, and the parent to systemd."""
    sinks: list[PulseSink] = [] if parent is None else [parent]
    address = environ.get("NOTIFY_SOCKET", "")
    if parent is None and address:
        sinks.append(SystemdSink(address))
    if beat_file is not None:
        sinks.append(FileSink(beat_file))
    return sinks
