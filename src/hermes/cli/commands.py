"""The command `hermes` itself, and the commands that need nothing but the library: demo, graph."""

from __future__ import annotations

import errno
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Protocol

import typer
from rich.console import Console

from hermes import __version__
from hermes.cli.output import complain, fail, output_console, print_json
from hermes.cli.tour import play_tour
from hermes.graph import GraphError, MessageGraph
from hermes.terminal import graph_tree
from hermes.trajectories.engines import ChunkEngine
from hermes.trajectories.source import ExportSource


class OpenStoredSessions(Protocol):
    """Opens the sessions of a store: `stored_sessions` of cli/stored_sessions.py."""

    def __call__(
        self, names: Sequence[str], since: str | None, account: str | None, config: Path | None
    ) -> AbstractContextManager[ExportSource]: ...


@dataclass(frozen=True, slots=True)
class LazyParts:
    """The context's object: what a command loads only if its options or settings ask for it, because importing it takes a second."""

    open_stored_sessions: OpenStoredSessions
    load_mcp_tools: Callable[[], ModuleType]
    """Returns app/mcp_tools.py."""
    load_compress_service: Callable[[str], ModuleType]
    """Returns `cli/compress_service.py`: models and the store, for `hermes compress`. Takes what needs it, for the error."""
    new_daft_engine: Callable[[str | None], ChunkEngine]
    """Returns the engine of many machines; takes the address of a Ray cluster. Raises ModuleNotFoundError without the extra `batch`."""
    load_traces: Callable[[], ModuleType]
    """Returns ops/trace_export.py. If a package is missing, says what to install and exits."""


def show_version(is_given: bool) -> None:  # noqa: FBT001  # the signature that typer calls
    if is_given:
        typer.echo(f"hermes {__version__}")
        raise typer.Exit


def new_app() -> typer.Typer:
    """Return the command `hermes` without any command below it."""
    made = typer.Typer(
        name="hermes",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Hermes routes messages, remembers exactly what every model saw, and hands you on-policy training data from it.",
    )

    @made.callback()
    def declare_options(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and stop.")
        ] = False,
    ) -> None:
        pass

    return made


app = new_app()
"""Every module of commands registers its own here."""


@app.command()
def demo(
    *,
    is_paced: Annotated[
        bool | None, typer.Option("--pause/--no-pause", help="Wait for Enter between scenes.", show_default="in a terminal")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the demo's graph to this file. View it with: hermes graph FILE")] = None,
) -> None:
    """Play a guided tour of the message graph: a chat, an edit, a compaction, a subagent, a drawing of the graph."""
    console = Console()
    is_watched = sys.stdin is not None and sys.stdin.isatty() and console.is_terminal
    wait = is_watched if is_paced is None else is_paced

    def pause() -> None:
        if wait:
            console.input("[dim]Enter to go on…[/]")

    try:
        chat = play_tour(console, pause)
    except (KeyboardInterrupt, EOFError):
        console.print("\n[dim]Until next time.[/]")
        if save is not None:
            fail(f"the tour ended early; nothing was written to {save}")
        raise typer.Exit from None
    if save is not None:
        try:
            save.write_text(chat.to_json(), encoding="utf-8")
        except OSError as error:
            fail(f"cannot write {save}: {error.strerror}")
        typer.echo(f"\nSaved. Look at it again: hermes graph {shlex.quote(str(save))}")


@app.command()
def graph(
    file: Annotated[Path, typer.Argument(help="A file that MessageGraph.to_json() wrote; - reads standard input.")],
    *,
    line: Annotated[int | None, typer.Option(min=1, help="The graph's line in a JSONL file, counted from 1.", show_default=False)] = None,
    is_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid source instead, for a document.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print counts and verification as JSON instead.")] = False,
) -> None:
    """Draw a saved graph with its versions, and check that its ids match its content.

    Exit code 0 when every id matches, 1 when the graph was altered, 2 when the file is not a graph."""
    if is_mermaid and is_json:
        fail("--mermaid and --json exclude each other; give one of them")
    name = "standard input" if str(file) == "-" else str(file)
    try:
        chat = MessageGraph.from_json(_choose(_read(file).decode("utf-8-sig"), line, name))  # some editors write a byte order mark first
    except OSError as error:
        fail(f"cannot read {name}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{name} is not a message graph: not UTF-8 text")
    except GraphError as error:
        fail(f"{name} is not a message graph: {error}")
    report = chat.verify()
    if is_json:
        responses = sum(1 for _ in chat.responses())
        summary = {"messages": len(chat), "versions": len(chat.versions), "responses": responses, "status": report.status}
        print_json({**summary, "redacted": report.redacted, "problems": report.problems})
    elif is_mermaid:
        typer.echo(chat.to_mermaid(), nl=False)
    else:
        console = output_console()
        console.print(graph_tree(chat, name))
        console.print(f"verify: [bold]{report.status}[/]")
    for problem in report.problems:
        complain(problem)
    if not report:
        raise typer.Exit(1)


def _choose(text: str, line: int | None, name: str) -> str:
    """Return the text of one graph: the whole file, or the given line of it."""
    lines = text.splitlines()
    if line is not None:
        if line > len(lines):
            fail(f"{name} has {len(lines)} lines, so there is no line {line}")
        return lines[line - 1]
    if sum(1 for each in lines if each.startswith('{"format":')) > 1:
        fail(f"{name} holds {len(lines)} graphs, one a line; choose one, for instance --line 1")
    return text


def _read(file: Path) -> bytes:
    """Return the content of a file as bytes. Not as text: the locale would decide how standard input is decoded."""
    if str(file) != "-":
        return file.read_bytes()
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return sys.stdin.buffer.read()
