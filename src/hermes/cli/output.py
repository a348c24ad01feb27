"""How a command prints: tables for people, JSON for programs, and errors as one line on standard error with an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hermes.terminal import one_line, show_safely

BAD_INPUT, CANNOT_RUN = 2, 1
PIPE_WIDTH = 100_000
"""The width of the output if it is not a terminal: a program that reads a table gets every cell whole."""

Cell = str | Text
"""A text is shown as it is, without markup; `Text` has a colour."""


def fail(message: str) -> NoReturn:
    """Print in one line what is wrong, and exit with the code for bad input."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def complain(message: str) -> None:
    """Print a message on standard error, always on one line."""
    typer.secho(f"hermes: {one_line(message)}", fg="red", err=True)


def missing_package(error: ModuleNotFoundError) -> str:
    """Return the name of the missing package. Raises the error again if the missing module is one of Hermes' own: that is a bug."""
    if error.name is None or error.name.split(".")[0] == "hermes":
        raise error
    return error.name


def print_json(value: object) -> None:
    """Print a value as one line of JSON: readable if standard output can hold it, else with escapes for all that is not ASCII."""
    text = json.dumps(value, ensure_ascii=sys.stdout.encoding.lower() not in {"utf-8", "utf8"})
    typer.echo(text if is_encodable(text) else json.dumps(value))


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can hold the text: a model can write half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def print_result(value: object, sentence: str, *, is_json: bool) -> None:
    """Print what a command did: a sentence for people, or a value as JSON."""
    if is_json:
        print_json(value)
    else:
        typer.echo(sentence)


def print_table(names: Iterable[str], rows: Iterable[Iterable[Cell]]) -> None:
    """Print rows under the names of their columns."""
    _print_rows(Table(*names, box=None, pad_edge=False), rows)


def print_properties(rows: Iterable[tuple[str, Cell]], title: str | None = None) -> None:
    """Print names and values, one a line; under a title, indented."""
    if title is None:
        table = Table(box=None, pad_edge=False, show_header=False)
    else:
        table = Table(title=Text(show_safely(title)), title_justify="left", box=None, padding=(0, 2), show_header=False)
    _print_rows(table, rows)


def output_console() -> Console:
    """Return the console for standard output: as wide as the terminal, and without a limit in a pipe or a file."""
    return Console(width=None if sys.stdout is not None and sys.stdout.isatty() else PIPE_WIDTH)


def _print_rows(table: Table, rows: Iterable[Iterable[Cell]]) -> None:
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(show_safely(cell)) for cell in row))
    output_console().print(table)


def storable_text(text: str) -> str:
    """Replace bytes that are not UTF-8, so that any text can be stored: in an emergency the command must not fail for an umlaut."""
    return text.encode("utf-8", "replace").decode()
