"""`hermes messages`: messages that were given up, and their way back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from hermes.cli.actor import command_actor
from hermes.cli.commands import app, lazy_parts
from hermes.cli.moments import parse_moment
from hermes.cli.options import Config, Json
from hermes.cli.output import fail, print_json
from hermes.cli.runtime import run, with_hermes
from hermes.console.amounts import count_phrase
from hermes.console.queues import QueueActions, RevivedMessages

if TYPE_CHECKING:
    from hermes.app.root import Hermes

messages = typer.Typer(
    no_args_is_help=True,
    help="Messages that were given up: revive.\n\n"
    "A message that fails too often, or for longer than a day, is given up: its user gets an apology and pays nothing. When the cause is "
    "gone, revive it: a worker answers it as the newest of its conversation, once, and it is charged once:\n\n"
    "    hermes queues buried\n"
    "    hermes messages revive 0f9c1e0a-5c5e-4c55-8d54-5b1e6a6f3a11\n"
    "    hermes messages revive --all --since 24h\n\n"
    "The audit log has who revived what. Exit code 0 when it is done, 1 when the database cannot be reached, 2 for bad input.",
)
app.add_typer(messages, name="messages")


@messages.callback()
def choose_act() -> None:
    """Keep `revive` a word of its own: typer drops the name of a group's only command."""


@messages.command()
def revive(
    turns: Annotated[list[str] | None, typer.Argument(metavar="TURN", help="Ids of turns, as `hermes queues buried` shows them.")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="All messages that were given up.")] = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="With --all: those given up since then: 24h, 7d, 2026-11-15.", show_default=False),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; the words go into the audit log.", show_default=False)] = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Have messages answered that were given up. A message that is not given up, that was revived before, or whose sender was deleted stays
    as it is. A worker must be running."""
    if bool(turns) == is_all:
        fail("which messages? Give ids of turns, or --all" if not turns else "give either ids or --all, not both")
    if since is not None and not is_all:
        fail("--since needs --all")
    ids, moment = [parse_turn(each) for each in turns or ()], parse_moment(since) if since is not None else None

    async def act(hermes: Hermes) -> RevivedMessages:
        actions: QueueActions = lazy_parts().load_app("console_operations").queue_actions_from(hermes)
        if is_all:
            return await actions.revive_all(command_actor(), since=moment, reason=reason)
        return await actions.revive_each(command_actor(), ids, reason=reason)

    done = run(with_hermes(config, act))
    if is_json:
        refusals = {str(turn_id): why for turn_id, why in done.refused.items()}
        print_json({"revived": [str(turn_id) for turn_id in done.revived], "refused": refusals})
    else:
        typer.echo(
            f"{count_phrase(len(done.revived), 'message')} revived. A worker answers them." if done.revived else "No message was revived."
        )
        for why in done.refused.values():
            typer.echo(why, err=True)
    if ids and not done.revived:
        raise typer.Exit(2)


def parse_turn(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"{text[:60]!r} is not the id of a turn; `hermes queues buried` shows the ids")
