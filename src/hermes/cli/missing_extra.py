"""Commands whose extra is not installed: the help lists them, and each one says what to install."""

from __future__ import annotations

import typer

from hermes.cli.commands import app
from hermes.cli.errors import fail

ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def register_missing(commands: tuple[str, ...], extra: str, missing: str) -> None:
    """Register the commands. Each one ignores its arguments and says in one line what to install."""

    def say(context: typer.Context) -> None:
        fail(f"{context.info_name} needs {missing}; install it: pip install 'hermes-graph[{extra}]'")

    for name in commands:
        app.command(name, context_settings=ANY_ARGUMENTS, help=f"(needs the extra {extra}: pip install 'hermes-graph[{extra}]')")(say)
