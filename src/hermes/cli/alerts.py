"""`hermes alerts`: what needs a person, whether its messages arrive, and which of them are muted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.moments import parse_moment
from hermes.cli.options import By, Config, Json, Limit, complete_from
from hermes.cli.output import CANNOT_RUN, fail, print_json, print_result, print_table
from hermes.cli.runtime import read_tables, run, settings_from, with_tables
from hermes.console.amounts import count_phrase
from hermes.ops.alert_events import ALERT_KINDS
from hermes.ops.alert_text import alert_json, trial_message
from hermes.ports.alerts import AlertDestination, AlertMute, AlertNotSent, StoredAlert
from hermes.ports.errors import NotFound, require_known
from hermes.ports.runtime import Transaction
from hermes.terminal import one_line

alerts = typer.Typer(
    no_args_is_help=True,
    help="Alerts to the operator: test, list, events, mute, unmute, mutes, end.\n\n"
    "Hermes raises an alert when something needs a person, and sends it to the destinations of `alerts.NAME` in the settings: Slack, "
    "Discord, a Telegram chat, or a signed webhook. The shortest way to one is a variable:\n\n"
    "    export HERMES_ALERTS_SLACK_URL=https://hooks.slack.com/services/…\n"
    "    hermes alerts test\n\n"
    "    hermes alerts list\n"
    '    hermes alerts mute breaker_opened "telegram bali" --for 2h\n\n'
    "Exit code 0 when it is done, 1 when a test did not arrive "
    "or the database cannot be reached, 2 for bad input.",
)
app.add_typer(alerts, name="alerts")

Event = Annotated[
    str,
    typer.Argument(
        metavar="EVENT", help="The alert, as `hermes alerts events` lists it.", autocompletion=complete_from(lambda: ALERT_KINDS)
    ),
]
Subject = Annotated[
    str, typer.Argument(metavar="[SUBJECT]", help="What it is about, as `list` shows it. Left out: every subject.", show_default=False)
]
DURATION = re.compile(r"(\d{1,6})([smhdw])", re.ASCII)
ALERT_ID = re.compile(r"[1-9]\d{0,17}", re.ASCII)
DURATION_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
TEST_TIMEOUT_S = 10.0


@alerts.command("test")
def try_destinations(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this destination.", show_default=False)] = None,
    *,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Send a test to each destination now, and say whether it arrived. Needs no database."""
    settings = settings_from(config)
    if not settings.alerts:
        fail("no destination is set up; set HERMES_ALERTS_SLACK_URL, or write a table [alerts.NAME]: see docs/operate/alerts.md")

    async def send_all() -> list[TrialResult]:
        async with lazy_parts().load_app("alerting").open_destinations(settings) as found:
            if name is not None:
                require_known(name, [routed.destination.name for routed in found], "destination")
            results = []
            for routed in found:
                if name in {None, routed.destination.name}:
                    results.append(await send_trial(routed.destination))
                    if not is_json:
                        typer.echo(f"{routed.destination.name}: {one_line(results[-1].failed) or 'it arrived'}")
            return results

    results = run(send_all())
    if is_json:
        print_json([{"destination": each.destination, "arrived": not each.failed, "failed": each.failed or None} for each in results])
    if any(each.failed for each in results):
        raise typer.Exit(CANNOT_RUN)


@alerts.command("list")
def list_(
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Also alerts that have ended.")] = False,
    is_open: Annotated[bool, typer.Option("--open", help="Only open alerts; the default.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Alerts that happened since then, open or ended: 24h, 7d, 2026-11-15.", show_default=False
        ),
    ] = None,
    limit: Limit = 100,
    is_json: Json = False,
    config: Config = None,
) -> None:
    """List the open alerts, the newest first."""
    if is_all and is_open:
        fail("give --all or --open, not both")
    moment = parse_moment(since) if since is not None else None
    only_open = is_open or not (is_all or since)

    async def read(tables: Tables, tx: Transaction) -> list[StoredAlert]:
        return await tables.alerts.list(tx, is_open=only_open, since=moment, limit=limit)

    found = run(read_tables(config, read))
    if is_json:
        print_json([alert_json(alert) for alert in found])
        return
    if not found:
        typer.echo("There is no open alert." if only_open else "There is no alert.")
        return
    print_table(
        ("id", "level", "alert", "subject", "times", "first", "last", "ended", "facts"),
        (
            (
                str(alert.id),
                alert.level,
                alert.event,
                one_line(alert.subject),
                str(alert.times),
                shown_time(alert.first_at),
                shown_time(alert.last_at),
                f"{shown_time(alert.ended_at)} by {one_line(alert.ended_by or '')}" if alert.ended_at else "",
                one_line(", ".join(f"{name} {value}" for name, value in alert.facts.items())),
            )
            for alert in found
        ),
    )


@alerts.command()
def events(*, is_json: Json = False) -> None:
    """List every alert that Hermes can raise: how urgent it is, what it means, and what to do. Needs no database."""
    if is_json:
        print_json(
            [
                {"event": event, "level": kind.level, "subject": list(kind.subject), "meaning": kind.meaning, "advice": kind.advice}
                for event, kind in sorted(ALERT_KINDS.items())
            ]
        )
        return
    for event, kind in sorted(ALERT_KINDS.items()):
        typer.secho(f"{event} ({kind.level})", bold=True)
        typer.echo(f"    {kind.meaning}\n    {kind.advice}")


@alerts.command()
def mute(
    event: Event,
    subject: Subject = "",
    *,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 2h, 1d.")] = "1h",
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """Send no messages about an alert for a while. It is still recorded and logged."""
    seconds = parse_duration(duration)
    known = known_event(event)

    async def act(tables: Tables) -> AlertMute:
        about = f"{known} {subject}".strip()
        audited = lazy_parts().load_audited()
        await audited.audit_command(tables.settings, tables.database, "alert.mute", "alert", about, for_s=seconds)
        async with tables.database.begin() as tx:
            return await tables.alerts.mute(tx, known, storable_name(subject), for_s=seconds, by=storable_name(by))

    found = run(with_tables(config, act))
    about = f"{found.event} ({found.subject})" if found.subject else found.event
    print_result(mute_json(found), f"{about} is muted until {shown_time(found.until)} UTC.", is_json=is_json)


@alerts.command()
def unmute(event: Event, subject: Subject = "", *, is_json: Json = False, config: Config = None) -> None:
    """Send messages about an alert again."""
    known = known_event(event)

    async def act(tables: Tables) -> None:
        audited = lazy_parts().load_audited()
        await audited.audit_command(tables.settings, tables.database, "alert.unmute", "alert", f"{known} {subject}".strip())
        async with tables.database.begin() as tx:
            if not await tables.alerts.unmute(tx, known, storable_name(subject)):
                raise NotFound("there is no such mute; `hermes alerts mutes` shows them. Nothing changed")

    run(with_tables(config, act))
    print_result({"event": known, "subject": subject}, f"{known} is not muted any more.", is_json=is_json)


@alerts.command()
def mutes(*, is_json: Json = False, config: Config = None) -> None:
    """List what is muted."""

    async def read(tables: Tables, tx: Transaction) -> Sequence[AlertMute]:
        return await tables.alerts.mutes(tx)

    found = run(read_tables(config, read))
    if is_json:
        print_json([mute_json(each) for each in found])
    elif not found:
        typer.echo("Nothing is muted.")
    else:
        rows = ((each.event, one_line(each.subject) or "every", shown_time(each.until), one_line(each.by)) for each in found)
        print_table(("alert", "subject", "until", "by"), rows)


@alerts.command()
def end(
    number: Annotated[str, typer.Argument(metavar="ID", help="The number of the alert, as `list` shows it.")],
    *,
    by: By = "operator",
    is_json: Json = False,
    config: Config = None,
) -> None:
    """End an alert: its next time is a new alert, with new messages."""
    if not ALERT_ID.fullmatch(number):
        fail(f"{one_line(number)!r} is not the number of an alert; `hermes alerts list` shows them")
    alert_id = int(number)

    async def act(tables: Tables) -> StoredAlert:
        audited = lazy_parts().load_audited()
        await audited.audit_command(tables.settings, tables.database, "alert.end", "alert", str(alert_id))
        async with tables.database.begin() as tx:
            found = await tables.alerts.end(tx, alert_id, storable_name(by))
        if found is None:
            raise NotFound(f"there is no alert {alert_id}; `hermes alerts list --all` shows them")
        return found

    found = run(with_tables(config, act))
    print_result(alert_json(found), f"{found.event} has ended: {count_phrase(found.times, 'time')}.", is_json=is_json)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What became of a test: "" if it arrived, or why it did not."""

    destination: str
    failed: str = ""


async def send_trial(destination: AlertDestination) -> TrialResult:
    try:
        await destination.send(trial_message(destination.name, datetime.now(UTC)), timeout_s=TEST_TIMEOUT_S)
    except AlertNotSent as error:
        return TrialResult(destination.name, f"it did not arrive: {error}")
    return TrialResult(destination.name)


def known_event(event: str) -> str:
    try:
        return require_known(event, ALERT_KINDS, "alert")
    except NotFound as error:
        fail(str(error))


def parse_duration(text: str) -> float:
    """Read a time such as `2h`. Fails for anything else, and for more than a year."""
    found = DURATION.fullmatch(text.strip())
    seconds = int(found[1]) * DURATION_UNITS[found[2]] if found else 0
    if not 0 < seconds <= timedelta(days=366).total_seconds():
        fail(f"--for {text!r} is not a time; expected 30m, 2h, 1d or 2w")
    return float(seconds)


def storable_name(text: str) -> str:
    """Replace what PostgreSQL cannot store."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def shown_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M}"


def mute_json(muted: AlertMute) -> dict[str, Any]:
    return {"event": muted.event, "subject": muted.subject, "until": muted.until.isoformat(), "by": muted.by}
