"""`hermes fleet` events, processes, leader: rows alone. The agents are in fleet_list.py, what changes them in fleet_agents.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from hermes.app.tables import Tables
from hermes.cli.commands import app
from hermes.cli.fleet_processes import chore_json, holder_name, process_json, show_time
from hermes.cli.options import Config, Json, Limit
from hermes.cli.output import print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.gateway.fleet_views import fleet_event_json
from hermes.ports.errors import require_known
from hermes.ports.processes import ProcessRecord
from hermes.ports.runtime import ChoreRecord
from hermes.ports.users import FleetEvent

OWN_CHAIN = "tier"
"""Typed instead of an adapter: the agent uses the chain of its tier."""

fleet = typer.Typer(
    no_args_is_help=True,
    help="Agents, their adapters and spend caps, and the processes of Hermes: list, swap, events, add, cap, processes, leader.\n\n"
    "An adapter is the name of a model in the settings: claude-sonnet, codex_local, scripted. An agent without an adapter uses the "
    "chain of its tier. To move an agent to another model in an outage:\n\n"
    "    hermes fleet swap hermes --to codex_local\n\n"
    "Hermes first checks the health of the new adapter, and afterwards makes one small real call. If either fails, the old adapter stays.",
)
app.add_typer(fleet, name="fleet")


@fleet.command()
def events(
    name: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="Show only this agent; without it, all agents.", show_default=False)
    ] = None,
    *,
    limit: Limit = 50,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Show the swaps, the newest first: done, refused or taken back, when, by which operator, and why."""

    async def read(tables: Tables) -> Sequence[FleetEvent]:
        async with tables.database.begin() as tx:
            if name is not None:
                require_known(name, [agent.name for agent in await tables.agents.list(tx)], "agent")
            return await tables.agents.events(tx, name, limit=limit)

    found = run(with_tables(config, read))
    if is_json:
        print_json([fleet_event_json(event) for event in found])
        return
    if not found:
        typer.echo("No adapter was changed yet; change one: hermes fleet swap AGENT --to ADAPTER")
        return
    print_table(
        ("when", "agent", "what", "from", "to", "by", "reason"),
        (
            (
                f"{event.at:%Y-%m-%d %H:%M:%S}",
                event.agent,
                event.kind.removeprefix("adapter_").replace("_", " "),
                event.old or OWN_CHAIN,
                event.new or OWN_CHAIN,
                event.by,
                event.reason,
            )
            for event in found
        ),
    )


@fleet.command()
def processes(*, is_json: Json = False, config: Config = None) -> None:
    """List the processes of Hermes on all machines, with their state: live, stalled (no beat), silent (no turn ends), or stopped.

    Rows of processes that are gone stay for a day."""

    async def read(tables: Tables) -> tuple[Sequence[ProcessRecord], float]:
        async with tables.database.once() as tx:
            return await tables.processes.all(tx), tables.settings.work.stalled_after_s

    found, stalled_after_s = run(with_tables(config, read))
    if is_json:
        print_json([process_json(process, stalled_after_s) for process in found])
        return
    if not found:
        typer.echo("No process of Hermes has written its row yet; start them: hermes up")
        return
    print_table(
        ("state", "role", "host", "pid", "version", "started", "last beat", "jobs", "loop lag"),
        (
            (
                process.state(stalled_after_s),
                process.role,
                process.host,
                str(process.pid),
                process.version,
                f"{process.started_at:%Y-%m-%d %H:%M:%S}",
                f"{process.beat_age_s:.1f} s ago",
                str(process.running),
                f"{process.loop_lag_ms} ms",
            )
            for process in found
        ),
    )


@fleet.command()
def leader(*, is_json: Json = False, config: Config = None) -> None:
    """Show which process does each chore, since when and until when its lease lasts, when it was last done, and why it failed last.

    Only one process does a chore at a time. A process that loses its lease writes nothing more for the chore."""

    async def read(tables: Tables) -> tuple[Sequence[ChoreRecord], dict[UUID, ProcessRecord]]:
        async with tables.database.once() as tx:
            chores = await tables.chores.all(tx)
            return chores, {process.id: process for process in await tables.processes.all(tx)}

    chores, by_id = run(with_tables(config, read))
    if is_json:
        print_json([chore_json(chore, by_id) for chore in chores])
        return
    if not chores:
        typer.echo("No chore was done yet; a worker does them: hermes up")
        return
    print_table(
        ("chore", "state", "holder", "epoch", "since", "lease until", "last done", "last failure"),
        (
            (
                chore.name,
                "running" if chore.is_running else "waiting",
                holder_name(chore, by_id),
                str(chore.epoch),
                show_time(chore.taken_at),
                show_time(chore.held_until) if chore.is_running else "",
                show_time(chore.done_at),
                chore.failed or "",
            )
            for chore in chores
        ),
    )
