"""`hermes up`: the stores, the web processes and the workers, kept alive together.

The web processes accept connections from one socket, which the parent opened. The first one starts before the others, because it tells
the operator where Hermes is.

The parent holds the stores, so a restart of a child never stops them. Each child has a socket to the parent as its standard input. It
gives its beat there, from its event loop; the parent replaces a child that died, that gives no beat, or that says that it is silent. When
the parent ends, even by SIGKILL, the socket ends and the children stop. The parent itself opens no database: it tells another child what it
did, and that child records and reports it. So an outage of PostgreSQL neither kills a child nor keeps one from being replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import structlog

from hermes.app.home import home_of, keep_stores
from hermes.app.processes import host_name, restart_news
from hermes.app.stores import open_stores
from hermes.cli.listeners import WebListeners
from hermes.cli.output import BAD_INPUT
from hermes.config import Settings
from hermes.ops.pulse import Pulse, sinks_from
from hermes.ports.processes import ProcessRestart, ProcessRole, RestartReason
from hermes.tasks import end_tasks

log = structlog.get_logger()

STEADY_S = 10.0
"""After a child ran this long, its next failure counts as the first."""
MAX_PAUSE_S = 10.0
GRACE_S = 5.0
"""How much longer than `work.drain_s` a child may take to stop."""
MAX_START_S = 120.0
"""How long a child may take until its first beat: it loads its modules, on a machine that may be busy."""
MAX_RESTARTS, RESTART_WINDOW_S = 5, 300.0
"""A child that is replaced so often within this time is in a crash loop."""
CRASH_LOOP_PAUSE_S = 30.0
MAX_UNTOLD = 100
"""Restarts that the parent keeps until a child can record them."""


MAX_WEB_PROCESSES = 2
"""Web processes where the settings name no number. On two cores, which the stores share, a second one answers a quarter to a third more API
calls."""


def count_web_processes(settings: Settings) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return settings.web.processes or min(cores, MAX_WEB_PROCESSES)


async def supervise(settings: Settings, config: Path | None, listeners: WebListeners | None) -> int:
    """Run all processes until a signal stops them; return the exit code. Without `listeners` there is one web process, which opens its
    own."""
    web_processes = 1 if listeners is None else count_web_processes(settings)
    stopping, killing = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (killing if stopping.is_set() else stopping).set()  # a second signal kills the children
        if listeners is not None:
            listeners.close()  # when the web processes have closed theirs too, clients are refused

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with AsyncExitStack() as stack:
        pulse = Pulse(sinks_from(os.environ, parent=None, beat_file=None))
        await stack.enter_async_context(pulse.beating())
        await stack.enter_async_context(open_stores(settings, home_of(settings)))
        tree = ProcessTree(pulse)
        limits = ChildLimits(replace_after_s=settings.work.replace_after_s, stop_timeout_s=settings.work.drain_s + GRACE_S)
        fds = () if listeners is None else listeners.fds
        web = [
            ChildProcess(ProcessRole.SERVE, config, tree, stopping, killing, limits, fds, is_further=number > 0)
            for number in range(web_processes)
        ]
        workers = [ChildProcess(ProcessRole.WORKER, config, tree, stopping, killing, limits) for _ in range(settings.work.processes)]
        tree.children = [*web, *workers]
        keeping = asyncio.create_task(keep_stores(settings, home_of(settings)), name="stores")
        try:
            codes = await asyncio.gather(*(child.keep_alive() for child in tree.children))
        finally:
            await end_tasks(keeping)
    return next((code for code in codes if code), 0)


@dataclass(slots=True)
class ProcessTree:
    """All children of this parent, and the restarts that none of them has been told yet."""

    pulse: Pulse
    """The parent's own beat, for systemd: it is given READY when every child works."""
    children: list[ChildProcess] = field(default_factory=list)
    untold: deque[ProcessRestart] = field(default_factory=lambda: deque(maxlen=MAX_UNTOLD))
    is_serving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first web process answers requests."""

    def note_beat(self, link: ChildLink) -> None:
        """Called with each child's beat: tell that child what there is to tell, and say that everything works once it does.

        Another child may be stopped without having been noticed yet; what it is told dies with it."""
        if not self.is_serving.is_set() and any(
            child.role is ProcessRole.SERVE and child.link.process_id is not None for child in self.children
        ):
            self.is_serving.set()
        if not self.pulse.is_open and all(child.link.process_id is not None for child in self.children):
            self.pulse.open(None)
        while link.process_id is not None and self.untold:
            link.tell(restart_news(self.untold.popleft()))


@dataclass(slots=True)
class ChildLink:
    """The parent's end of the socket to one child: when the child gave its beat, and what it said."""

    process_id: UUID | None = None
    """None until the child has started, and after it ended."""
    beats: int = 0
    is_silent: bool = False
    writer: asyncio.StreamWriter | None = None

    async def follow(self, end: socket.socket, tree: ProcessTree) -> None:
        """Read beats until the child closes its end."""
        reader, self.writer = await asyncio.open_unix_connection(sock=end)
        try:
            while line := await reader.readline():
                state = json.loads(line)
                self.beats, self.is_silent = self.beats + 1, state["silent"]
                self.process_id = None if state["id"] is None else UUID(state["id"])
                tree.note_beat(self)
        except ConnectionError:
            return
        finally:
            self.writer.close()

    def tell(self, news: Mapping[str, object]) -> None:
        """Send news to the child. It may die before it records them: then they are only in the log."""
        if self.writer is not None and not self.writer.is_closing():
            self.writer.write(f"{json.dumps(news)}\n".encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildLimits:
    """How long the parent waits for a child."""

    replace_after_s: float
    """Without a beat."""
    stop_timeout_s: float
    """From SIGTERM to SIGKILL; another worker then takes the child's turns over."""
    max_start_s: float = MAX_START_S


@dataclass(slots=True)
class RestartPolicy:
    """Says how long to wait before a child is started again: longer with each failure in a row, and long in a crash loop."""

    failures: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_RESTARTS))
    is_crash_loop: bool = False

    def note(self, ran_s: float, now: float) -> float:
        """Note that a child ended after `ran_s`; return how many seconds to wait."""
        self.failures = 1 if ran_s > STEADY_S else self.failures + 1
        self.times.append(now)
        self.is_crash_loop = self.restarts(now) >= MAX_RESTARTS
        return CRASH_LOOP_PAUSE_S if self.is_crash_loop else min(0.5 * 2 ** (self.failures - 1), MAX_PAUSE_S)

    def restarts(self, now: float) -> int:
        """How many restarts there were within the window; MAX_RESTARTS also stands for more."""
        return sum(now - at <= RESTART_WINDOW_S for at in self.times)


@dataclass(slots=True)
class ChildProcess:
    """One child process. The parent starts it again when it dies, stalls or is silent."""

    role: ProcessRole
    config: Path | None
    tree: ProcessTree
    stopping: asyncio.Event
    killing: asyncio.Event
    limits: ChildLimits
    fds: tuple[int, ...] = ()
    """The listening sockets that a web process inherits."""
    is_further: bool = False
    """Whether this is a web process beside the first one."""
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    link: ChildLink = field(default_factory=ChildLink)
    pid: int = 0
    has_worked: bool = False
    """Whether a child of this place has ever started."""

    async def keep_alive(self) -> int:
        """Run the child until everything stops. Bad settings at the first start stop everything: a restart would not help. Later the other
        children still work with the settings that they have read, and go on."""
        if self.is_further:
            await self._wait_for_first()
        while not self.stopping.is_set():
            began = time.monotonic()
            code, reason = await self._run_once()
            if self.stopping.is_set():
                return 0
            self.has_worked = self.has_worked or self.link.process_id is not None
            if code == BAD_INPUT and reason is RestartReason.DIED and not self.has_worked:
                self.stopping.set()
                return code
            await self._sleep(self._note_restart(code, reason, began))
        return 0

    async def _wait_for_first(self) -> None:
        """Wait until the first web process answers, or everything stops."""
        events = [asyncio.create_task(event.wait()) for event in (self.tree.is_serving, self.stopping)]
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        await end_tasks(*events)

    def _note_restart(self, code: int, reason: RestartReason, began: float) -> float:
        """Log a child that ended, and have another child record it; return how many seconds to wait before the next start."""
        now, was_crash_loop = time.monotonic(), self.policy.is_crash_loop
        pause_s = self.policy.note(now - began, now)
        is_new_loop = self.policy.is_crash_loop and not was_crash_loop
        if reason is RestartReason.DIED:
            log.warning("process_died", role=self.role, pid=self.pid, code=code, restarts_in_s=pause_s)
        if is_new_loop:
            log.error("process_crash_loop", role=self.role, restarts=self.policy.restarts(now), restarts_in_s=pause_s)
        restart = ProcessRestart(
            process_id=self.link.process_id,
            role=self.role,
            host=host_name(),
            pid=self.pid,
            reason=reason,
            code=code,
            restarts=self.policy.restarts(now),
            is_crash_loop=is_new_loop,
        )
        self.link = ChildLink()
        self.tree.untold.append(restart)
        return pause_s

    async def _run_once(self) -> tuple[int, RestartReason]:
        """Run the child until it ends, or has to be ended; return its exit code, and why it ended."""
        options = ["--config", str(self.config)] if self.config else []
        options += ["--listen-fds", ",".join(map(str, self.fds))] if self.fds else []
        options += ["--further"] if self.is_further else []
        command = [sys.executable, "-m", "hermes", self.role, "--with-parent", *options]
        own, other = socket.socketpair()
        self.link = ChildLink()
        with other:
            # A session of its own: Ctrl-C in the terminal reaches only the parent, which then stops the children.
            process = await asyncio.create_subprocess_exec(*command, stdin=other.fileno(), pass_fds=self.fds, start_new_session=True)
        self.pid = process.pid
        following = asyncio.create_task(self.link.follow(own, self.tree))
        died = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self.stopping.wait())
        watching = asyncio.create_task(self._watch())
        await asyncio.wait({died, stopped, watching}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        reason = watching.result() if watching.done() and not died.done() else RestartReason.DIED
        if reason is not RestartReason.DIED:
            log.warning("process_replaced", role=self.role, pid=self.pid, reason=reason)
        if reason is RestartReason.STALLED:
            process.kill()  # a stopped process gets no SIGTERM, and a blocked one does not act on it
        elif not died.done():
            process.terminate()
            killed = asyncio.create_task(self.killing.wait())
            await asyncio.wait({died, killed}, timeout=self.limits.stop_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if not died.done():
                log.warning("process_killed", role=self.role, pid=process.pid)
                process.kill()
        code = await died
        await end_tasks(watching, following)
        return code, reason

    async def _watch(self) -> RestartReason:
        """Wait until the child gives no beat for too long, or says that it is silent.

        Counts looks, not seconds: after a pause of the whole machine, the child has as much time as before."""
        look_s = min(1.0, self.limits.replace_after_s / 5)
        beats, missed = 0, 0
        while not self.link.is_silent:
            await asyncio.sleep(look_s)
            missed = 0 if self.link.beats > beats else missed + 1
            beats = self.link.beats
            if missed * look_s >= (self.limits.replace_after_s if beats else self.limits.max_start_s):
                return RestartReason.STALLED
        return RestartReason.SILENT

    async def _sleep(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self.stopping.wait()
        except TimeoutError:
            return
