"""`hermes dream`: conclude from what is known about a user, now, in place of at night."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from hermes.app.clock import SystemClock
from hermes.app.root import Hermes
from hermes.cli.commands import app
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, complain, print_json, print_table
from hermes.cli.runtime import run, with_hermes
from hermes.ports.memories import Dream, DreamDepth, DreamReview
from hermes.ports.users import User
from hermes.router.signup import find_user
from hermes.soul.dream import period_of

dream = typer.Typer(
    no_args_is_help=True,
    help="Conclude from what is known about a user: now.\n\n"
    "Hermes dreams at night: lightly every day, from the facts of the day, and deeply on Mondays, from all facts. A model draws the "
    "conclusions; without a model there is no dream. `hermes chores run deep_dreams` dreams for all users.",
)
app.add_typer(dream, name="dream")


@dream.callback()
def declare() -> None:
    """Keep `now` a command of its own: typer would merge a single command into its group."""


@dream.command()
def now(
    *,
    who: Annotated[
        str, typer.Option("--user", metavar="USER", help="An id, the beginning of one, a referral code, or platform:account/sender.")
    ],
    is_deep: Annotated[bool, typer.Option("--deep/--light", help="From all facts, or from the facts of the day.")] = False,
    is_dry: Annotated[
        bool, typer.Option("--dry-run", help="Ask the model and show the lines, but store nothing. The call is paid.")
    ] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Dream for one user now, for instance: hermes dream now --user 3f2a --deep.

    A user has one dream a day or, deep, a week; a second one changes nothing. Exit code 1 when no model answered."""
    depth = DreamDepth.DEEP if is_deep else DreamDepth.LIGHT

    async def act(hermes: Hermes) -> tuple[User, Sequence[Dream] | None]:
        async with hermes.database.begin() as tx:
            user = await find_user(tx, hermes.adapters.people, who)
        dreamer = await hermes.background_jobs.dream_job.dreamer_of(user.id)
        if dreamer is None:
            complain(f"there is no model that can dream for {user.id}: they have no channel, or tier {user.tier} has no model that reads")
            raise typer.Exit(CANNOT_RUN)
        at = SystemClock().now()
        return user, await (dreamer.imagine if is_dry else dreamer.dream)(user.id, depth, now=at)

    user, lines = run(with_hermes(config, act))
    if lines is None:
        complain("no model answered, so there is no dream; the log says why, and the night tries it again")
        raise typer.Exit(CANNOT_RUN)
    if is_json:
        period = period_of(depth, SystemClock().now()).isoformat()
        print_json(
            {"id": str(user.id), "depth": depth, "period": period, "is_stored": not is_dry, "lines": [line_json(line) for line in lines]}
        )
        return
    if not lines:
        typer.echo("No new line: nothing follows from the facts, or this period has its dream already (hermes users memory shows it).")
        return
    print_table(("kind", "line", "review"), ((line.kind, line.text, review_cell(line)) for line in lines))


def line_json(line: Dream) -> dict[str, Any]:
    return {"kind": line.kind, "text": line.text, "review": line.review, "reason": line.reason}


def review_cell(line: Dream) -> Text:
    if line.review is DreamReview.REJECTED:
        return Text(f"rejected: {line.reason}", "red")
    return Text(line.review, "green")
