"""`hermes fleet` swap, add, cap: what agents speak through and what they may spend. Needs models, so it loads a whole Hermes."""

from __future__ import annotations

import re
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes.app.catalogue import models_of, tiers_of
from hermes.cli.audited import audit_command
from hermes.cli.commands import lazy_parts
from hermes.cli.fleet import OWN_CHAIN, fleet
from hermes.cli.options import By, Config, Json
from hermes.cli.output import CANNOT_RUN, complain, fail, print_json, print_result
from hermes.cli.runtime import complete_models, complete_setting, complete_tiers, run, with_hermes
from hermes.console.amounts import show_usd
from hermes.gateway.fleet import SwapFailed, SwapResult
from hermes.gateway.fleet_views import swap_json
from hermes.gateway.prices import PER_MILLION
from hermes.ports.backends import FindingLevel
from hermes.ports.errors import require_known
from hermes.ports.users import Agent, Tone, adapter_label

if TYPE_CHECKING:
    from hermes.app.root import Hermes

NO_CAP = "none"
"""Typed instead of an amount: the agent may spend without a limit."""
MAX_CAP_MICRO_USD = 999_998 * PER_MILLION
"""Below the amount that stands for the kill switch."""

AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MARKS = {FindingLevel.INFO: "green", FindingLevel.WARN: "yellow", FindingLevel.ERROR: "red"}


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
        await audit_command(hermes.settings, hermes.database, "fleet.swap", "agent", name, to=adapter)
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
        if tier is not None:
            require_known(tier, tiers_of(hermes.settings), "tier")
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
            await audit_command(hermes.settings, hermes.database, "fleet.cap", "agent", name, to_micro_usd=wanted)
            agent = await hermes.fleet.set_cap(name, wanted)
        return agent, (await hermes.adapters.agent_spend.spent_today()).get(name, 0)

    agent, spent = run(with_hermes(config, act))
    limit = agent.daily_micro_usd
    print_result(
        {"name": name, "daily_micro_usd": limit, "spent_micro_usd": spent},
        f"{name} {'has no spend cap' if limit is None else f'may spend {show_usd(limit)} a day'}; it has spent {show_usd(spent)} today.",
        is_json=is_json,
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
