"""`hermes fleet`: list agents, and change the model adapter of an agent while it answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from rich.text import Text

from hermes.app.catalogue import models_of
from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.fleet_processes import chore_json, holder_name, process_json, show_time
from hermes.cli.options import By, Config, Json, Limit
from hermes.cli.output import CANNOT_RUN, Cell, complain, fail, print_json, print_result, print_table, show_usd
from hermes.cli.runtime import complete_models, complete_setting, complete_tiers, run, with_hermes, with_tables
from hermes.gateway.fleet import SwapFailed, SwapResult, adapter_label
from hermes.gateway.fleet_views import checks_json, fleet_event_json, swap_json
from hermes.gateway.prices import PER_MILLION
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import require_known
from hermes.ports.processes import ProcessRecord
from hermes.ports.runtime import ChoreRecord
from hermes.ports.users import Agent, FleetEvent, Tone
from hermes.terminal import one_line

if TYPE_CHECKING:
    from hermes.app.root import Hermes

NO_CAP = "none"
"""Typed instead of an amount: the agent may spend without a limit."""
MAX_CAP_MICRO_USD = 999_998 * PER_MILLION
"""Below the amount that stands for the kill switch."""
OWN_CHAIN = "tier"
"""Typed instead of an adapter: the agent uses the chain of its tier."""

AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MARKS = {FindingLevel.INFO: "green", FindingLevel.WARN: "yellow", FindingLevel.ERROR: "red"}

fleet = typer.Typer(
    no_args_is_help=True,
    help="Agents, their adapters and spend caps, and the processes of Hermes: list, swap, events, add, cap, processes, leader.\n\n"
    "An adapter is the name of a model in the settings: claude-sonnet, codex_local, scripted. An agent without an adapter uses the "
    "chain of its tier. To move an agent to another model in an outage:\n\n"
    "    hermes fleet swap hermes --to codex_local\n\n"
    "Hermes first checks the health of the new adapter, and afterwards makes one small real call. If either fails, the old adapter stays.",
)
app.add_typer(fleet, name="fleet")


@fleet.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the agents, with the adapter of each one and the health of its backend."""

    async def read(hermes: Hermes) -> tuple[Sequence[Agent], dict[str, Sequence[BackendFinding]]]:
        async with hermes.database.begin() as tx:
            agents = await hermes.adapters.agents.list(tx)
        known = sorted({agent.adapter for agent in agents if agent.adapter} & hermes.gateway.catalogue.models.keys())
        checks = await asyncio.gather(*(hermes.fleet.check(adapter, timeout_s=5.0) for adapter in known))
        return agents, dict(zip(known, checks, strict=True))

    agents, health = run(with_hermes(config, read))
    if is_json:
        print_json([{**asdict(agent), "health": checks_json(health.get(agent.adapter or "", ()))} for agent in agents])
        return
    print_table(
        ("agent", "adapter", "tier", "folder", "cap", "answers on", "health"),
        (
            (
                agent.name,
                adapter_label(agent.adapter),
                agent.tier or "the user's",
                agent.cwd or "",
                "" if agent.daily_micro_usd is None else f"{show_usd(agent.daily_micro_usd)} a day",
                ", ".join(agent.accounts) or ("every other account" if agent.name == "hermes" else "no account"),
                _health_cell(agent, health),
            )
            for agent in agents
        ),
    )


@fleet.command()
def swap(
    name: Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose adapter you change.")],
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="ADAPTER",
            help=f"The new adapter; `{OWN_CHAIN}` for the chain of the agent's tier.",
            autocompletion=complete_setting(lambda settings: (OWN_CHAIN, *models_of(settings))),
        ),
    ],
    is_fresh: Annotated[bool, typer.Option("--fresh-cwd", help="Do not keep the agent's working folder.")] = False,
    is_tried: Annotated[bool, typer.Option("--canary/--no-canary", help="Make one small real call afterwards.")] = True,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give an agent another adapter, in every running process, without a restart. Running calls end on the old one.

    Exit code 1 when the swap was refused or taken back: the old adapter stays. Exit code 2 when there is no such agent or adapter."""
    adapter = None if to == OWN_CHAIN else to

    async def act(hermes: Hermes) -> SwapResult | SwapFailed:
        canary = lazy_parts().load_app("canary").canary_of(hermes) if is_tried else None
        try:
            return await hermes.fleet.swap(name, adapter, by=by, preserve_cwd=not is_fresh, canary=canary)
        except SwapFailed as error:
            return error

    done = run(with_hermes(config, act))
    if is_json:
        print_json(swap_json(done, adapter))
    elif isinstance(done, SwapResult):
        _print_swap(done)
    if isinstance(done, SwapFailed):
        complain(str(done))
        raise typer.Exit(CANNOT_RUN)


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
def add(
    name: Annotated[str, typer.Argument(help="The name: letters, digits, and . _ - between them.")],
    *,
    tier: Annotated[
        str | None, typer.Option(help="The tier of its answers.", show_default="the user's tier", autocompletion=complete_tiers)
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(help="Its adapter.", show_default="the chain of its tier", autocompletion=complete_models)
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option(help="The working folder of its adapter, on the workers' machines.", show_default=False)
    ] = None,
    account: Annotated[list[str] | None, typer.Option(help="An account that it answers on; repeatable.", show_default=False)] = None,
    tone: Annotated[Tone, typer.Option(help="How it speaks.")] = Tone.FRIENDLY,
    role: Annotated[str, typer.Option(help="Its task, in one sentence; it is part of the prompt.", show_default=False)] = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Create an agent, for instance: hermes fleet add bali --adapter claude-sonnet --account shop."""
    if not AGENT_NAME.fullmatch(name):
        fail(f"{name!r} cannot be the name of an agent; expected up to 64 letters, digits, and . _ - between them, such as bali-2")
    folder = None if cwd is None else str(cwd.expanduser().absolute())

    async def make(hermes: Hermes) -> tuple[Agent, bool]:
        catalogue = hermes.gateway.catalogue
        if tier is not None:
            require_known(tier, catalogue.tiers, "tier")
        if adapter is not None:
            hermes.fleet.require_adapter(adapter)
        agent = Agent(name=name, tone=tone, role=role, tier=tier, adapter=adapter, cwd=folder, accounts=tuple(account or ()))
        async with hermes.database.begin() as tx:
            return await hermes.adapters.agents.add(tx, agent)

    made, is_new = run(with_hermes(config, make))
    if not is_new:
        fail(f"there is an agent {name} already; change its adapter: hermes fleet swap {name} --to ADAPTER")
    where = f"answers on {', '.join(made.accounts)}" if made.accounts else "answers on no account yet"
    print_result(asdict(made), f"{name} uses {adapter_label(made.adapter)} and {where}.", is_json=is_json)


@fleet.command()
def cap(
    name: Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose spend you limit.")],
    usd: Annotated[
        str | None,
        typer.Argument(
            metavar="USD", help=f"US dollars that its calls may cost in a day (UTC), or `{NO_CAP}`; without it, show.", show_default=False
        ),
    ] = None,
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Limit what an agent may spend in a day, in every running process, for instance: hermes fleet cap bali 5.

    At the cap the agent's users are told that it pauses, until the next day (UTC). 80 % and 100 % raise the alert budget_threshold. The
    setting fleet.daily_usd limits all agents together."""
    wanted = None if usd in {None, NO_CAP} else _parse_usd(str(usd))

    async def act(hermes: Hermes) -> tuple[Agent, int]:
        async with hermes.database.begin() as tx:
            found = {agent.name: agent for agent in await hermes.adapters.agents.list(tx)}
        agent = found[require_known(name, found, "agent")]
        if usd is not None:
            agent = await hermes.fleet.set_cap(name, wanted)
        return agent, (await hermes.adapters.agent_spend.spent_today()).get(name, 0)

    agent, spent = run(with_hermes(config, act))
    limit = agent.daily_micro_usd
    print_result(
        {"name": name, "daily_micro_usd": limit, "spent_micro_usd": spent},
        f"{name} {'has no spend cap' if limit is None else f'may spend {show_usd(limit)} a day'}; it has spent {show_usd(spent)} today.",
        is_json=is_json,
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


def _parse_usd(text: str) -> int:
    """Micro-dollars, exactly."""
    try:
        amount = Decimal(text.removeprefix("$")) * PER_MILLION
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or not 0 <= amount <= MAX_CAP_MICRO_USD or amount != amount.to_integral_value():
        fail(f"{text!r} is no amount in US dollars; expected a number such as 5 or 0.50, or `{NO_CAP}`")
    return int(amount)


def _print_swap(done: SwapResult) -> None:
    name, now = done.agent.name, adapter_label(done.agent.adapter)
    if not done.is_changed:
        typer.echo(f"{name} uses {now} already; nothing changed.")
        return
    folder = f", in {done.agent.cwd}" if done.agent.cwd else ""
    typer.echo(f"{name} uses {now} now{folder}; before, {adapter_label(done.old)}.")
    for check in done.checks:
        if check.level is FindingLevel.WARN:
            typer.secho(f"  {check.message}" + (f" ({check.hint})" if check.hint else ""), fg="yellow", err=True)


def _health_cell(agent: Agent, health: dict[str, Sequence[BackendFinding]]) -> Cell:
    """Return the worst finding, in the colour of its level."""
    if agent.adapter is None:
        return ""
    if agent.adapter not in health:
        return Text("not in the settings", "red")
    worst = max(health[agent.adapter], key=lambda check: list(MARKS).index(check.level), default=None)
    if worst is None or worst.level is FindingLevel.INFO:
        return Text("ok", "green")
    return Text(one_line(worst.message), MARKS[worst.level])
