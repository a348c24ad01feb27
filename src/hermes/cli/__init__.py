"""The command `hermes`. If an extra is missing, it says which one to install."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
import threading
from typing import NoReturn

try:
    from typer.main import get_command

    from hermes.cli.command_table import COMMAND_MODULES, build_app, typed_words
    from hermes.cli.quick_parameters import quicken
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] == "hermes":  # a bug, and not a missing extra
        raise
    MISSING_PACKAGE: str | None = error.name
else:
    MISSING_PACKAGE = None

__all__ = ["COMMAND_MODULES", "build_app", "main"]


def main() -> None:
    """Run the command line; exit code 2 for bad input."""
    if MISSING_PACKAGE is not None:
        _fail(f"the command line needs {MISSING_PACKAGE}; install it: pip install 'hermes-graph[cli]'")
    # Modules live until the end. To search them for garbage while they load is a tenth of the time that a short command takes.
    gc.disable()
    command = get_command(build_app(typed_words(sys.argv[1:], os.environ)))
    quicken(command)
    gc.freeze()
    gc.enable()
    # `hermes graph FILE | head` ends without an error, as cat does. Python alone would exit with code 1: the graph was altered.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show emojis still shows the rest
    try:
        command()
    except OSError as error:  # commands handle errors of their own files, so this one is from standard output: a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python writes again when it exits, and prints an error
        _fail(f"cannot write the output: {error.strerror}")
    except SystemExit as ended:
        leave_at_once(ended)
        raise


def leave_at_once(ended: SystemExit) -> None:
    """End the process without taking its modules apart, which is a tenth of the time that a short command takes. Returns if it has to be
    ended in the usual way: threads still work, or the output cannot be written."""
    if threading.active_count() > 1 or not isinstance(ended.code, int | None):
        return
    atexit._run_exitfuncs()  # what `os._exit` leaves out
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(ended.code or 0)


def _fail(message: str) -> NoReturn:
    # print: without the extra there is no rich console
    print(f"hermes: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
