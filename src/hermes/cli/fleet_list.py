"""`hermes fleet list`: the agents, and the health of their adapters. Only if an agent has an adapter, it loads a whole Hermes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from hermes.app.tables import Tables
from hermes.cli.fleet import fleet
from hermes.cli.options import Config, Json
from hermes.cli.output import Cell, print_json, print_table
from hermes.cli.runtime import read_tables, run, with_hermes
from hermes.console.amounts import show_usd
from hermes.gateway.fleet_views import checks_json
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, adapter_label
from hermes.terminal import one_line

if TYPE_CHECKING:
    from hermes.app.root import Hermes

MARKS = {FindingLevel.INFO: "green", FindingLevel.WARN: "yellow", FindingLevel.ERROR: "red"}


@fleet.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the agents, with the adapter of each one and the health of its backend."""

    async def read(tables: Tables, tx: Transaction) -> Sequence[Agent]:
        return await tables.agents.list(tx)

    async def check(hermes: Hermes) -> dict[str, Sequence[BackendFinding]]:
        known = sorted(adapters & hermes.gateway.catalogue.models.keys())
        checks = await asyncio.gather(*(hermes.fleet.check(adapter, timeout_s=5.0) for adapter in known))
        return dict(zip(known, checks, strict=True))

    agents = run(read_tables(config, read))
    adapters = {agent.adapter for agent in agents if agent.adapter}
    health = run(with_hermes(config, check)) if adapters else {}
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
