"""How commands end: one line that says what is wrong and what to do, and the exit code that goes with it."""

from __future__ import annotations

from typing import NoReturn

import typer

BAD_INPUT = 2


def fail(message: str) -> NoReturn:
    """Say in one line what is wrong, and leave with the code for bad input."""
    typer.echo(f"hermes: {message}", err=True)
    raise typer.Exit(BAD_INPUT)
