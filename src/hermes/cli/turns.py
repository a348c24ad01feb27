"""`hermes turns list` and `hermes turns tail`: turns, newest first, and as they end. turn_show.py adds `show` and `why`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from hermes.app.console_turn_list import turn_lists_from
from hermes.app.event_stream import stored_events
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import complain, fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.amounts import show_usd
from hermes.console.turn_list import (
    DEFAULT_SINCE,
    MAX_ROWS,
    PAGE_ROWS,
    FilterInvalid,
    TurnListPage,
    open_json,
    parse_filter,
    parse_list_cursor,
    turn_json,
)
from hermes.ports.errors import StoreUnavailable
from hermes.ports.operators import Operator
from hermes.ports.turn_list import FAILED_OUTCOMES, ListedKind, ListedTurn, OpenTurn, TurnFilter, TurnStatus
from hermes.terminal import one_line

turns = typer.Typer(
    no_args_is_help=True,
    help="Turns: list, tail, show, why.\n\n"
    "A turn is one message and its answer. Its id is in the answer of `POST /v1/messages`, in every log line, and in the console.\n\n"
    "    hermes turns list --status failed\n"
    "    hermes turns list --agent concierge --since 7d --json\n"
    "    hermes turns tail\n"
    "    hermes turns why 3f2a91bc-…\n"
    '    hermes turns show 3f2a91bc-… --reason "the guest complained"\n\n'
    "Content (what the user and the models wrote) is shown only by `show` with --content or --reason, and the audit log gets an entry; in "
    "production a reason is needed.\n\n"
    "Exit code 0 when it is done, 1 when the database cannot be reached, 2 for bad input or an unknown turn.",
)
app.add_typer(turns, name="turns")

POLL_S = 1.0
PAGE_EVENTS = 500
ENDED = frozenset({"turn_recorded", "fallback_used"})
"""Stored events that end a turn. One that was given up has no other than the apology's."""

Status = Annotated[
    str,
    typer.Option(
        "--status",
        help=f"Which turns: {', '.join(TurnStatus)}.",
        autocompletion=complete_from(lambda: [str(status) for status in TurnStatus]),
    ),
]
Agent = Annotated[str, typer.Option("--agent", help="Only turns of this agent.", show_default=False)]
Model = Annotated[str, typer.Option("--model", help="Only turns that this model answered, or was asked for.", show_default=False)]
Tool = Annotated[str, typer.Option("--tool", help="Only turns that ran this tool.", show_default=False)]
OfPlatform = Annotated[str, typer.Option("--platform", help="Only turns of this platform, such as telegram.", show_default=False)]
Tier = Annotated[str, typer.Option("--tier", help="Only turns of this tier.", show_default=False)]
Purpose = Annotated[
    str,
    typer.Option(
        "--purpose",
        help="Only turns with a call of this purpose, such as remember; any: also calls without a turn, such as replays.",
        show_default=False,
    ),
]
Account = Annotated[str, typer.Option("--account", help="Only turns of this account.", show_default=False)]
UserId = Annotated[str, typer.Option("--user", help="Only turns of this user, by id.", show_default=False)]
KeyId = Annotated[str, typer.Option("--key", help="Only turns that came with this API key, by id.", show_default=False)]


@turns.command("list")
def list_turns(
    *,
    status: Status = str(TurnStatus.ALL),
    agent: Agent = "",
    model: Model = "",
    tool: Tool = "",
    platform: OfPlatform = "",
    tier: Tier = "",
    purpose: Purpose = "",
    account: Account = "",
    user: UserId = "",
    key: KeyId = "",
    since: Annotated[str, typer.Option("--since", metavar="WHEN", help="From when on: 90m, 24h, 7d, 2026-11-15.")] = DEFAULT_SINCE,
    until: Annotated[str, typer.Option("--until", metavar="WHEN", help="Until when.", show_default="now")] = "",
    before: Annotated[str, typer.Option("--before", metavar="CURSOR", help="`next` of the page before.", show_default=False)] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=MAX_ROWS, help="How many to show at most.")] = PAGE_ROWS,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show turns, newest first; those that wait or run stand above.

    A filter that no index serves looks through some thousand turns a page and says so; go on with --before. Calls of the completions API
    make no turn and are listed as `call`."""
    operator = command_actor().operator
    fields = {"agent": agent, "model": model, "tool": tool, "platform": platform, "tier": tier, "purpose": purpose, "account": account}
    wanted = read_filter({**fields, "status": status, "user": user, "key": key, "since": since, "until": until}, operator)
    try:
        cursor = parse_list_cursor(before)
    except FilterInvalid as error:
        fail(f"--{error}")

    async def read(tables: Tables) -> TurnListPage:
        return await turn_lists_from(tables.database).page(wanted, before=cursor, limit=limit)

    page = run(with_tables(config, read))
    if is_json:
        following = None if page.next is None else str(page.next)
        data, waiting = [turn_json(row, operator) for row in page.rows], [open_json(turn, operator) for turn in page.open]
        print_json({"data": data, "next": following, "looked_through": page.looked_through, "open": waiting})
        return
    print_page(page)


@turns.command("tail")
def tail_turns(
    *,
    status: Status = str(TurnStatus.ALL),
    agent: Agent = "",
    model: Model = "",
    tool: Tool = "",
    platform: OfPlatform = "",
    account: Account = "",
    user: UserId = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show turns as they end, until Ctrl-C. With --json one line for each turn."""
    operator = command_actor().operator
    fields = {"status": status, "agent": agent, "model": model, "tool": tool, "platform": platform, "account": account, "user": user}
    wanted = read_filter(fields, operator)
    if wanted.status in {TurnStatus.WAITING, TurnStatus.COMPLETIONS}:
        fail(f"--status {wanted.status} shows no turns that end; use `hermes turns list --status {wanted.status}`")

    async def follow(tables: Tables) -> None:
        typer.secho("Waiting for turns to end; Ctrl-C stops.", fg="bright_black", err=True)
        await follow_turns(tables, wanted, operator, is_json=is_json)

    try:
        run(with_tables(config, follow))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def read_filter(fields: dict[str, str], operator: Operator) -> TurnFilter:
    try:
        return parse_filter(fields, datetime.now(UTC), operator)
    except FilterInvalid as error:
        fail(f"--{error}")


async def follow_turns(tables: Tables, wanted: TurnFilter, operator: Operator, *, is_json: bool) -> None:
    """Print turns as they end. While the database is away it waits, and says so once."""
    lists, cursor, is_away = turn_lists_from(tables.database), None, False
    while True:
        try:
            async with tables.database.once() as tx:
                cursor = cursor or await stored_events().end(tx)
            async with tables.database.once() as tx:
                page = await stored_events().read(tx, cursor, limit=PAGE_EVENTS)
            ended = list(dict.fromkeys(event.turn_id for event in page.events if event.type in ENDED and event.turn_id is not None))
            rows = await lists.find(wanted, ended) if ended else ()
        except StoreUnavailable as error:
            if not is_away:
                complain(f"{error}; waiting")
            is_away = True
            await asyncio.sleep(POLL_S)
            continue
        is_away, cursor = False, page.next
        for row in reversed(rows):
            if is_json:
                print_json(turn_json(row, operator))
            else:
                typer.echo(line_of(row))
        if page.is_last:
            await asyncio.sleep(POLL_S)


# --- for people


def print_page(page: TurnListPage) -> None:
    if page.open:
        print_table(("waits since", "turn", "state", "at", "who", "age"), (open_cells(turn) for turn in page.open))
        typer.echo("")
    if page.rows:
        print_table(("time", "turn", "outcome", "who", "agent", "model", "tokens", "cost", "took", "delivery"), map(cells_of, page.rows))
    elif not page.open:
        typer.echo("No turn matches.")
    if page.looked_through is not None:
        typer.secho(f"Looked through {page.looked_through:,} turns for this filter; older ones may match too.", fg="bright_black", err=True)
    if page.next is not None:
        typer.secho(f"Older: --before {page.next}", fg="bright_black", err=True)


def cells_of(row: ListedTurn) -> Sequence[str | Text]:
    return (
        f"{row.at:%Y-%m-%d %H:%M:%S}",
        str(row.id),
        Text(describe_outcome(row), style="red" if row.outcome in FAILED_OUTCOMES else ""),
        row.sender or str(row.user_id or ""),
        row.agent or "",
        row.model or "",
        f"{row.tokens:,}",
        show_usd(row.micro_usd),
        "" if row.ms is None else f"{row.ms:,} ms",
        row.delivery or "",
    )


def open_cells(turn: OpenTurn) -> Sequence[str]:
    state = "running" if turn.is_running else "waiting"
    who = turn.sender or str(turn.user_id)
    return f"{turn.received_at:%Y-%m-%d %H:%M:%S}", str(turn.turn_id), state, turn.step or "", who, f"{turn.age_s:.0f} s"


def describe_outcome(row: ListedTurn) -> str:
    """`retry_later (ChainFailed at call_model), fell over`: the outcome and what is odd about it."""
    where = f"{row.error} at {row.step}" if row.error and row.step else row.error
    said = f"{row.outcome} ({where})" if where else row.outcome
    kind = [f"call: {row.purpose}"] if row.kind is ListedKind.CALL else []
    tries = [f"{row.attempts} tries"] if row.attempts > 1 else []
    return ", ".join([*kind, said, *(["fell over"] if row.fell_over else []), *tries, *(["tool error"] if row.tool_errors else [])])


def line_of(row: ListedTurn) -> str:
    took = "" if row.ms is None else f" {row.ms} ms"
    return one_line(
        f"{row.at:%H:%M:%S} {row.id} {describe_outcome(row)} {row.agent or '-'} {row.model or '-'} {row.tokens} tokens "
        f"{show_usd(row.micro_usd)}{took} {row.delivery or ''}".rstrip()
    )
