"""The command `hermes`. Works without its extra just far enough to say which extra it needs."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

app: Callable[[], None] | None = None
missing: str | None = None
try:
    from hermes.cli.commands import app
    from hermes.cli.stand_in import stand_in
except ModuleNotFoundError as error:
    missing = error.name
    if missing is None or missing.split(".")[0] == "hermes":
        raise
else:
    try:
        import hermes.cli.trajectories  # its commands register themselves
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "hermes":
            raise
        stand_in(("export", "verify", "import"), "export", error.name)
    try:
        import hermes.cli.keys
        import hermes.cli.service  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "hermes":
            raise
        stand_in(("up", "serve", "worker", "doctor", "keys"), "serve", error.name)


def main() -> None:
    """Run the command line; exit code 2 for bad input."""
    if app is None:
        _fail(f"the command line needs {missing}; install it: pip install 'hermes-graph[cli]'")
    # `hermes graph FILE | head` ends as cat does; Python's own answer is code 1, which says that the graph was altered.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without emojis still gets the rest
    try:
        app()
    except OSError as error:  # the commands answer for the files they are given, so this is standard output: a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python tries once more at its end, and complains
        _fail(f"cannot write the output: {error.strerror}")


def _fail(message: str) -> NoReturn:
    # print: there is no console without the extra
    print(f"hermes: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
