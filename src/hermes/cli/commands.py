"""The commands of `hermes`, thin: read the arguments, call the library, show what came out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from hermes import __version__
from hermes.demo import play
from hermes.graph import GraphError, MessageGraph
from hermes.picture import picture

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
    wait = (sys.stdin.isatty() and console.is_terminal) if is_paced is None else is_paced

    def pause() -> None:
        if wait:
            console.input("[dim]Enter to go on…[/]")

    try:
        chat = play(console, pause)
    except (KeyboardInterrupt, EOFError):
        console.print("\n[dim]Until next time.[/]")
        raise typer.Exit from None
    if save is not None:
        try:
            save.write_text(chat.to_json(), encoding="utf-8")
        except OSError as error:
            _fail(f"cannot write {save}: {error.strerror}")
        console.print(f"\nSaved. Look at it again: hermes graph {save}", soft_wrap=True)


@app.command()
def graph(
    file: Annotated[Path, typer.Argument(help="A graph as MessageGraph.to_json() wrote it; - reads standard input.")],
    *,
    is_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid source instead, for a document.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print counts and verification as JSON instead.")] = False,
) -> None:
    """Draw a saved graph with its versions, and say whether its ids hold.

    Exit code 0 when every id holds, 1 when the graph was altered, 2 when the file is not a graph."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        chat = MessageGraph.from_json(text)
    except OSError as error:
        _fail(f"cannot read {file}: {error.strerror}")
    except UnicodeDecodeError:
        _fail(f"{file} is not a message graph: not UTF-8 text")
    except GraphError as error:
        _fail(f"{file} is not a message graph: {error}")
    report = chat.verify()
    console = Console()
    if is_json:
        summary = {"messages": len(chat), "versions": len(chat.versions), "responses": report.responses, "status": report.status}
        typer.echo(json.dumps({**summary, "redacted": report.redacted, "problems": report.problems}))
    elif is_mermaid:
        typer.echo(chat.to_mermaid(), nl=False)
    else:
        console.print(picture(chat, str(file)))
        console.print(f"verify: [bold]{report.status}[/]")
    for problem in report.problems:
        Console(stderr=True).print(f"hermes: {problem}", style="red", markup=False, soft_wrap=True)
    if not report:
        raise typer.Exit(1)


def _fail(message: str) -> NoReturn:
    """Say in one line what is wrong, and leave with the code for bad input."""
    typer.echo(f"hermes: {message}", err=True)
    raise typer.Exit(2)
