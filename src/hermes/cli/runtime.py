"""What the commands of the service share: reading the settings, the log, and an event loop that stops cleanly on a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from hermes.app.tables import SchemaBehind, Tables, open_tables, stored_account_names
from hermes.cli.commands import LazyParts, lazy_parts
from hermes.cli.output import CANNOT_RUN, complain, fail
from hermes.config import LogFormat, LogLevel, Settings, SettingsError, load
from hermes.event_log import FirstLine
from hermes.ports.errors import CopyRefused, NotFound, PortError, StartRefused
from hermes.ports.runtime import Transaction

if TYPE_CHECKING:
    from hermes.app.root import Hermes, OpenTracer
    from hermes.app.router import OpenTools

try:
    import uvloop
except ModuleNotFoundError:  # there is no uvloop for Windows
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

T = TypeVar("T")


def settings_from(config: Path | None) -> Settings:
    """Read the settings. If they are wrong, print each fault on its own line and exit with the code for bad input."""
    try:
        return load(os.environ, file=config)
    except SettingsError as error:
        *others, last = error.faults
        for fault in others:
            complain(fault)
        fail(last)


def complete_setting(known: Callable[[Settings], Iterable[str]], parameter: str = "config") -> Callable[[typer.Context, str], list[str]]:
    """Return a function that completes a word to names from the settings, whose file is in this parameter of the command.

    With wrong settings it finds none: a shell shows no errors."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        try:
            settings = load(os.environ, file=context.params.get(parameter))
            return [name for name in known(settings) if name.startswith(incomplete)]
        except (SettingsError, PortError):
            return []

    return complete


def find_models(settings: Settings) -> Collection[str]:
    """Return the names of the models. Loads the catalogue only now: most commands need none of it."""
    names: Collection[str] = lazy_parts().load_app("catalogue").models_of(settings)
    return names


def find_tiers(settings: Settings) -> Collection[str]:
    """Return the names of the tiers. Loads the catalogue only now: most commands need none of it."""
    names: Collection[str] = lazy_parts().load_app("catalogue").tiers_of(settings)
    return names


def find_model_names(settings: Settings) -> Collection[str]:
    """Return the names of the models, ours and the vendors'. Loads the catalogue only now."""
    names: Collection[str] = lazy_parts().load_app("catalogue").model_names_of(settings)
    return names


complete_models = complete_setting(find_models)
complete_tiers = complete_setting(find_tiers)
complete_accounts = complete_setting(stored_account_names)


def start_log(settings: Settings) -> None:
    """Send log lines to standard error, in the format that the settings name."""
    chosen = settings.log.format
    if chosen is LogFormat.AUTO:
        chosen = LogFormat.CONSOLE if sys.stderr.isatty() else LogFormat.JSON
    lazy_parts().load_logs().configure("console" if chosen is LogFormat.CONSOLE else "json", settings.log.level.value, sys.stderr)


def tools_opener(context: typer.Context, settings: Settings) -> OpenTools:
    """Return what opens the MCP servers of the settings, for a Hermes that answers messages. Loads the SDK only if there is a server."""
    parts: LazyParts = context.obj
    opener: OpenTools = parts.load_app("mcp_tools").open_mcp_tools if settings.mcp else parts.load_app("router").open_no_tools
    return opener


def tracer_opener(context: typer.Context, settings: Settings) -> OpenTracer:
    """Return what opens traces, for a Hermes that answers messages. Loads OpenTelemetry only if the settings switch traces on."""
    parts: LazyParts = context.obj
    opener: OpenTracer = parts.load_traces().open_traces if settings.traces.enabled else parts.load_app("root").open_no_tracer
    return opener


async def with_hermes(config: Path | None, act: Callable[[Hermes], Coroutine[Any, Any, T]]) -> T:
    """Open Hermes and call `act` with it. The log shows only warnings and errors: the command itself reports success.

    Loads the whole Hermes first, which takes a second or two: a command that only needs rows calls `with_tables`."""
    settings = quiet_settings(config)
    load = lazy_parts().load_app
    async with load("root").open_hermes(settings, open_tools=load("router").open_no_tools) as hermes:
        return await act(hermes)


async def in_transaction(config: Path | None, act: Callable[[Hermes, Transaction], Coroutine[Any, Any, T]]) -> T:
    """Open Hermes and call `act` in one transaction: all its changes are stored, or none."""

    async def whole(hermes: Hermes) -> T:
        async with hermes.database.begin() as tx:
            return await act(hermes, tx)

    return await with_hermes(config, whole)


async def with_tables(config: Path | None, act: Callable[[Tables], Coroutine[Any, Any, T]]) -> T:
    """Open the tables and call `act` with them. If the database is older than this version, open a whole Hermes before: it migrates.

    The log is loaded with its first line: such a command writes none, as a rule."""
    settings = settings_from(config)
    if "structlog" in sys.modules:  # the command's own modules use it
        start_quiet_log(settings)
    else:
        FirstLine.wait_with(lambda: start_quiet_log(settings))
    try:
        async with open_tables(settings) as tables:
            return await act(tables)
    except SchemaBehind:
        await with_hermes(config, do_nothing)
        async with open_tables(settings, is_checked=False) as tables:
            return await act(tables)


async def do_nothing(_: object) -> None:
    """For `with_hermes`: to have opened it is enough."""


async def read_tables(config: Path | None, act: Callable[[Tables, Transaction], Coroutine[Any, Any, T]]) -> T:
    """Open the tables and call `act` in one transaction."""

    async def whole(tables: Tables) -> T:
        async with tables.database.begin() as tx:
            return await act(tables, tx)

    return await with_tables(config, whole)


def quiet_settings(config: Path | None) -> Settings:
    """Read the settings, and let the log show only warnings and errors."""
    settings = settings_from(config)
    start_quiet_log(settings)
    return settings


def start_quiet_log(settings: Settings) -> None:
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.WARNING)))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end. If a port fails, print one line and exit with code 1; if something was not found, with code 2."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # if a client disconnects, its connection fails, and the process goes on
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(main)
    except (NotFound, StartRefused, CopyRefused) as error:  # a retry would not help
        fail(str(error))
    except (PortError, OSError) as error:
        complain(str(error))
        raise typer.Exit(CANNOT_RUN) from None


async def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine until it ends, or until SIGTERM or Ctrl-C. Then cancel it and wait for its end. A second signal exits at once."""
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
