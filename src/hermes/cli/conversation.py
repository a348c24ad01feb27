"""`hermes conversation`: sessions, and the message graph of one with its versions as lanes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from hermes.app.console_conversations import conversations_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.amounts import count_phrase, show_usd
from hermes.console.conversation_file import write_conversation
from hermes.console.conversation_json import conversation_json, facts_json, item_json, versions_json
from hermes.console.conversation_views import GLYPH_NAMES, GraphView, RowFold, RowGlyph, RowView
from hermes.console.graph_svg import svg_of_conversation
from hermes.console.graph_windows import GraphQuery
from hermes.console.gutter import fold_text, gutter_text
from hermes.console.message_text import first_line, message_text
from hermes.ports.conversations import MAX_COUNTED, ConversationFilter, ConversationRow
from hermes.terminal import one_line, show_safely
from hermes.trajectories.private_files import write_private
from hermes.turn import Platform

LINE_CHARS = 160

conversation = typer.Typer(
    no_args_is_help=True,
    help="Conversations: list, show.\n\n"
    "A conversation is one or more sessions; a session is one message graph. It keeps every context that a model saw: after an edit or a "
    "compaction the earlier list stays as a version. `show` draws the versions as lanes:\n\n"
    "    ○─╮   0 user       where is a sunset bar?\n"
    "    │ ●   1 assistant  version 1 · edit: Try the beach.\n\n"
    "What was said is content: in production say with --reason why you read it; the audit log notes who read it.\n\n"
    "    hermes conversation list --platform whatsapp\n"
    '    hermes conversation show 4f6f… --reason "ticket 812"\n'
    "    hermes conversation show 4f6f… --html chat.html\n"
    "    hermes conversation show 4f6f… --svg chat.svg\n\n"
    "Exit code 0 when it is done, 1 when the database cannot be reached or the act is refused, 2 for bad input.",
)
app.add_typer(conversation, name="conversation")

PlatformOption = Annotated[
    str | None,
    typer.Option("--platform", help="Only sessions of this platform.", show_default=False, autocompletion=complete_from(lambda: Platform)),
]


@conversation.command("list")
def list_(
    *,
    platform: PlatformOption = None,
    user: Annotated[str | None, typer.Option(help="Only sessions of this user, by id.", show_default=False)] = None,
    before: Annotated[
        int | None, typer.Option(metavar="CURSOR", min=1, max=2**63 - 1, help="Go on after the `next` of a page.", show_default=False)
    ] = None,
    limit: Limit = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List sessions, the newest first: platform, agent, who, turns, messages, versions. No word of what was said."""
    wanted = ConversationFilter(platform=platform, user_id=read_id(user))
    actor = command_actor()

    async def read(tables: Tables) -> list[ConversationRow]:
        conversations = conversations_from(tables.settings, tables.database, tables.keyring)
        return list(await conversations.list(actor, wanted, before=before, limit=limit + 1))

    rows = run(with_tables(config, read))
    following = str(rows[limit - 1].number) if len(rows) > limit else None
    rows = rows[:limit]
    if is_json:
        print_json({"data": [conversation_json(row, actor.operator) for row in rows], "next": following})
        return
    if not rows:
        typer.echo("No conversation matches." if platform or user or before else "There is no conversation. Begin one: hermes chat")
        return
    print_table(("STARTED", "SESSION", "PLATFORM", "WHO", "AGENT", "TURNS", "MESSAGES", "VERSIONS"), (list_cells(row) for row in rows))
    if following is not None:
        typer.secho(f"Read on: hermes conversation list --before {following}", fg="bright_black", err=True)


@conversation.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a session, turn, call or conversation; or a sender.")],
    *,
    html: Annotated[Path | None, typer.Option(help="Write the graph to this file: one page, no script, to send to a colleague.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the graph to this file: one image, for a document or a ticket.")] = None,
    reason: Annotated[str, typer.Option(help="Why you read what was said; needed in production.", show_default=False)] = "",
    is_closed: Annotated[bool, typer.Option("--closed", help="Only the shape: sizes instead of words, nothing is opened.")] = False,
    start: Annotated[int, typer.Option("--from", min=0, help="Begin at this row.")] = 0,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show a conversation as a message graph: ● sampled ○ context ◆ tool result ✂ erased ▣ made by a nested chat."""
    show_stored(name, html=html, svg=svg, reason=reason, is_closed=is_closed, start=start, is_json=is_json, config=config)


def show_stored(
    name: str,
    *,
    html: Path | None = None,
    svg: Path | None = None,
    reason: str = "",
    is_closed: bool = False,
    start: int = 0,
    turn_id: UUID | None = None,
    is_json: bool = False,
    config: Path | None = None,
) -> None:
    """Print a stored conversation, or write it to files. The rows of `turn_id` are marked."""
    files = [file for file in (html, svg) if file is not None]
    if is_json and files:
        fail("--json prints, and --html and --svg write files; give one of them")
    for file in files:
        if file.exists():
            fail(f"{file} exists already")
    actor = command_actor()

    async def read(tables: Tables) -> GraphView:
        conversations = conversations_from(tables.settings, tables.database, tables.keyring)
        facts = await conversations.find(actor, name)
        opened = None if is_closed or facts.is_erased else await conversations.open(actor, facts, reason)
        if files:
            await conversations.permit_export(actor, facts, is_open=opened is not None, reason=reason)
        return await conversations.read(facts, GraphQuery(start=start, turn_id=turn_id, is_whole=bool(files)), opened)

    view = run(with_tables(config, read))
    if html is not None:
        write_file(html, write_conversation(view, actor.operator), view)
    if svg is not None:
        write_file(svg, svg_of_conversation(view, actor.operator), view)
    if files:
        return
    if is_json:
        following = None if view.next_start is None else str(view.next_start)
        session = facts_json(view.facts, actor.operator)
        rows = [item_json(item, view) for item in view.items]
        print_json({"data": rows, "next": following, "session": session, "versions": versions_json(view), "is_open": view.is_open})
    else:
        for line in graph_lines(view):
            typer.echo(line)


def write_file(file: Path, text: str, view: GraphView) -> None:
    try:
        write_private(file, text)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
    typer.echo(f"Wrote {count_phrase(view.total, 'row')} to {file}.")


def read_id(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        fail(f"{text!r} is not the id of a user; expected a UUID")


def list_cells(row: ConversationRow) -> tuple[str, ...]:
    who = "erased" if row.is_erased else str(row.user_id)[:8] if row.platform == "completions" else row.channel_id
    counts = (f"{MAX_COUNTED:,}+" if count > MAX_COUNTED else f"{count:,}" for count in (row.turns, row.messages, row.versions + 1))
    return (f"{row.started_at:%Y-%m-%d %H:%M}", str(row.session_id), row.platform, who, row.agent or "-", *counts)


def graph_lines(view: GraphView) -> Iterator[str]:
    """Yield the graph as text: what is known of the session, then a line for each row."""
    facts = view.facts
    counts = ", ".join(
        (count_phrase(facts.messages, "message"), count_phrase(len(view.versions), "version"), count_phrase(facts.calls, "call"))
    )
    yield one_line(f"session {facts.session_id}  {facts.platform}  {counts}, {show_usd(facts.micro_usd)}")
    neighbours = [f"{when} it: {name}" for when, name in (("before", facts.previous_id), ("after", facts.next_id)) if name is not None]
    if neighbours:
        yield f"Sessions of the same conversation {', '.join(neighbours)}"
    if view.is_erased:
        yield "The owner of this conversation was forgotten; what was said is gone."
    lanes = view.layout.lanes
    for item in view.items:
        if isinstance(item, RowFold):
            yield f"{fold_text(item.row, lanes)} {'':>5}  {count_phrase(item.count, 'more message')}"
        else:
            mark = "▸" if item.row.number in view.marked else " "
            yield f"{gutter_text(item.row, item.glyph, lanes)}{mark}{item.row.number:>5}  {show_safely(row_text(item))}"
    if view.next_start is not None:
        yield f"{view.total - view.next_start:,} more rows: --from {view.next_start}"
    yield "  ".join(f"{glyph} {GLYPH_NAMES[glyph]}" for glyph in RowGlyph)


def row_text(item: RowView) -> str:
    """What a line says beside the lanes."""
    labels = "".join(f"[{label}] " for label in item.starts)
    if item.replay is not None:
        return f"replay with {item.replay.model}: {item.replay.state}"
    if item.message is None:
        return f"{labels}{item.size or 0:,} bytes"
    models = ", ".join(dict.fromkeys(sample.call.model or "" for sample in item.samples if sample.call is not None))
    return f"{labels}{item.message.role:<9} {first_line(message_text(item.message), LINE_CHARS)}{f'  ({models})' if models else ''}"
