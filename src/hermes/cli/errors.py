"""How a command fails: one line on standard error that says what is wrong and what to do, and an exit code."""

from __future__ import annotations

from typing import NoReturn

import typer

from hermes.terminal import one_line

BAD_INPUT = 2


def fail(message: str) -> NoReturn:
    """Print in one line what is wrong, and exit with the code for bad input."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def complain(message: str) -> None:
    """Print a message on standard error, always on one line."""
    typer.secho(f"hermes: {one_line(message)}", fg="red", err=True)
