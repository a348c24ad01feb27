"""The commands that run Hermes: `up` for everything, `serve` and `worker` for its parts, `doctor` to check it."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.markup import escape

from hermes.app import Health, examine, open_hermes
from hermes.app.models import replaced_backends, stand_in_notice
from hermes.cli.commands import app
from hermes.cli.errors import fail
from hermes.cli.runtime import CANNOT_RUN, Config, end_with_parent, run, run_until_signal, settings_from, start_log
from hermes.cli.supervisor import supervise
from hermes.config import Settings
from hermes.ops.event_loop import collect_and_freeze, watch_event_loop
from hermes.web import serve_until_cancelled

log = structlog.get_logger()

WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True)]

WORKER_NICENESS = 5
"""The niceness of a worker: on a shared machine the web process goes first. Accepting a message is urgent; its answer can wait a moment."""

MARKS = {Health.GOOD: "[green]✓[/]", Health.WARNING: "[yellow]![/]", Health.BAD: "[red]✗[/]"}


@app.command()
def up(*, config: Config = None) -> None:
    """Run everything: stores, web and workers, in one process tree. Ctrl-C stops it; no acknowledged message is lost.

    Without any setting, Hermes starts PostgreSQL and Valkey in HERMES_HOME, and serves the chat page at http://127.0.0.1:8080/."""
    settings = settings_from(config)
    start_log(settings)
    code = run(supervise(settings, config))
    if code:
        raise typer.Exit(code)


@app.command()
def serve(*, config: Config = None, with_parent: WithParent = False) -> None:
    """Answer HTTP: webhooks, the API, the chat page, /health, /ready and /metrics. Messages also need a `hermes worker`."""
    settings = settings_from(config)
    start_log(settings)
    if with_parent:
        end_with_parent()
    run(run_until_signal(_serve(settings, open_listener(settings))))


@app.command()
def worker(*, config: Config = None, with_parent: WithParent = False) -> None:
    """Answer messages. Run as many workers as you like, on any number of machines.

    On SIGTERM a worker finishes its running turns. SIGKILL loses nothing either: another worker takes over."""
    settings = settings_from(config)
    start_log(settings)
    if with_parent:
        end_with_parent()
    lower_priority(WORKER_NICENESS)
    run(run_until_signal(_work(settings)))


@app.command()
def doctor(*, config: Config = None, is_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Check every part of Hermes on this machine, and say what to do. Exit code 1 when something must be done."""
    settings = settings_from(config)

    async def collect() -> bool:
        console, findings = Console(), []
        async for finding in examine(settings):
            findings.append(finding)
            if not is_json:
                advice = f"\n    [dim]{escape(finding.advice)}[/]" if finding.advice else ""
                console.print(f" {MARKS[finding.health]} [bold]{finding.part:<11}[/] {escape(finding.says)}{advice}", highlight=False)
        if is_json:
            typer.echo(json.dumps([{"part": f.part, "health": f.health, "says": f.says, "advice": f.advice} for f in findings]))
        return all(finding.health is not Health.BAD for finding in findings)

    if not run(collect()):
        raise typer.Exit(CANNOT_RUN)


async def _serve(settings: Settings, listener: socket.socket) -> None:
    async with (
        open_hermes(settings) as hermes,
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


async def _work(settings: Settings) -> None:
    async with (
        open_hermes(settings) as hermes,
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
