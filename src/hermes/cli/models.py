"""`hermes models`: every model with its place, price, health and speed. What changes the plan is in model_plan.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import typer
from rich.text import Text

from hermes.app.tables import Tables
from hermes.cli.commands import app, lazy_parts
from hermes.cli.options import Config, Json
from hermes.cli.output import Cell, print_json, print_table
from hermes.cli.runtime import run, with_tables
from hermes.console.models import ModelState, ModelStatus, model_json

models = typer.Typer(
    invoke_without_command=True,
    help="Models: list, plan, set, swap, share, rollback. Without one of these words, list.\n\n"
    "A plan puts other chains in place of those of the settings, for all traffic and without a restart. It may be tried with a share of "
    "the chats first; a chat stays where it is:\n\n"
    "    hermes models swap claude-sonnet own-gpu --share 10\n\n"
    "    hermes models share 100\n\n"
    "    hermes models rollback\n\n"
    "Every process follows within about a second. Exit code 0 when it is done, 1 when it was refused, 2 for an unknown name.",
)
app.add_typer(models, name="models")

COLOURS = {ModelState.OK: "green", ModelState.FAILING: "yellow", ModelState.PROBING: "yellow", ModelState.NOT_SET_UP: ""}


@models.callback()
def show(context: typer.Context, *, is_json: Json = False, config: Config = None) -> None:
    if context.invoked_subcommand is None:
        list_(is_json=is_json, config=config)


@models.command("list")
def list_(*, is_json: Json = False, config: Config = None) -> None:
    """List the models that a chain uses or the settings name: place, price for a million tokens, health, and how fast they are."""

    async def read(tables: Tables) -> Sequence[ModelStatus]:
        found: Sequence[ModelStatus] = await lazy_parts().load_app("model_list_tables").list_from_tables(tables)
        return found

    found = run(with_tables(config, read))
    if is_json:
        print_json([model_json(model) for model in found])
        return
    print_table(
        ("model", "backend", "place", "$ in / out", "health", "since", "next try", "last error", "answers", "failures", "p50", "tokens/s"),
        (
            (
                model.name,
                model.backend,
                ", ".join(model.places),
                "" if model.usd_in is None else f"{model.usd_in:g} / {model.usd_out:g}",
                state_cell(model.state),
                show_time(model.since),
                show_time(model.next_probe_at),
                model.error,
                str(model.answers_today),
                str(model.failures_today),
                "" if model.p50_ms is None else f"{model.p50_ms} ms",
                "" if model.tokens_per_s is None else f"{model.tokens_per_s:g}",
            )
            for model in found
        ),
    )


def state_cell(state: ModelState) -> Cell:
    return Text(str(state), COLOURS.get(state, "red"))


def show_time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%H:%M:%S}"
