"""`hermes doctor`: check every part. It prints what it knows at once, and loads the whole Hermes only for the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from hermes.app.doctor_basics import Health, HealthFinding, examine_basics
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import Config
from hermes.cli.output import CANNOT_RUN, output_console, print_json
from hermes.cli.runtime import run, settings_from
from hermes.config import Settings

MARKS = {Health.GOOD: "[green]✓[/]", Health.WARNING: "[yellow]![/]", Health.BAD: "[red]✗[/]"}


@app.command()
def doctor(*, config: Config = None, is_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False) -> None:
    """Check every part of Hermes on this machine, and say what to do. Exit code 1 when something must be done."""
    settings = settings_from(config)

    async def collect() -> bool:
        console, findings = output_console(), []
        async for finding in examine_all(settings):
            findings.append(finding)
            if not is_json:
                print_finding(console, finding)
        if is_json:
            print_json([finding_json(finding) for finding in findings])
        return all(finding.health is not Health.BAD for finding in findings)

    if not run(collect()):
        raise typer.Exit(CANNOT_RUN)


async def examine_all(settings: Settings) -> AsyncIterator[HealthFinding]:
    """Yield the findings of all parts. The SDK of MCP servers is loaded only if the settings name one."""
    async for finding in examine_basics(settings):
        yield finding
    load = lazy_parts().load_app
    async for finding in load("doctor").examine(settings):
        yield finding
    if settings.mcp:
        async for finding in load("mcp_tools").check_mcp_servers(settings):
            yield finding


def print_finding(console: Console, finding: HealthFinding) -> None:
    advice = f"\n    [dim]{escape(finding.advice)}[/]" if finding.advice else ""
    console.print(f" {MARKS[finding.health]} [bold]{finding.part:<11}[/] {escape(finding.says)}{advice}", highlight=False)


def finding_json(finding: HealthFinding) -> dict[str, str]:
    return {"part": finding.part, "health": finding.health, "says": finding.says, "advice": finding.advice}
