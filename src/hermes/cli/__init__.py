"""The command `hermes`. If an extra is missing, it says which one to install."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import NoReturn

try:
    from hermes.cli.command_table import COMMAND_MODULES, build_app, typed_words
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
    app = build_app(typed_words(sys.argv[1:], os.environ))
    # `hermes graph FILE | head` ends without an error, as cat does. Python alone would exit with code 1: the graph was altered.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show emojis still shows the rest
    try:
        app()
    except OSError as error:  # commands handle errors of their own files, so this one is from standard output: a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python writes again when it exits, and prints an error
        _fail(f"cannot write the output: {error.strerror}")


def _fail(message: str) -> NoReturn:
    # print: without the extra there is no rich console
    print(f"hermes: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
