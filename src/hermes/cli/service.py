"""The commands `serve` and `worker`: the parts of a running Hermes. up.py runs everything."""

from __future__ import annotations

import getpass
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import structlog
import typer

from hermes.app.catalogue import replaced_backends, stand_in_notice
from hermes.app.console_access import desk_from
from hermes.app.home import example_url, home_of
from hermes.app.processes import TakeNews
from hermes.app.root import Hermes, OpenTracer, open_hermes
from hermes.app.router import OpenTools
from hermes.app.watching import watch_over
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.listeners import WebListeners, inherit_web_listeners, note_metrics_port, open_metrics_listener, open_web_listeners
from hermes.cli.model_check import require_model
from hermes.cli.options import Config
from hermes.cli.runtime import run, run_until_signal, settings_from, start_log, tools_opener, tracer_opener
from hermes.cli.supervisor import GRACE_S
from hermes.config import Environment, Settings
from hermes.console.sign_in import link_address
from hermes.ops.event_loop import collect_and_freeze, watch_event_loop
from hermes.ops.metrics import join_siblings
from hermes.ops.pulse import ParentLink, Pulse, sinks_from
from hermes.ports.errors import PortError
from hermes.ports.processes import ProcessRole
from hermes.web import KnownHosts, open_server, operator_app, raise_file_limit, serve_until_cancelled

log = structlog.get_logger()

WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True)]
ListenFds = Annotated[str | None, typer.Option("--listen-fds", hidden=True)]
IsFurther = Annotated[bool, typer.Option("--further", hidden=True)]
BeatFile = Annotated[
    Path | None,
    typer.Option(
        "--beat-file",
        metavar="FILE",
        help="Touch this file while the event loop runs; `hermes health --beat-file FILE` is then the probe of a container.",
        show_default=False,
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65_535, help="Show metrics on a port of its own, without a token; 0 takes a free one."),
]
MetricsHost = Annotated[str | None, typer.Option("--metrics-host", help="The address for --metrics-port; 127.0.0.1 if left out.")]

WORKER_NICENESS = 5
"""The niceness of a worker: on a shared machine the web process goes first. Accepting a message is urgent; its answer can wait a moment."""


@app.command()
def serve(
    context: typer.Context,
    *,
    beat_file: BeatFile = None,
    config: Config = None,
    with_parent: WithParent = False,
    listen_fds: ListenFds = None,
    further: IsFurther = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Answer HTTP: webhooks, the API, the chat page, /health, /ready and /metrics. Messages also need a `hermes worker`.

    /metrics shows this process and all others of this HERMES_HOME. --metrics-port shows it, /docs and /openapi.json without a token; the
    setting `web.metrics_port` does the same."""
    settings = settings_from(config)
    require_model(settings)
    start_log(settings)
    watch = watch_parent(settings, is_child=with_parent, beat_file=beat_file)
    listeners = inherit_web_listeners(listen_fds) if listen_fds else open_web_listeners(settings, metrics_host, metrics_port)
    raise_file_limit(settings.web.max_connections)
    opening = ProcessOpening(settings, tools_opener(context, settings), tracer_opener(context, settings), watch)
    run(run_until_signal(_serve(opening, listeners, is_first=not further)))


@app.command()
def worker(
    context: typer.Context,
    *,
    beat_file: BeatFile = None,
    config: Config = None,
    with_parent: WithParent = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
) -> None:
    """Answer messages. Run as many workers as you like, on any number of machines.

    On SIGTERM a worker finishes its running turns. SIGKILL loses nothing either: another worker takes over.

    Its metrics are on the /metrics page of each `hermes serve` with the same HERMES_HOME. --metrics-port is for a machine without one: it
    shows the numbers of this worker alone, and /health for the probe of a container."""
    settings = settings_from(config)
    require_model(settings)
    start_log(settings)
    watch = watch_parent(settings, is_child=with_parent, beat_file=beat_file)
    lower_priority(WORKER_NICENESS)
    metrics_listener = open_metrics_listener(metrics_host or settings.web.metrics_host, metrics_port)
    opening = ProcessOpening(settings, tools_opener(context, settings), tracer_opener(context, settings), watch)
    run(run_until_signal(_work(opening, metrics_listener)))


@dataclass(frozen=True, slots=True)
class ProcessWatch:
    """What watches this process, and what the parent says about other processes."""

    pulse: Pulse
    take_news: TakeNews


def watch_parent(settings: Settings, *, is_child: bool, beat_file: Path | None) -> ProcessWatch:
    """Return what this process gives its beat to. A child of `hermes up` stops when its parent ends, from now on."""
    parent = ParentLink(kill_after_s=settings.work.drain_s + GRACE_S) if is_child else None
    if parent is not None:
        parent.start()
    return ProcessWatch(Pulse(sinks_from(os.environ, parent=parent, beat_file=beat_file)), parent.take_news if parent else tuple)


@dataclass(frozen=True, slots=True)
class ProcessOpening:
    """What a process of its own is opened with."""

    settings: Settings
    open_tools: OpenTools
    open_tracer: OpenTracer
    watch: ProcessWatch


@asynccontextmanager
async def open_process(opening: ProcessOpening, role: ProcessRole) -> AsyncIterator[Hermes]:
    """Open Hermes in a process of its own. It gives its beat from the beginning; its caller calls `watch.pulse.open` when it works."""
    settings, watch = opening.settings, opening.watch
    async with (
        watch.pulse.beating(),
        open_hermes(settings, open_tools=opening.open_tools, open_tracer=opening.open_tracer) as hermes,
        watch_event_loop(hermes.adapters.alerts, hermes.metrics, blocked_after_s=settings.loop.blocked_after_s) as loop_watch,
        hermes.process.following(watch.take_news),
        watch_over(hermes, does_chore=role is ProcessRole.SERVE),
        join_siblings(hermes.metrics, home_of(settings), role),
    ):
        hermes.activity.loop_lag_s = loop_watch.worst_lag_s
        yield hermes


async def _serve(opening: ProcessOpening, listeners: WebListeners, *, is_first: bool = True) -> None:
    """Answer requests. The first web process of `hermes up` tells the operator where Hermes is; the further ones say nothing."""
    settings, watch = opening.settings, opening.watch
    async with open_process(opening, ProcessRole.SERVE) as hermes, hermes.process.beating(ProcessRole.SERVE):
        host, port = listeners.web.getsockname()[:2]
        url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
        console_link = await make_console_link(hermes, port) if is_first else None

        def ready() -> None:
            collect_and_freeze()
            watch.pulse.open(hermes.process_id)
            log.info("web_ready", url=url)
            if not is_first:
                return
            note_metrics_port(listeners.operator)
            typer.secho(f"Hermes is ready: {url}  (Ctrl-C stops it)", bold=True)
            if console_link is not None:
                typer.echo(f"Console: {console_link}")
            for name, reason in replaced_backends(settings).items():
                typer.echo(f"{name}: {reason}; {stand_in_notice(settings)}")

        await serve_until_cancelled(hermes, listeners.web, ready, operator_listener=listeners.operator)


async def make_console_link(hermes: Hermes, port: int) -> str | None:
    """Return a link into the console for the person at this terminal. None if the output is no terminal, and in production: there a link is
    made on purpose, with `hermes console link`."""
    settings = hermes.settings
    is_shown = settings.console.enabled and settings.environment is Environment.DEVELOPMENT and sys.stdout.isatty()
    if not is_shown:
        return None
    desk = desk_from(settings, hermes.database)
    try:
        operator = await desk.sign_in.make_first_owner(getpass.getuser())
        secret = await desk.make_link(command_actor(), operator.name)
    except (KeyError, OSError, PortError) as error:  # no name for this person, or they are disabled: Hermes runs all the same
        log.warning("console_link_not_made", error=type(error).__name__)
        return None
    return link_address(example_url(replace(settings.web, port=port)), secret)


async def _work(opening: ProcessOpening, metrics_listener: socket.socket | None = None) -> None:
    settings, watch = opening.settings, opening.watch
    async with open_process(opening, ProcessRole.WORKER) as hermes, AsyncExitStack() as stack:
        if metrics_listener is not None:
            metrics_app = operator_app(hermes.metrics.own_exposition, KnownHosts.of(settings.web))
            await stack.enter_async_context(open_server(metrics_app, metrics_listener, settings.web))
            note_metrics_port(metrics_listener)
        collect_and_freeze()
        watch.pulse.open(hermes.process_id, lambda: hermes.activity.is_silent)
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
