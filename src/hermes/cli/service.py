"""The commands that run Hermes: `up` for everything, `serve` and `worker` for its parts."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
import typer

from hermes.app.catalogue import replaced_backends, stand_in_notice
from hermes.app.home import home_of
from hermes.app.root import open_hermes
from hermes.app.router import OpenTools
from hermes.app.stores import open_stores
from hermes.cli.commands import app
from hermes.cli.options import Config
from hermes.cli.output import BAD_INPUT, fail
from hermes.cli.runtime import end_with_parent, run, run_until_signal, settings_from, start_log, tools_opener
from hermes.config import Settings
from hermes.ops.event_loop import collect_and_freeze, watch_event_loop
from hermes.web import serve_until_cancelled

log = structlog.get_logger()

WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True)]

WORKER_NICENESS = 5
"""The niceness of a worker: on a shared machine the web process goes first. Accepting a message is urgent; its answer can wait a moment."""


@app.command()
def up(*, config: Config = None) -> None:
    """Run everything: stores, web and workers, in one process tree. Ctrl-C stops it; no acknowledged message is lost.

    Without any setting, Hermes starts PostgreSQL and Valkey in HERMES_HOME, and serves the chat page at `web.port` of the settings (8080
    if they name none). `hermes setup` makes the settings."""
    settings = settings_from(config)
    start_log(settings)
    code = run(supervise(settings, config))
    if code:
        raise typer.Exit(code)


@app.command()
def serve(context: typer.Context, *, config: Config = None, with_parent: WithParent = False) -> None:
    """Answer HTTP: webhooks, the API, the chat page, /health, /ready and /metrics. Messages also need a `hermes worker`."""
    settings = settings_from(config)
    start_log(settings)
    if with_parent:
        end_with_parent()
    run(run_until_signal(_serve(settings, open_listener(settings), tools_opener(context, settings))))


@app.command()
def worker(context: typer.Context, *, config: Config = None, with_parent: WithParent = False) -> None:
    """Answer messages. Run as many workers as you like, on any number of machines.

    On SIGTERM a worker finishes its running turns. SIGKILL loses nothing either: another worker takes over."""
    settings = settings_from(config)
    start_log(settings)
    if with_parent:
        end_with_parent()
    lower_priority(WORKER_NICENESS)
    run(run_until_signal(_work(settings, tools_opener(context, settings))))


async def _serve(settings: Settings, listener: socket.socket, open_tools: OpenTools) -> None:
    async with (
        open_hermes(settings, open_tools=open_tools) as hermes,
        watch_event_loop(hermes.adapters.alerts, hermes.metrics, blocked_after_s=settings.loop.blocked_after_s),
    ):
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

        def ready() -> None:
            collect_and_freeze()
            log.info("web_ready", url=url)
            typer.secho(f"Hermes is ready: {url}  (Ctrl-C stops it)", bold=True)
            for name, reason in replaced_backends(settings).items():
                typer.echo(f"{name}: {reason}; {stand_in_notice(settings)}")

        await serve_until_cancelled(hermes, listener, ready)


async def _work(settings: Settings, open_tools: OpenTools) -> None:
    async with (
        open_hermes(settings, open_tools=open_tools) as hermes,
        watch_event_loop(hermes.adapters.alerts, hermes.metrics, blocked_after_s=settings.loop.blocked_after_s),
    ):
        collect_and_freeze()
        log.info("worker_ready", concurrency=settings.work.concurrency)
        try:
            await hermes.run_worker()
        finally:
            log.info("worker_drained")


def lower_priority(by: int) -> None:
    """Let other processes of this machine go first."""
    os.nice(by)
    if os.getsid(0) == os.getpid():  # with autogroup, Linux uses niceness only within a session
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(by), encoding="ascii")


def open_listener(settings: Settings) -> socket.socket:
    """Open the port before anything else starts: a taken port is the most likely fault, and the operator sees it at once."""
    host, port = settings.web.host, settings.web.port
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    except OSError as error:
        fail(f"cannot listen on {host}:{port}: {os_error_text(error)}; choose another port with HERMES_WEB_PORT")
    listener.setblocking(False)  # noqa: FBT003  # its signature
    return listener


def os_error_text(error: OSError) -> str:
    """Return the system's text for an error; the error's own `strerror` is longer here than a person needs."""
    return os.strerror(error.errno) if error.errno else str(error)


# --- hermes up: the stores, one web process, and workers, kept alive together
#
# The parent holds the stores, so a restart of a child never stops them. Children end when the parent ends, even if it is killed: each child
# watches a pipe that the parent holds.


STEADY_S = 10.0
"""After a child ran this long, its next failure counts as the first."""
MAX_PAUSE_S = 10.0
GRACE_S = 5.0
"""How much longer than `work.drain_s` a child may take to stop."""


async def supervise(settings: Settings, config: Path | None) -> int:
    """Run all processes until a signal stops them; return the exit code."""
    roles = ["serve", *(["worker"] * settings.work.processes)]
    stopping, killing = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (killing if stopping.is_set() else stopping).set()  # a second signal kills the children

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with open_stores(settings, home_of(settings)):
        children = [ChildProcess(role, config, stopping, killing, settings.work.drain_s + GRACE_S) for role in roles]
        codes = await asyncio.gather(*(child.keep_alive() for child in children))
    return next((code for code in codes if code), 0)


@dataclass(slots=True)
class ChildProcess:
    """One child process. The parent starts it again when it dies."""

    role: str
    config: Path | None
    stopping: asyncio.Event
    killing: asyncio.Event
    stop_timeout_s: float
    """How long the child may take to stop; then the parent kills it, and another worker takes its turns over."""

    async def keep_alive(self) -> int:
        """Run the child until everything stops. Bad settings stop everything: a restart would not help."""
        failures = 0
        while not self.stopping.is_set():
            began = time.monotonic()
            code = await self._run_once()
            if self.stopping.is_set():
                return 0
            if code == BAD_INPUT:
                self.stopping.set()
                return code
            failures = 1 if time.monotonic() - began > STEADY_S else failures + 1
            pause_s = min(0.5 * 2 ** (failures - 1), MAX_PAUSE_S)
            log.warning("process_died", role=self.role, code=code, restarts_in_s=pause_s)
            await self._sleep(pause_s)
        return 0

    async def _run_once(self) -> int:
        options = ["--config", str(self.config)] if self.config else []
        command = [sys.executable, "-m", "hermes", self.role, "--with-parent", *options]
        # A session of its own: Ctrl-C in the terminal reaches only the parent, which then stops the children.
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, start_new_session=True)
        died = asyncio.create_task(process.wait())
        stopped = asyncio.create_task(self.stopping.wait())
        await asyncio.wait({died, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not died.done():
            process.terminate()
            killed = asyncio.create_task(self.killing.wait())
            await asyncio.wait({died, killed}, timeout=self.stop_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            killed.cancel()
            if not died.done():
                log.warning("process_killed", role=self.role, pid=process.pid)
                process.kill()
        return await died

    async def _sleep(self, pause_s: float) -> None:
        try:
            async with asyncio.timeout(pause_s):
                await self.stopping.wait()
        except TimeoutError:
            return
