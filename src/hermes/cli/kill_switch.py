"""`hermes kill-switch`: stop all model calls in every process, until the operator allows them again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes.app.kill_switch import engage_from_command, read_kill_switch
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import By, Config, Json
from hermes.cli.output import fail, print_json, storable_text
from hermes.cli.runtime import run, with_tables
from hermes.ports.credits import KillSwitchRecord
from hermes.ports.errors import StoreUnavailable
from hermes.terminal import one_line

kill_switch = typer.Typer(
    no_args_is_help=True,
    help="Stop all model calls: on, off, status.\n\n"
    '    hermes kill-switch on "the bill explodes"\n\n'
    "Every running process obeys within a second, also after a restart and without Redis; calls that are under way end too, and what they "
    "used is charged. Only `off` ends it. Hermes still takes messages. "
    "Exit code 0 when it is done, 1 when it could not be done or read, 2 for bad input.",
)
app.add_typer(kill_switch, name="kill-switch")


@kill_switch.command()
def on(
    reason: Annotated[str, typer.Argument(help="The reason; `hermes kill-switch status` shows it.")],
    *,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Stop all model calls now. If they are stopped already, the first reason stays."""
    if not reason.strip():
        fail("give a reason: `hermes kill-switch status` shows it to other operators")

    async def stop(tables: Tables) -> KillSwitchStatus:
        return KillSwitchStatus(await engage_from_command(tables, command_actor(), storable_text(reason), by=storable_text(by)))

    _show(run(_with_tables(config, stop, "it is not certain that all calls are stopped; repeat the command")), is_json=is_json)


@kill_switch.command()
def off(*, by: By = "operator", is_json: Json = False, config: Config = None) -> None:
    """Allow model calls again. If the daily cap is reached, it still holds."""

    async def allow(tables: Tables) -> KillSwitchStatus:
        await lazy_parts().load_app("kill_switch_spend").release_from_command(tables, command_actor(), by=storable_text(by))
        return await _read_status(tables)

    _show(run(_with_tables(config, allow, "it is not certain that calls are allowed again; repeat the command")), is_json=is_json)


@kill_switch.command()
def status(*, is_json: Json = False, config: Config = None) -> None:
    """Show whether model calls are stopped, since when, who stopped them, and why."""
    _show(run(_with_tables(config, _read_status, "cannot tell whether calls are stopped")), is_json=is_json)


@dataclass(frozen=True, slots=True)
class KillSwitchStatus:
    """What stops calls now: the kill switch, or else the daily cap."""

    latch: KillSwitchRecord | None
    capped_until: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        latch, until = self.latch, self.capped_until
        values = {"engaged_at": latch.engaged_at.isoformat(), "by": latch.by, "reason": latch.reason} if latch else {}
        return {"engaged": latch is not None, **values, "capped_until": until.isoformat() if until else None}


async def _read_status(tables: Tables) -> KillSwitchStatus:
    latch = await read_kill_switch(tables)
    if latch is None and tables.settings.llm.global_daily_budget_usd is not None:
        return KillSwitchStatus(None, await lazy_parts().load_app("kill_switch_spend").read_cap_end(tables))
    return KillSwitchStatus(latch)


async def _with_tables(
    config: Path | None, act: Callable[[Tables], Coroutine[Any, Any, KillSwitchStatus]], otherwise: str
) -> KillSwitchStatus:
    """Call `act` with open tables. If PostgreSQL is unreachable, the error begins with `otherwise`: what that means."""
    try:
        return await with_tables(config, act)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{otherwise}: {error}") from error


def _show(standing: KillSwitchStatus, *, is_json: bool) -> None:
    latch = standing.latch
    if is_json:
        print_json(standing.to_dict())
    elif latch is not None:
        typer.secho(
            f"All model calls are stopped since {latch.engaged_at:%Y-%m-%d %H:%M:%S} UTC, by {latch.by}: {one_line(latch.reason)}",
            bold=True,
        )
        typer.echo("Allow them again: hermes kill-switch off")
    elif standing.capped_until is not None:
        typer.echo(f"The kill switch is off. The daily cap is reached: calls are refused until {standing.capped_until:%Y-%m-%d %H:%M} UTC.")
    else:
        typer.echo("The kill switch is off; model calls are allowed.")
