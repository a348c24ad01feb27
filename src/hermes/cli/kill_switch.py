"""`hermes kill-switch`: stop every call of a model, in every process, until a person allows them again."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import typer

from hermes.app import Hermes
from hermes.cli.commands import app
from hermes.cli.errors import fail
from hermes.cli.runtime import Config, run, with_hermes
from hermes.ports.budgets import CallsPaused, KillSwitchRecord, PauseReason
from hermes.ports.errors import StoreUnavailable
from hermes.terminal import one_line

kill_switch = typer.Typer(
    no_args_is_help=True,
    help="Stop every call of a model: on, off, status.\n\n"
    '    hermes kill-switch on "the bill explodes"\n\n'
    "It holds in every running process within a second, over restarts, and without Redis; only `off` ends it. Messages are still taken in. "
    "Exit code 0 when it is done, 1 when it could not be done or read, 2 for bad input.",
)
app.add_typer(kill_switch, name="kill-switch")

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
By = Annotated[str, typer.Option("--by", envvar=["USER", "USERNAME"], show_envvar=False, help="Who does it; it is written down.")]


@kill_switch.command()
def on(
    reason: Annotated[str, typer.Argument(help="Why; whoever finds Hermes stopped reads this.")],
    *,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Stop all calls, now. Where they are stopped already, the first reason stands."""
    if not reason.strip():
        fail("say why: whoever finds Hermes stopped has nothing else to go by")

    async def stop(hermes: Hermes) -> KillSwitchStatus:
        await hermes.spend.kill_switch(storable_text(reason), storable_text(by))
        return KillSwitchStatus(await hermes.spend.kill_switch_record())

    _show(run(_with_hermes(config, stop, "it is not sure that all calls are stopped; do it again")), is_json=is_json)


@kill_switch.command()
def off(*, by: By = "operator", is_json: Json = False, config: Config = None) -> None:
    """Allow calls again. A daily cap that was reached goes on to hold."""

    async def allow(hermes: Hermes) -> KillSwitchStatus:
        await hermes.spend.release(storable_text(by))
        return await _read_status(hermes)

    _show(run(_with_hermes(config, allow, "it is not sure that calls are allowed again; do it again")), is_json=is_json)


@kill_switch.command()
def status(*, is_json: Json = False, config: Config = None) -> None:
    """Say whether calls are stopped, since when, by whom, and why."""
    _show(run(_with_hermes(config, _read_status, "nobody can say whether calls are stopped")), is_json=is_json)


@dataclass(frozen=True, slots=True)
class KillSwitchStatus:
    """What holds now: the latch, and else the daily cap."""

    latch: KillSwitchRecord | None
    capped_until: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        latch, until = self.latch, self.capped_until
        told = {"engaged_at": latch.engaged_at.isoformat(), "by": latch.by, "reason": latch.reason} if latch else {}
        return {"engaged": latch is not None, **told, "capped_until": until.isoformat() if until else None}


async def _read_status(hermes: Hermes) -> KillSwitchStatus:
    latch = await hermes.spend.kill_switch_record()
    if latch is None:
        try:
            await hermes.spend.admit(hermes.gateway.cap_micro_usd)
        except CallsPaused as paused:
            if paused.reason is PauseReason.CAP:
                return KillSwitchStatus(None, paused.until)
            latch = await hermes.spend.kill_switch_record()  # engaged a moment ago, elsewhere
    return KillSwitchStatus(latch)


async def _with_hermes(config: Any, act: Callable[[Hermes], Coroutine[Any, Any, KillSwitchStatus]], otherwise: str) -> KillSwitchStatus:
    """Do it. Where PostgreSQL is away, nobody is left in doubt about what that means: nothing lasts without it."""
    try:
        return await with_hermes(config, act)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"{otherwise}: {error}") from error


def _show(standing: KillSwitchStatus, *, is_json: bool) -> None:
    latch = standing.latch
    if is_json:
        typer.echo(json.dumps(standing.to_dict()))
    elif latch is not None:
        typer.secho(
            f"All calls of models are stopped since {latch.engaged_at:%Y-%m-%d %H:%M:%S} UTC, by {latch.by}: {one_line(latch.reason)}",
            bold=True,
        )
        typer.echo("Allow them again: hermes kill-switch off")
    elif standing.capped_until is not None:
        typer.echo(f"The kill switch is off. The daily cap is reached: calls are refused until {standing.capped_until:%Y-%m-%d %H:%M} UTC.")
    else:
        typer.echo("The kill switch is off; models may be called.")


def storable_text(text: str) -> str:
    """A text that can be stored whatever the terminal sent: an emergency must not fail for an umlaut."""
    return text.encode("utf-8", "replace").decode()
