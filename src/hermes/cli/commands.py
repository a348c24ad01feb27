"""The commands of `hermes`, thin: read the arguments, call the library, show what came out."""

from __future__ import annotations

import errno
import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from hermes import __version__
from hermes.demo import play
from hermes.graph import GraphError, MessageGraph
from hermes.picture import one_line, picture

app = typer.Typer(
    name="hermes",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Hermes routes messages, remembers exactly what every model saw, and hands you on-policy training data from it.",
)


def _version(is_wanted: bool) -> None:  # noqa: FBT001  # the shape that typer's callbacks have
    if is_wanted:
        typer.echo(f"hermes {__version__}")
        raise typer.Exit


@app.callback()
def options(
    *, version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")] = False
) -> None:
    """Hold the options that stand before any command."""


@app.command()
def demo(
    *,
    is_paced: Annotated[
        bool | None, typer.Option("--pause/--no-pause", help="Wait for Enter between scenes.", show_default="in a terminal")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the demo's graph here, to look at it with: hermes graph FILE")] = None,
) -> None:
    """Play a guided tour of the message graph: a chat, an edit, a squish, a subagent, the picture."""
    console = Console()
    is_watched = sys.stdin is not None and sys.stdin.isatty() and console.is_terminal
    wait = is_watched if is_paced is None else is_paced

    def pause() -> None:
        if wait:
            console.input("[dim]Enter to go on…[/]")

    try:
        chat = play(console, pause)
    except (KeyboardInterrupt, EOFError):
        console.print("\n[dim]Until next time.[/]")
        if save is not None:
            _fail(f"the tour ended early; nothing was written to {save}")
        raise typer.Exit from None
    if save is not None:
        try:
            save.write_text(chat.to_json(), encoding="utf-8")
        except OSError as error:
            _fail(f"cannot write {save}: {error.strerror}")
        typer.echo(f"\nSaved. Look at it again: hermes graph {shlex.quote(str(save))}")


@app.command()
def graph(
    file: Annotated[Path, typer.Argument(help="A graph as MessageGraph.to_json() wrote it; - reads standard input.")],
    *,
    is_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid source instead, for a document.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print counts and verification as JSON instead.")] = False,
) -> None:
    """Draw a saved graph with its versions, and say whether its ids hold.

    Exit code 0 when every id holds, 1 when the graph was altered, 2 when the file is not a graph."""
    if is_mermaid and is_json:
        _fail("--mermaid and --json are two answers; ask for one")
    name = "standard input" if str(file) == "-" else str(file)
    try:
        chat = MessageGraph.from_json(_read(file).decode("utf-8-sig"))  # some editors put a mark in front
    except OSError as error:
        _fail(f"cannot read {name}: {error.strerror}")
    except UnicodeDecodeError:
        _fail(f"{name} is not a message graph: not UTF-8 text")
    except GraphError as error:
        _fail(f"{name} is not a message graph: {error}")
    report = chat.verify()
    if is_json:
        responses = sum(1 for _ in chat.responses())
        summary = {"messages": len(chat), "versions": len(chat.versions), "responses": responses, "status": report.status}
        typer.echo(json.dumps({**summary, "redacted": report.redacted, "problems": report.problems}))
    elif is_mermaid:
        typer.echo(chat.to_mermaid(), nl=False)
    else:
        console = Console()
        console.print(picture(chat, name))
        console.print(f"verify: [bold]{report.status}[/]")
    for problem in report.problems:
        _complain(problem)
    if not report:
        raise typer.Exit(1)


def _read(file: Path) -> bytes:
    """Return what is in a file. Bytes: the text of standard input is decoded in ways that the locale decides."""
    if str(file) != "-":
        return file.read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()


def _fail(message: str) -> NoReturn:
    """Say in one line what is wrong, and leave with the code for bad input."""
    _complain(message)
    raise typer.Exit(2)


def _complain(message: str) -> None:
    typer.secho(f"hermes: {one_line(message)}", fg="red", err=True)
