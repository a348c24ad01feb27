"""The commands that need nothing but the library: demo, graph. Only a conversation of the store needs the service."""

from __future__ import annotations

import codecs
import errno
import shlex
import sys
from pathlib import Path
from typing import IO, Annotated, Any
from uuid import UUID

import typer
from rich.console import Console

from hermes.cli.commands import LazyParts, app
from hermes.cli.options import STORE, StoreConfig
from hermes.cli.output import complain, fail, output_console, print_json, print_table
from hermes.cli.tour import play_tour
from hermes.console.graph_svg import svg_of_graph
from hermes.graph import GraphError, MessageGraph
from hermes.terminal import graph_tree
from hermes.trajectories.private_files import write_private

MAX_FILE_BYTES = 2**30
PEEK_BYTES = 65_536
GRAPH_START = '{"format":'
"""How the JSON of a graph begins."""


def stored_option(text: str) -> Any:
    """Return an option of conversations in the store."""
    return typer.Option(help=text, show_default=False, rich_help_panel=STORE)


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
            write_private(save, chat.to_json())
        except OSError as error:
            fail(f"cannot write {save}: {error.strerror}")
        typer.echo(f"\nSaved. Look at it again: hermes graph {shlex.quote(str(save))}")


NO_ROOT = "  (an older file without a root: a changed annotation, edge or list, or a removed answer, would not be noticed)"


@app.command()
def graph(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="A file that MessageGraph.to_json() wrote; - reads standard input.", show_default=False),
    ] = None,
    *,
    line: Annotated[int | None, typer.Option(min=1, help="The graph's line in a JSONL file, counted from 1.", show_default=False)] = None,
    is_list: Annotated[bool, typer.Option("--list", help="List the graphs of a JSONL file; without a file, those of the store.")] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the drawing to this file: one SVG image.")] = None,
    is_mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid source instead, for a document.")] = False,
    is_whole: Annotated[bool, typer.Option("--whole", help="With --mermaid: show whole texts, and do not cut them.")] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print counts and verification as JSON instead.")] = False,
    conversation: Annotated[str | None, stored_option("A conversation by its id, or by its sender.")] = None,
    session: Annotated[str | None, stored_option("A session by its id.")] = None,
    turn: Annotated[UUID | None, stored_option("The session of this turn; the turn's rows are marked.")] = None,
    reason: Annotated[str, stored_option("Why you read what was said; needed in production.")] = "",
    is_closed: Annotated[
        bool, typer.Option("--closed", help="Only the shape: sizes instead of words, nothing is opened.", rich_help_panel=STORE)
    ] = False,
    config: StoreConfig = None,
) -> None:
    """Draw a graph with its versions, from a file or from the store, and check that its ids match its content.

        hermes graph chat.json --svg chat.svg
        hermes graph --list
        hermes graph --session 4f6f… --reason "ticket 812"

    What was said in a stored conversation is content: the audit log notes who read it, and why.

    Exit code 0 when every id matches, 1 when the graph was altered or the store cannot be reached, 2 for bad input."""
    named = [name for name in (conversation, session, turn) if name is not None]
    if len(named) + (file is not None) > 1:
        fail("which graph? Give one of FILE, --conversation, --session and --turn")
    if file is None and (line is not None or is_mermaid or is_whole):
        fail("--line, --mermaid and --whole need a FILE; --svg draws a stored conversation too")
    if file is not None and (reason or is_closed or config is not None):
        fail("--reason, --closed and --config need a conversation of the store")
    if is_list:
        if named or svg is not None:
            fail("--list draws nothing: leave out --conversation, --session, --turn and --svg")
        _list_graphs(file, context.obj, is_json=is_json, config=config)
    elif file is not None:
        _draw_file(file, line=line, svg=svg, is_mermaid=is_mermaid, is_whole=is_whole, is_json=is_json)
    elif named:
        show = context.obj.load_conversation().show_stored
        show(str(named[0]), svg=svg, reason=reason, is_closed=is_closed, turn_id=turn, is_json=is_json, config=config)
    else:
        fail("which graph? Give a FILE, --conversation, --session or --turn; --list shows what there is")


def _draw_file(file: Path, *, line: int | None, svg: Path | None, is_mermaid: bool, is_whole: bool, is_json: bool) -> None:
    if is_mermaid + is_json + (svg is not None) > 1:
        fail("--mermaid, --json and --svg exclude each other; give one of them")
    if is_whole and not is_mermaid:
        fail("--whole goes with --mermaid")
    if svg is not None and svg.exists():
        fail(f"{svg} exists already")
    name = _name(file)
    chat = _open_graph(_choose(_read_text(file), line, name), name)
    report = chat.verify()
    if is_json:
        sealed = {"root": report.root, "is_sealed": report.is_sealed}
        print_json({**_counts(chat), "status": report.status, **sealed, "redacted": report.redacted, "problems": report.problems})
    elif is_mermaid:
        typer.echo(chat.to_mermaid(width=None) if is_whole else chat.to_mermaid(), nl=False)
    elif svg is not None:
        try:
            write_private(svg, svg_of_graph(chat, name))
        except OSError as error:
            fail(f"cannot write {svg}: {error.strerror}")
        typer.echo(f"Wrote {name} to {svg}.")
    else:
        console = output_console()
        console.print(graph_tree(chat, name))
        console.print(f"verify: [bold]{report.status}[/]{'' if report.is_sealed else NO_ROOT}")
    for problem in report.problems:
        complain(problem)
    if not report:
        raise typer.Exit(1)


def _list_graphs(file: Path | None, parts: LazyParts, *, is_json: bool, config: Path | None) -> None:
    """List the graphs of a file, or the sessions of the store."""
    if file is None:
        parts.load_conversation().list_(is_json=is_json, config=config)
        return
    text, name = _read_text(file), _name(file)
    lines = [(number, each) for number, each in enumerate(text.splitlines(), start=1) if each.startswith(GRAPH_START)]
    texts = lines if len(lines) > 1 else [(1, text)]
    rows = [{"line": number, **_counts(_open_graph(each, f"{name}, line {number}" if lines else name))} for number, each in texts]
    if is_json:
        print_json(rows)
    else:
        print_table(("LINE", "MESSAGES", "VERSIONS", "RESPONSES"), (tuple(f"{value:,}" for value in row.values()) for row in rows))


def _counts(chat: MessageGraph) -> dict[str, int]:
    return {"messages": len(chat), "versions": len(chat.versions), "responses": sum(1 for _ in chat.responses())}


def _open_graph(text: str, name: str) -> MessageGraph:
    try:
        return MessageGraph.from_json(text)
    except GraphError as error:
        fail(f"{name} is not a message graph: {error}")


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _read_text(file: Path) -> str:
    try:
        return _read(file).decode("utf-8-sig")  # some editors write a byte order mark first
    except OSError as error:
        fail(f"cannot read {_name(file)}: {error.strerror}")
    except UnicodeDecodeError:
        fail(f"{_name(file)} is not a message graph: not UTF-8 text")


def _choose(text: str, line: int | None, name: str) -> str:
    """Return the text of one graph: the whole file, or the given line of it."""
    lines = text.splitlines()
    if line is not None:
        if line > len(lines):
            fail(f"{name} has {len(lines)} lines, so there is no line {line}")
        return lines[line - 1]
    if sum(1 for each in lines if each.startswith(GRAPH_START)) > 1:
        fail(f"{name} holds {len(lines)} graphs, one a line; choose one, for instance --line 1")
    return text


def _read(file: Path) -> bytes:
    """Return the content of a file as bytes. Not as text: the locale would decide how standard input is decoded."""
    if str(file) != "-":
        with file.open("rb") as content:
            return _read_graphs(content, file)
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed")
    return _read_graphs(sys.stdin.buffer, file)


def _read_graphs(content: IO[bytes], file: Path) -> bytes:
    """Read to the end, unless there is none, as in /dev/zero: what begins like no graph, and what is too long, is not read on."""
    start = content.read(PEEK_BYTES)
    if len(start) == PEEK_BYTES and not start.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        fail(f"{_name(file)} is not a message graph: it begins with no JSON object")
    whole = start + content.read(MAX_FILE_BYTES)
    if len(whole) > MAX_FILE_BYTES:
        fail(f"{_name(file)} is larger than {MAX_FILE_BYTES // 2**20:,} MB; split it, one graph a file")
    return whole
