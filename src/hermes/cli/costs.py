"""`hermes costs`: what model calls cost, split by what the operator asks for."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

import typer

from hermes.app.tables import Tables
from hermes.cli.commands import app
from hermes.cli.moments import parse_moment
from hermes.cli.options import Config, Json
from hermes.cli.output import count_phrase, fail, print_json, print_table, show_usd
from hermes.cli.runtime import run, with_tables
from hermes.gateway.spend_sums import HourSummer
from hermes.ports.spending import SpendDimension, SpendTotals

NAMELESS = {SpendDimension.AGENT: "no agent", SpendDimension.PLATFORM: "no message", SpendDimension.KEY: "no key"}
"""What the table calls spend without a value."""
COLUMNS = tuple(field.name for field in fields(SpendTotals) if field.name != "value")


@app.command()
def costs(
    *,
    by: Annotated[SpendDimension, typer.Option("--by", help="What to split the costs by.")] = SpendDimension.DAY,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="From when on: 24h, 30d, 2026-11-15, 2026-11-15T12:00 (UTC); whole hours.")
    ] = "30d",
    is_json: Json = False,
    is_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, for a spreadsheet.")] = False,
    config: Config = None,
) -> None:
    """Show what model calls cost, by agent, platform, tier, purpose, model, key or day.

    For instance: hermes costs --by agent --since 7d. A purpose is what a call was for: answer, conclude (after tools), compact (a long
    history), remember, dream, completions, batch, canary. Refused calls cost nothing and are counted apart."""
    if is_json and is_csv:
        fail("--json and --csv are two formats; choose one")
    begin = parse_moment(since).replace(minute=0, second=0, microsecond=0)

    async def read(tables: Tables) -> list[SpendTotals]:
        sums = tables.spend_sums
        await HourSummer(tables.database, sums).sum_recent()  # then the last minute is in it, also without a worker
        async with tables.database.begin() as tx:
            found = await sums.spend_by(tx, by, since=begin, until=datetime.now(UTC) + timedelta(hours=1))
            keys = {key.id: key.name for key in await tables.api_keys.list(tx)} if by is SpendDimension.KEY else {}
        return [name_key(totals, keys) for totals in found]

    totals = run(with_tables(config, read))
    if is_json:
        print_json([{by: row.pop("value"), **row} for row in map(asdict, totals)])
    elif is_csv:
        writer = csv.writer(sys.stdout)
        writer.writerow((by, *COLUMNS))
        writer.writerows((quote_formula(row.value), *(getattr(row, name) for name in COLUMNS)) for row in totals)
    elif not totals:
        typer.echo(f"No model was called since {begin:%Y-%m-%d %H:%M} UTC.")
    else:
        _print(by, totals)


def name_key(totals: SpendTotals, keys: dict[UUID, str]) -> SpendTotals:
    """The same totals; an API key that still exists is called by its name and its id."""
    if not keys or not totals.value:
        return totals
    values = asdict(totals)
    name = keys.get(UUID(totals.value))
    return SpendTotals(**{**values, "value": f"{name} ({totals.value})" if name else totals.value})


def quote_formula(text: str) -> str:
    """The text, so that a spreadsheet does not run it: an operator's names may begin like a formula."""
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def _print(by: SpendDimension, totals: Sequence[SpendTotals]) -> None:
    total = sum(row.micro_usd for row in totals)
    print_table(
        (by, "cost", "share", "calls", "failed", "refused", "tokens in", "tokens out", "mean ms"),
        (
            (
                row.value or NAMELESS.get(by, "none"),
                show_usd(row.micro_usd),
                f"{row.micro_usd / total:.0%}" if total else "",
                f"{row.calls:,}",
                f"{row.failed:,}",
                f"{row.refused:,}",
                f"{row.tokens_in:,}",
                f"{row.tokens_out:,}",
                f"{row.latency_ms / row.calls:,.0f}" if row.calls else "",
            )
            for row in totals
        ),
    )
    typer.echo(f"In all {show_usd(total)} for {count_phrase(sum(row.calls for row in totals), 'call')}.")
