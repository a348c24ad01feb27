"""The command `hermes`. Loads only the module of the command that the user typed. If an extra is missing, it says which one to install."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from typing import Any, NamedTuple, NoReturn


class CommandModule(NamedTuple):
    """Commands that live in one module and need one extra."""

    module: str
    commands: tuple[str, ...]
    extra: str


BASE_MODULE = "hermes.cli.commands"
PACKS_MODULE = "hermes.cli.packs"
MISSING_EXTRA_MODULE = "hermes.cli.missing_extra"
COMMAND_MODULES = (
    CommandModule("hermes.cli.trajectories", ("export", "verify", "import"), "export"),
    CommandModule("hermes.cli.compress", ("compress",), "export"),
    CommandModule("hermes.cli.service", ("up", "serve", "worker", "doctor"), "serve"),
    CommandModule("hermes.cli.keys", ("keys",), "serve"),
    CommandModule("hermes.cli.local", ("local",), "cli"),
    CommandModule("hermes.cli.fleet", ("fleet",), "serve"),
    CommandModule("hermes.cli.chat", ("chat",), "serve"),
    CommandModule("hermes.cli.users", ("users",), "serve"),
    CommandModule("hermes.cli.kill_switch", ("kill-switch",), "serve"),
    CommandModule("hermes.cli.channels", ("channels",), "serve"),
    CommandModule("hermes.cli.platforms", ("platforms",), "serve"),
    CommandModule("hermes.cli.dead_letters", ("dead-letters",), "serve"),
    CommandModule("hermes.cli.batch", ("batch",), "serve"),
)


def main() -> None:
    """Run the command line; exit code 2 for bad input."""
    try:
        app = build_app(sys.argv[1:])
    except ModuleNotFoundError as error:
        _fail(f"the command line needs {missing_package(error)}; install it: pip install 'hermes-graph[cli]'")
    # `hermes graph FILE | head` ends without an error, as cat does. Python alone would exit with code 1: the graph was altered.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show emojis still shows the rest
    try:
        app()
    except OSError as error:  # commands handle errors of their own files, so this one is from standard output: a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python writes again when it exits, and prints an error
        _fail(f"cannot write the output: {error.strerror}")


def build_app(arguments: list[str] | None = None) -> Any:
    """Return the command line with the command that these arguments name; with all commands if they name none, as for `--help`.

    Modules are loaded by name: importing the service takes a second, and drawing a graph does not need it."""
    typed = next((word for word in arguments or () if not word.startswith("-")), None)
    base = importlib.import_module(BASE_MODULE)
    if arguments and arguments[0] == "--version":
        return base.app
    known = {*base.COMMANDS, *(command for part in COMMAND_MODULES for command in part.commands)}
    if typed not in known and typed in add_pack_commands(base.app, arguments or []):
        return base.app
    for part in COMMAND_MODULES:
        if typed in known and typed not in part.commands:
            continue
        try:
            importlib.import_module(part.module)  # the module registers its commands
        except ModuleNotFoundError as error:
            importlib.import_module(MISSING_EXTRA_MODULE).register_missing(part.commands, part.extra, missing_package(error))
    return base.app


def add_pack_commands(app: Any, arguments: list[str]) -> set[str]:
    """Add the commands of the packs that are on; return their names. Without the extra `serve` there are none, as its own commands say."""
    try:
        names: set[str] = importlib.import_module(PACKS_MODULE).add_pack_commands(app, arguments)
    except ModuleNotFoundError as error:
        missing_package(error)
        return set()
    return names


def missing_package(error: ModuleNotFoundError) -> str:
    """Return the name of the missing package. Raises the error again if the missing module is one of Hermes' own: that is a bug."""
    if error.name is None or error.name.split(".")[0] == "hermes":
        raise error
    return error.name


def _fail(message: str) -> NoReturn:
    # print: without the extra there is no rich console
    print(f"hermes: {message}", file=sys.stderr)  # noqa: T201
    sys.exit(2)
