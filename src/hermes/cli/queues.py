"""`hermes queues`: what waits in Hermes and why, what is on its way, and what was given up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from hermes.app.console_queues import queue_board_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, Limit, complete_from
from hermes.cli.output import print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.queues import QUEUE_NAMES, QueuePage
from hermes.ports.queues import MAX_COUNTED, JobCount, QueueCount, WaitingMessage, WaitReason
from hermes.terminal import one_line

MEANINGS = {
    "waiting": "messages without an answer",
    "buried": "messages that were given up; `hermes messages revive` has them answered",
    "outbox": "answers and proactive messages that no platform has taken yet",
    "retrying": "of these, those that failed and are tried again",
    "proactive": "of these, messages that Hermes sends of itself",
    "dead": "dead letters: answers that no platform took; `hermes dead-letters` has more",
}


@app.command()
def queues(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUEUE]",
            help=f"Show the entries of one queue: {', '.join(QUEUE_NAMES)}.",
            show_default=False,
            autocompletion=complete_from(lambda: QUEUE_NAMES),
        ),
    ] = None,
    *,
    limit: Limit = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show what waits in Hermes and why, what is on its way, and what was given up.

    Without a name: how long each queue is. With a name: its entries, for instance: hermes queues waiting. The oldest entry comes first; of
    what was given up, the newest. No text of a message is shown."""
    if name is not None:
        show_entries(name, run(with_tables(config, lambda tables: read_entries(tables, name, limit))), is_json=is_json)
        return
    counts, jobs = run(with_tables(config, read_counts))
    if is_json:
        print_json({"data": [plain_columns(asdict(count)) for count in counts], "jobs": [asdict(job) for job in jobs], "next": None})
        return
    now = datetime.now(UTC)
    rows = ((each.queue, shown_count(each.entries), shown_age(now, each.at), MEANINGS.get(each.queue, "")) for each in counts)
    print_table(("queue", "entries", "oldest, or last given up", "what"), rows)
    if jobs:
        typer.echo()
        print_table(("jobs", "state", "number"), ((job.queue, job.status, str(job.jobs)) for job in jobs))


async def read_counts(tables: Tables) -> tuple[Sequence[QueueCount], Sequence[JobCount]]:
    board, operator = queue_board_from(tables.database), command_actor().operator
    return [*(await board.counts(operator)).values()], await board.jobs(operator)


async def read_entries(tables: Tables, name: str, limit: int) -> QueuePage[Any]:
    return await queue_board_from(tables.database).entries(name, command_actor().operator, limit=limit)


def show_entries(name: str, page: QueuePage[Any], *, is_json: bool) -> None:
    if is_json:
        print_json({"data": [plain_columns(asdict(entry)) for entry in page.entries], "next": page.next})
        return
    if not page.entries:
        typer.echo(f"The queue {name} is empty.")
        return
    now = datetime.now(UTC)
    if name == "waiting":
        print_table(
            ("turn", "waits", "why", "where", "attempts"),
            (
                (str(each.turn_id), shown_age(now, each.since), why(each, now), shown_place(each), str(each.attempts))
                for each in page.entries
            ),
        )
    elif name == "buried":
        print_table(
            ("turn", "given up", "reason", "where", "attempts"),
            (
                (str(each.turn_id), f"{each.ended_at:%Y-%m-%d %H:%M}", one_line(each.reason), shown_place(each), str(each.attempts))
                for each in page.entries
            ),
        )
    elif name == "outbox":
        print_table(
            ("turn", "waits", "state", "last outcome", "where", "tries", "next try"),
            (
                (
                    str(each.turn_id),
                    shown_age(now, each.put_at),
                    each.state,
                    each.outcome or "",
                    shown_place(each),
                    str(each.tries),
                    "now" if each.next_at <= now else f"in {(each.next_at - now).total_seconds():.0f} s",
                )
                for each in page.entries
            ),
        )
    else:
        print_table(
            ("id", "turn", "died", "outcome", "where", "tries"),
            (
                (str(each.id), str(each.turn_id), f"{each.died_at:%Y-%m-%d %H:%M}", each.outcome or "", shown_place(each), str(each.tries))
                for each in page.entries
            ),
        )
    if page.next is not None:
        typer.secho("There are more; raise --limit.", fg="bright_black", err=True)


def why(message: WaitingMessage, now: datetime) -> str:
    """Why a message has no answer yet, in words."""
    match message.reason:
        case WaitReason.RUNNING:
            by = f"by {str(message.worker)[:8]} " if message.worker else ""
            return f"running {by}for {shown_age(now, message.claimed_at)}"
        case WaitReason.BEHIND:
            return f"behind {message.behind}"
        case WaitReason.RETRY:
            return f"failed; tried again at {message.retry_at:%H:%M:%S}" if message.retry_at else "failed; tried again"
        case WaitReason.LOST:
            return "has no job; a worker gives it one"
        case WaitReason.WORKER:
            return "waits for a worker"


def shown_place(entry: Any) -> str:
    return one_line(f"{entry.platform}:{entry.account}/{entry.channel_id}")


def shown_count(entries: int) -> str:
    return f"{MAX_COUNTED:,}+" if entries >= MAX_COUNTED else str(entries)


def shown_age(now: datetime, at: datetime | None) -> str:
    if at is None:
        return ""
    seconds = max(0.0, (now - at).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns as JSON has them."""
    return {name: plain_value(value) for name, value in columns.items()}


def plain_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value
