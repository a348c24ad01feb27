"""`hermes models` plan, set, swap, share, rollback: the plan of the chains. A change checks backends, so it loads a whole Hermes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import lazy_parts
from hermes.cli.models import models
from hermes.cli.options import Config, Json
from hermes.cli.output import print_json, print_result, print_table, storable_text
from hermes.cli.runtime import complete_models, complete_tiers, run, with_hermes, with_tables
from hermes.console.models import ModelBoard, describe_plan, plan_json
from hermes.gateway.model_plans import ALL_CHATS
from hermes.ports.models import ModelPlan
from hermes.terminal import one_line

if TYPE_CHECKING:
    from hermes.app.root import Hermes

OF_SETTINGS = "settings"
"""Typed instead of a chain: the chain of the settings."""
Share = Annotated[int, typer.Option(min=1, max=ALL_CHATS, metavar="PERCENT", help="The share of the chats that use it, in per cent.")]
Reason = Annotated[str, typer.Option(help="Why; other operators see it.", show_default=False)]
ModelName = Annotated[str, typer.Argument(metavar="MODEL", autocompletion=complete_models)]


@models.command()
def plan(*, is_json: Json = False, config: Config = None) -> None:
    """Show the plan that holds and the plans before it, the newest first."""

    async def read(tables: Tables) -> Sequence[ModelPlan]:
        async with tables.database.once() as tx:
            return await tables.model_plans.newest(tx, limit=20)

    found = run(with_tables(config, read))
    if is_json:
        print_json([plan_json(each) for each in found])
    elif not found:
        typer.echo("There is no plan: all chats use the chains of the settings.")
    else:
        rows = ((str(each.version), f"{each.at:%Y-%m-%d %H:%M:%S}", describe_plan(each), each.by, one_line(each.reason)) for each in found)
        print_table(("plan", "since", "chains", "by", "reason"), rows)


@models.command("set")
def set_(
    tier: Annotated[str, typer.Argument(metavar="TIER", autocompletion=complete_tiers)],
    chain: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL…",
            help=f"Its models in the order in which they are tried; `{OF_SETTINGS}` for the chain of the settings.",
            autocompletion=complete_models,
        ),
    ],
    *,
    share: Share = ALL_CHATS,
    reason: Reason = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give a tier another chain, in every process, without a restart. Calls under way end on the old one."""
    wanted = [] if chain == [OF_SETTINGS] else chain
    change(
        config, lambda board: board.set_chain(command_actor(), tier, wanted, percent=share, reason=storable_text(reason)), is_json=is_json
    )


@models.command()
def swap(
    old: ModelName,
    new: ModelName,
    *,
    share: Share = ALL_CHATS,
    reason: Reason = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Exchange a model for another one in every chain, in every process, without a restart."""
    change(config, lambda board: board.swap(command_actor(), old, new, percent=share, reason=storable_text(reason)), is_json=is_json)


@models.command()
def share(
    percent: Annotated[int, typer.Argument(min=1, max=ALL_CHATS, help="Per cent of the chats; 100 ends the trial.")],
    *,
    reason: Reason = "",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Give the plan on trial another share of the chats. A chat that uses it already stays with it while the share grows."""
    change(config, lambda board: board.set_share(command_actor(), percent, reason=storable_text(reason)), is_json=is_json)


@models.command()
def rollback(*, reason: Reason = "", is_json: Json = False, config: Config = None) -> None:
    """End the trial, or else return to the chains before the newest plan."""
    change(config, lambda board: board.roll_back(command_actor(), reason=storable_text(reason)), is_json=is_json)


def change(config: Path | None, act: Callable[[ModelBoard], Awaitable[ModelPlan]], *, is_json: bool) -> None:
    """Change the plan and show it."""

    async def whole(hermes: Hermes) -> ModelPlan:
        return await act(lazy_parts().load_app("console_models").model_board_from(hermes))

    done = run(with_hermes(config, whole))
    print_result(plan_json(done), f"Plan {done.version} holds: {describe_plan(done)}.", is_json=is_json)
