"""`hermes costs`: what model calls cost, split by what the operator asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from hermes.app.console_costs import costs_from
from hermes.app.tables import Tables
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.options import Config, Json, complete_from
from hermes.cli.output import fail, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.amounts import count_phrase, show_usd
from hermes.console.costs import MAX_EXPORTED_ROWS, CostQueryInvalid, CostReport, parse_dimension, parse_window, row_as_json, write_csv
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.costs import CostDimension, CostRow


@app.command()
def costs(
    *,
    by: Annotated[
        str,
        typer.Option(
            "--by", help=f"What to split the costs by: {', '.join(CostDimension)}.", autocompletion=complete_from(lambda: CostDimension)
        ),
    ] = "day",
    since: Annotated[
        str,
        typer.Option("--since", metavar="WHEN", help="From when on: 30d (UTC days, with today), 24h, 2026-11-15, 2026-11-15T12:00 (UTC)."),
    ] = "30d",
    is_json: Json = False,
    is_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
    config: Config = None,
) -> None:
    """Show what model calls cost, by user, tier, channel, agent, key, model, tool, purpose or day.

    For instance: hermes costs --by agent --since 7d. A purpose is what a call was for: answer, conclude (after tools), compact (a long
    history), remember, dream, completions, batch, canary, replay. By tool, a concluding call is shared equally by the tools that ran before
    it. Refused calls cost nothing and are counted apart."""
    if is_json and is_csv:
        fail("--json and --csv are two formats; choose one")

    async def read(tables: Tables) -> CostReport:
        await HourSummer(tables.database, tables.spend_sums).sum_recent()  # then the last minute is in it, also without a worker
        return await costs_from(tables.database).read(command_actor(), by, since, limit=MAX_EXPORTED_ROWS)

    try:
        parse_dimension(by)
        parse_window(since, datetime.now(UTC))
    except CostQueryInvalid as error:
        fail(str(error))
    report = run(with_tables(config, read))
    if is_json:
        print_json([row_as_json(row, report.by) for row in report.rows])
    elif is_csv:
        typer.echo(write_csv(report), nl=False)
    elif not report.rows:
        typer.echo(f"No model was called since {report.window.since:%Y-%m-%d %H:%M} UTC.")
    else:
        _print(report)


def _print(report: CostReport) -> None:
    rows = [row for row in report.rows if row.micro_usd or _count(row) or not row.micro_usd_before]  # some are of the window before alone
    total = report.micro_usd
    shown: list[tuple[str, Callable[[CostRow], str]]] = [
        (report.by.value, lambda row: _name(report, row.value)),
        ("cost", lambda row: show_usd(row.micro_usd)),
        ("share", lambda row: f"{row.micro_usd / total:.0%}" if total else ""),
        *((title, show) for column, title, show in COLUMNS if any(getattr(row, column) is not None for row in rows)),
    ]
    print_table([title for title, _ in shown], [[show(row) for _, show in shown] for row in rows])
    counted = "run" if report.by is CostDimension.TOOL else "call"
    counts = [(row.calls if report.by is not CostDimension.TOOL else row.runs) or 0 for row in rows]
    typer.echo(f"In all {show_usd(total)} for {count_phrase(sum(counts), counted)}.")


def _count(row: CostRow) -> int:
    """How many calls a row has; how many runs, if it is a tool's."""
    return (row.calls or 0) + (row.refused or 0) + (row.runs or 0)


def _name(report: CostReport, value: str | None) -> str:
    name = report.name_value(value)
    return f"{name} ({value})" if value in report.names else name


def _show(column: str) -> Callable[[CostRow], str]:
    return lambda row: f"{getattr(row, column) or 0:,}"


def _show_mean(sum_column: str, count_column: str) -> Callable[[CostRow], str]:
    def show(row: CostRow) -> str:
        count = getattr(row, count_column)
        return f"{getattr(row, sum_column) / count:,.0f}" if count else ""

    return show


COLUMNS: Sequence[tuple[str, str, Callable[[CostRow], str]]] = (
    ("calls", "calls", _show("calls")),
    ("failed", "failed", _show("failed")),
    ("refused", "refused", _show("refused")),
    ("runs", "runs", _show("runs")),
    ("errors", "errors", _show("errors")),
    ("tokens", "tokens", _show("tokens")),
    ("tokens_in", "tokens in", _show("tokens_in")),
    ("tokens_out", "tokens out", _show("tokens_out")),
    ("latency_ms", "mean ms", _show_mean("latency_ms", "calls")),
    ("ms", "mean ms", _show_mean("ms", "runs")),
    ("worst_ms", "worst ms", _show("worst_ms")),
)
"""The columns after the money, each with the field that a dimension must know for it."""
