"""What the commands of the service share: the settings, the log, an event loop that ends well when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from hermes.app import Hermes, StartRefused, open_hermes
from hermes.cli.errors import complain, fail
from hermes.config import LogFormat, LogLevel, Settings, SettingsError, load
from hermes.ops import logs
from hermes.ports.errors import NotFound, PortError

try:
    import uvloop
except ModuleNotFoundError:  # Windows has none
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

T = TypeVar("T")

CANNOT_RUN = 1

Config = Annotated[
    Path | None, typer.Option("--config", help="Read the settings from this file instead of ./hermes.toml.", show_default=False)
]


def settings_from(config: Path | None) -> Settings:
    """Read the settings, or say every fault in a line of its own and leave with the code for bad input."""
    try:
        return load(os.environ, file=config)
    except SettingsError as error:
        *others, last = error.faults
        for fault in others:
            complain(fault)
        fail(last)


def start_log(settings: Settings) -> None:
    """Send log lines to standard error, in the form that the settings ask for."""
    chosen = settings.log.format
    if chosen is LogFormat.AUTO:
        chosen = LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON
    logs.configure("console" if chosen is LogFormat.CONSOLE else "json", settings.log.level.value, sys.stderr)


async def with_hermes(config: Path | None, act: Callable[[Hermes], Coroutine[Any, Any, T]]) -> T:
    """Do something with an open Hermes. The log is quiet: what went well, the command says itself."""
    settings = settings_from(config)
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.WARNING)))
    async with open_hermes(settings) as hermes:
        return await act(hermes)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end. A port that fails is one line and exit code 1."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a client that goes away is an error of its connection, and not our end
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main)
    except (NotFound, StartRefused) as error:  # nothing that trying again would mend
        fail(str(error))
    except (PortError, OSError) as error:
        complain(str(error))
        raise typer.Exit(CANNOT_RUN) from None


async def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run until it ends, or until SIGTERM or Ctrl-C; then cancel it, and wait for it to come to its end. A second signal does not wait."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main)

    def stop() -> None:
        if task.cancelling():
            os._exit(130)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def end_with_parent() -> None:
    """Stop as if told to when standard input ends: `hermes up` holds the other end, and may be killed without a word."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="hermes-parent-watch", daemon=True).start()
