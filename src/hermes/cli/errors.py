"""How commands end: one line that says what is wrong and what to do, and the exit code that goes with it."""

from __future__ import annotations

from typing import NoReturn

import typer

from hermes.terminal import one_line

BAD_INPUT = 2


def fail(message: str) -> NoReturn:
    """Say in one line what is wrong, and leave with the code for bad input."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def complain(message: str) -> None:
    """Say one thing on standard error, on one line whatever it holds."""
    typer.secho(f"hermes: {one_line(message)}", fg="red", err=True)
