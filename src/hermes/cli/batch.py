"""`hermes batch`: run many prompts through an agent loop with tools, into message graphs. Needs the extra `serve`."""

from __future__ import annotations

import json
from contextlib import closing
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes.app.batch_model import refuse_unusable_model
from hermes.app.catalogue import models_of, tiers_of
from hermes.app.toolsets import python_toolsets, refuse_unknown_servers
from hermes.cli.batch_output import say_changes, say_end, show_plan, summarise_run
from hermes.cli.batch_recipe import RecipeFile, read_recipe
from hermes.cli.batch_run import INTERRUPTED, run_batch
from hermes.cli.commands import app
from hermes.cli.file_keys import SetKeys, command_with_keys, parse_keys
from hermes.cli.options import Config
from hermes.cli.output import CANNOT_RUN, complain, fail
from hermes.cli.runtime import complete_models, run, settings_from
from hermes.config import Settings
from hermes.console.amounts import count_phrase
from hermes.ports.errors import StartRefused
from hermes.trajectories.batch.recipe import BatchRecipe
from hermes.trajectories.batch.replay import graphs_by_item
from hermes.trajectories.batch.rollout import FAILED_OUTCOMES
from hermes.trajectories.batch.run import BatchRun
from hermes.trajectories.batch.run_files import GRAPHS, GROUPS, ITEMS, RECIPE, STATISTICS
from hermes.trajectories.batch.run_folder import ItemChanges, RunFolder, changes_since, list_some, record_items
from hermes.trajectories.errors import TrajectoryError, TrajectorySettingsError

EXAMPLE_RECIPE = "batch_recipe.toml"
RECIPE_PANEL, RUN_PANEL = "Keys of the recipe that people often change", "The run"
KEYS = {
    f"--{key.replace('_', '-')}": key
    for key in RecipeFile.model_fields
    if key not in {"prompts", "run_name", "model", "rollouts", "tools", "concurrency", "limit", "budget_usd"}
} | {"--sampling": "sampling.KEY"}
"""Former options, and the keys that they are now."""


class ChangedRows(StrEnum):
    """What happens to the rollouts of prompts that were changed in the file or removed from it."""

    KEEP = "keep"
    AGAIN = "again"


@app.command("batch", cls=command_with_keys(KEYS, "the recipe (RECIPE.toml)"))
def batch_command(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECIPE.toml|PROMPTS.jsonl",
            help="A recipe; or the prompts, for a run with the default recipe.",
            show_default=False,
        ),
    ] = None,
    *,
    run_name: Annotated[
        str | None, typer.Option(help="The name of the run; its folder is runs/NAME.", show_default=False, rich_help_panel=RECIPE_PANEL)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model of the settings.",
            show_default="the first of completions.tier",
            autocompletion=complete_models,
            rich_help_panel=RECIPE_PANEL,
        ),
    ] = None,
    rollouts: Annotated[
        int | None,
        typer.Option("--rollouts", "-n", min=1, help="Rollouts for each prompt.", show_default="1", rich_help_panel=RECIPE_PANEL),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOLSET",
            help="A pack, mcp, mcp:SERVER, or Python: module or module:name; repeatable.",
            rich_help_panel=RECIPE_PANEL,
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-j", min=1, help="How many rollouts run at once.", show_default="8", rich_help_panel=RECIPE_PANEL),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only this many rows, from the start of the file.", rich_help_panel=RECIPE_PANEL)
    ] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0.0, help="Stop before the run costs more.", rich_help_panel=RECIPE_PANEL)] = None,
    keys: SetKeys = None,
    is_resumed: Annotated[bool, typer.Option("--resume", help="Continue the run, if it exists.", rich_help_panel=RUN_PANEL)] = False,
    is_retried: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run the failed rollouts once more.", rich_help_panel=RUN_PANEL)
    ] = False,
    changed: Annotated[
        ChangedRows | None,
        typer.Option(
            help="With --resume, if rows were changed or removed: keep their rollouts, or set them aside and run the rows again.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Check everything and show the plan; run nothing.")] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the statistics as JSON on standard output, and nothing else there.")
    ] = False,
    is_example: Annotated[bool, typer.Option("--example-recipe", help="Print a recipe with every key explained, and stop.")] = False,
    config: Config = None,
) -> None:
    """Run many prompts through an agent loop with tools, several rollouts each, and keep every rollout as a message graph.

    A row needs a `prompt`: a text, or a list of messages. It may have an `id`, a `system` message and a `cwd`; all other
    fields are for tools and verifiers. Try it without a key:

        hermes batch prompts.jsonl --run-name try --model scripted --tools concierge

    A recipe holds everything about a run: sampling, tools, scores, timeouts, budgets. Begin with:

        hermes batch --example-recipe > recipe.toml

    The output is in RUNS/NAME: graphs.jsonl for `hermes export`, statistics.json, rollouts.jsonl with a line for each rollout, and the
    recipe. A failed rollout is kept with its reason. Every finished rollout is on disk before the next begins. If the run stops for any
    reason, the same command with --resume continues it, and no rollout is paid for twice.

    Then: hermes export RUNS/NAME/graphs.jsonl --out rows

    Exit code 0 when every rollout is finished, 1 when the run stopped early, 130 when you stopped it, 2 for bad arguments."""
    if is_example:
        typer.echo(resources.files("hermes.cli").joinpath(EXAMPLE_RECIPE).read_text(encoding="utf-8"), nl=False)
        return
    if source is None:
        fail("name a recipe, or a file of prompts; hermes batch --example-recipe prints a recipe")
    options = {
        "run_name": run_name,
        "model": model,
        "rollouts": rollouts,
        "tools": tools or None,
        "concurrency": concurrency,
        "limit": limit,
        "budget_usd": budget_usd,
    }
    settings = settings_from(config)
    try:
        file = read_recipe(source, parse_keys(keys) | {key: value for key, value in options.items() if value is not None})
        values = _carry_out(file, settings, changed, is_resumed=is_resumed, is_retried=is_retried, is_dry=is_dry, is_json=is_json)
    except (TrajectoryError, StartRefused) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or source}: {error.strerror}")
    if values is None:
        return
    if is_json:
        typer.echo(json.dumps(values))
    say_end(file.folder, values, is_quiet=is_json, export=file.folder / (GROUPS if file.groups else GRAPHS))
    if values["stopped"] or values["left"]:
        raise typer.Exit(130 if values["stopped"] == INTERRUPTED else CANNOT_RUN)


def _carry_out(
    file: RecipeFile,
    settings: Settings,
    changed: ChangedRows | None,
    *,
    is_resumed: bool,
    is_retried: bool,
    is_dry: bool,
    is_json: bool,
) -> dict[str, Any] | None:
    """Check everything, run the recipe, and write what came out; return the statistics. A dry run only shows the plan, and has none."""
    recipe, verifier = file.batch_recipe(tiers_of(settings)[settings.completions.tier].chain[0]), file.verifier()
    index = file.items.index()
    _refuse_unusable(recipe, settings)

    def new_run(folder: RunFolder, without: frozenset[str] = frozenset()) -> BatchRun:
        return BatchRun(
            folder,
            file.items,
            recipe,
            file.pace(),
            rollouts=file.rollouts,
            limit=file.limit,
            without=without,
            budget=file.budget(),
            verifier=verifier,
        )

    if is_dry:
        show_plan(new_run(RunFolder.peek(file.folder)), settings, index, is_json=is_json)
        return None
    with closing(RunFolder.open(file.folder, recipe.to_dict(), may_go_on=is_resumed)) as folder:
        changes = changes_since(folder, index)
        _handle_changes(folder, changes, changed, is_retried=is_retried)
        folder.write(RECIPE, file.to_toml())
        record_items(folder, index)
        batch = new_run(folder, frozenset(changes.changed if changed is ChangedRows.KEEP else ()))
        run(run_batch(batch, settings, account=file.account, is_stored=file.store, is_quiet=is_json))
        values, item_lines = summarise_run(batch, file.pass_mark)
        folder.write(STATISTICS, [json.dumps(values, indent=2) + "\n"])
        folder.write(ITEMS, item_lines)
        if file.groups:
            folder.write(GROUPS, (line + "\n" for line in graphs_by_item(folder)))
    return values


def _refuse_unusable(recipe: BatchRecipe, settings: Settings) -> None:
    """Refuse a bad model or toolset before anything is written, as far as this is known without a call to a server."""
    names, model = list(recipe.toolsets.toolsets), recipe.model
    refuse_unusable_model(settings, model)
    if (names or recipe.subagent_depth) and not models_of(settings)[model].capabilities.tools:
        raise TrajectorySettingsError(f"{model} takes no tools; leave out tools and subagents, or choose another model")
    refuse_unknown_servers(settings, names)
    python_toolsets(settings, names)


def _handle_changes(folder: RunFolder, changes: ItemChanges, changed: ChangedRows | None, *, is_retried: bool) -> None:
    """Report prompts that changed since the last run, and apply `--changed`; raise TrajectorySettingsError if it is needed and missing."""
    if changes.stale and changed is None:
        stale = [
            f"{count_phrase(len(names), 'row')} {'was' if len(names) == 1 else 'were'} {word} since "
            f"{'its' if len(names) == 1 else 'their'} rollouts were made ({list_some(names)})"
            for names, word in ((changes.changed, "changed"), (changes.removed, "removed"))
            if names
        ]
        ways = "--changed keep leaves their rollouts as they are, --changed again sets them aside and runs the rows again"
        raise TrajectorySettingsError(f"{' and '.join(stale)}; {ways}")
    say_changes(changes, are_kept=changed is ChangedRows.KEEP)
    if changes.stale and changed is ChangedRows.AGAIN:
        gone = folder.set_aside(lambda placed: placed.entry.item in changes.stale)
        complain(f"{count_phrase(gone, 'rollout')} set aside (aside.jsonl)")
    if is_retried:
        gone = folder.set_aside(lambda placed: placed.entry.outcome in FAILED_OUTCOMES)
        complain(f"{count_phrase(gone, 'failed rollout')} set aside (aside.jsonl), to be run once more")
