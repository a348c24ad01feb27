"""`hermes turns show` and `hermes turns why`: what happened to a message, step by step, and why."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.text import Text

from hermes.app.console_access import access_from
from hermes.app.console_turn import turn_reader_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import lazy_parts
from hermes.cli.options import Config, Json
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.cli.turns import turns
from hermes.console.access import ReasonMissing
from hermes.console.amounts import show_ms, show_usd
from hermes.console.turn_plot import PlotAttempt, RowState, write_plot_line
from hermes.console.turn_view import TurnView, price_lines, turn_json, why_json
from hermes.console.why import say_part
from hermes.ports.turn_record import TurnRecord
from hermes.terminal import one_line, show_safely

TurnId = Annotated[str, typer.Argument(metavar="TURN", help="The turn's id.")]
Reason = Annotated[
    str, typer.Option("--reason", metavar="WORDS", help="Show the content too; the words go into the audit log.", show_default=False)
]
STATE_STYLES = {RowState.FAILED: "red", RowState.CUT_OFF: "red", RowState.RUNNING: "yellow", RowState.UNREACHED: "dim"}


@turns.command()
def show(
    turn: TurnId,
    *,
    reason: Reason = "",
    has_content: Annotated[bool, typer.Option("--content", help="Show what the user and the models wrote.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show a turn: one sentence, its ten steps, its calls with tokens x rate = dollars, its delivery and its credit.

    With --content or --reason also what the user wrote, each context exactly as it was sent, the answers and the tools."""
    turn_id = parse_turn(turn)

    async def read(tables: Tables) -> tuple[TurnView, dict[str, Any] | None]:
        view = await turn_reader_from(tables.settings, tables.database).read(command_actor(), turn_id)
        return view, await read_content(tables, view, reason) if has_content or reason else None

    view, content = run(with_tables(config, read))
    if is_json:
        document = turn_json(view, command_actor().operator)
        print_json(document if content is None else {**document, "content": content})
        return
    print_turn(view)
    if content is not None:
        print_content(content)


@turns.command()
def why(turn: TurnId, *, is_json: Json = False, config: Config = None) -> None:
    """Say in one sentence why a turn went as it did, and list the causes."""
    turn_id = parse_turn(turn)

    async def read(tables: Tables) -> TurnView:
        return await turn_reader_from(tables.settings, tables.database).read(command_actor(), turn_id)

    view = run(with_tables(config, read))
    if is_json:
        print_json(why_json(view.why))
        return
    typer.echo(one_line(view.why.sentence))
    for number, cause in enumerate(view.why.causes, 1):
        typer.echo(f"{number:3}. {one_line(cause.text)}" + (f"  [{cause.step}]" if cause.step else ""))


def parse_turn(text: str) -> UUID:
    try:
        return UUID(text.strip())
    except ValueError:
        fail(f"{text[:60]!r} is no turn's id; `hermes turns list` shows ids, such as 3f2a91bc-5c0e-4d1f-9b7a-0e6c5d4b3a21")


async def read_content(tables: Tables, view: TurnView, reason: str) -> dict[str, Any]:
    """Open the conversation, and read the turn's content. Loads the router, whose code renders the contexts."""
    access = access_from(tables.settings, tables.database)
    try:
        opened = await access.open(command_actor(), view.subject, reason)
    except ReasonMissing:
        fail('in production content needs a reason: --reason "the guest complained"')
    loaded = lazy_parts().load_app("console_turn_content")
    content: dict[str, Any] = loaded.content_json(await loaded.content_reader_from(tables.database, tables.keyring).read(opened, view.turn))
    return content


# --- for people


def print_turn(view: TurnView) -> None:
    turn = view.turn
    typer.secho(one_line(view.why.sentence), bold=True)
    where = f"{turn.platform} · account {turn.account_id} · user {turn.user_id}"
    typer.echo(one_line(f"turn {turn.turn_id} · {where} · received {turn.received_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"))
    for attempt in view.attempts:
        print_attempt(attempt)
    print_calls(turn)
    if turn.deliveries:
        typer.echo("\nDelivery")
        print_table(
            ("message", "what became of it"), ((part.news or f"answer, part {part.part + 1}", say_part(part)) for part in turn.deliveries)
        )
    if turn.credits:
        typer.echo("\nCredit")
        print_table(("entry", "credits", "hold"), ((line.kind, str(line.amount), str(line.attempt)) for line in turn.credits))


def print_attempt(attempt: PlotAttempt) -> None:
    typer.echo(f"\nAttempt {attempt.attempt}: {attempt.title}")
    print_table(
        ("step", "state", "begins", "takes", "facts"),
        (
            (
                row.step,
                Text(row.state, style=STATE_STYLES.get(row.state, "")),
                show_ms(row.began_ms),
                show_ms(row.ms),
                one_line(write_plot_line(row)),
            )
            for row in attempt.rows
        ),
    )


def print_calls(turn: TurnRecord) -> None:
    if not turn.calls:
        return
    typer.echo("\nCalls")
    rows = []
    for recorded in turn.calls:
        call = recorded.call
        tried = ", ".join(f"{attempt.name}: {attempt.outcome}" for attempt in call.attempts) or call.error or str(call.outcome)
        sum_ = " + ".join(f"{line.tokens:,} {line.kind} x {show_usd(line.micro_usd_per_million)}/M" for line in price_lines(call))
        rows.append((str(call.purpose or call.source), one_line(tried), show_ms(call.latency_ms), sum_, show_usd(call.micro_usd)))
    print_table(("for", "models", "time", "tokens x rate", "= dollars"), [*rows, ("sum", "", "", "", show_usd(turn.micro_usd))])


def print_content(content: dict[str, Any]) -> None:
    for message in content["messages"]:
        print_text("the user wrote", message["text"], message["hidden"])
    for context in content["contexts"]:
        typer.secho(f"\nContext: {context['title']}", bold=True)
        if context["hidden"] and not context["messages"]:
            print_text("sent", None, context["hidden"])
        for message in context["messages"]:
            rest = {name: value for name, value in message.items() if name not in ("role", "content")}
            body = message.get("content")
            text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
            print_text(str(message.get("role")), text + (f"\n{json.dumps(rest, ensure_ascii=False)}" if rest else ""), None)
        if context["answer"] is not None:
            print_text("answer", json.dumps(context["answer"], ensure_ascii=False), None)
    for tool in content["tools"]:
        print_text(f"tool {tool['name']}({tool['arguments'] or ''})", tool["result"], tool["hidden"])
    for text in content["texts"]:
        print_text(text["news"] or f"the user got, part {text['part'] + 1}", text["text"], text["hidden"])


def print_text(title: str, text: str | None, hidden: str | None) -> None:
    """Print a text line by line, with the characters made visible that would change how a terminal shows it."""
    typer.secho(f"--- {one_line(title)}", dim=True)
    for line in (text if text is not None else f"({hidden})").split("\n"):
        typer.echo(f"  {show_safely(line)}")
