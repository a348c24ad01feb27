"""`hermes workers`: the processes of Hermes on all machines, how each is, and the turns that it drives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from hermes.app.console_queues import worker_board_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.fleet_processes import process_json
from hermes.cli.options import Config, Json
from hermes.cli.output import fail, print_json, print_result, print_table
from hermes.cli.queues import shown_age
from hermes.cli.runtime import run, with_tables
from hermes.console.amounts import count_phrase
from hermes.console.workers import ProcessView
from hermes.ports.processes import ProcessState
from hermes.terminal import one_line
from hermes.time_ids import shorten_id


@app.command()
def workers(
    *,
    give_away: Annotated[
        str | None,
        typer.Option("--give-away", metavar="PROCESS", help="Give the turns of this stalled or silent process to other workers, at once."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Also processes that stopped within the last day.")] = False,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show the processes of Hermes, how each is, and the turns that it drives; give the turns of a stalled one away.

    Two states need a look: stalled (no beat: dead, frozen or cut off) and silent (it beats, but no turn ends while turns wait). Turns of a
    stalled process go to other workers by themselves after a while; those of a silent one do not: hermes workers --give-away PROCESS."""
    if give_away is not None:
        process_id = parse_process(give_away)
        given = run(
            with_tables(config, lambda tables: worker_board_from(tables.settings, tables.database).give_away(command_actor(), process_id))
        )
        print_result(
            {"process": str(process_id), "turns": given}, f"{count_phrase(given, 'turn')} given to other workers.", is_json=is_json
        )
        return

    async def read(tables: Tables) -> tuple[Sequence[ProcessView], float]:
        board = worker_board_from(tables.settings, tables.database)
        return await board.list(command_actor().operator), board.stalled_after_s

    views, stalled_after_s = run(with_tables(config, read))
    found = [view for view in views if is_all or view.state is not ProcessState.STOPPED]
    if is_json:
        print_json([{**process_json(view.record, stalled_after_s), "turns": [str(turn.turn_id) for turn in view.turns]} for view in found])
        return
    if not found:
        typer.echo("No process of Hermes runs; start them: hermes up")
        return
    now = datetime.now(UTC)
    print_table(
        ("state", "process", "role", "host", "pid", "version", "last beat", "last turn ended", "jobs", "slots", "loop lag", "turns"),
        (
            (
                view.state,
                str(view.record.id),
                view.record.role,
                one_line(view.record.host),
                str(view.record.pid),
                view.record.version,
                f"{view.record.beat_age_s:.1f} s",
                shown_age(now, view.record.progress_at),
                str(view.record.running),
                f"{view.record.slots_used}" + (f", {view.record.slots_waiting} wait" if view.record.slots_waiting else ""),
                f"{view.record.loop_lag_ms} ms",
                ", ".join(shorten_id(turn.turn_id) for turn in view.turns[:5]),
            )
            for view in found
        ),
    )


def parse_process(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"{text[:60]!r} is not the id of a process; `hermes workers` shows the ids")
