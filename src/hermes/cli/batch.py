"""`hermes batch`: run many prompts through an agent loop with tools, into message graphs. Needs the extra `serve`."""

from __future__ import annotations

import json
import math
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hermes.app.batch_model import refuse_unusable_model
from hermes.app.home import StartRefused
from hermes.app.models import models_of, tiers_of
from hermes.app.toolsets import python_toolsets, refuse_unknown_servers
from hermes.cli.batch_arguments import folder_name, load_verifier, parse_sampling, read_messages, text_or_file
from hermes.cli.batch_output import count_phrase, say_changes, say_end, show_plan, summarise_run
from hermes.cli.batch_run import INTERRUPTED, BatchOrder, run_batch
from hermes.cli.commands import app
from hermes.cli.errors import complain, fail
from hermes.cli.runtime import CANNOT_RUN, Config, run, settings_from
from hermes.trajectories.batch.budget import MICRO_PER_USD, Budget
from hermes.trajectories.batch.distribution import all_toolsets, read_distribution
from hermes.trajectories.batch.item_changes import ItemChanges, changes_since, list_some, record_items
from hermes.trajectories.batch.prompt_file import PROMPT_FIELD, PromptFile
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe
from hermes.trajectories.batch.replay import graphs_by_item
from hermes.trajectories.batch.rollout import FAILED_OUTCOMES
from hermes.trajectories.batch.run_files import GRAPHS, GROUPS, ITEMS, STATISTICS
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.statistics import DEFAULT_PASS_MARK
from hermes.trajectories.errors import TrajectoryError, TrajectorySettingsError

SAMPLED, TOOLS, SCORES, PACE, RUN = "What is sampled", "Tools", "Scores", "Pace and money", "The run"


class KeepReasoning(StrEnum):
    """Which earlier reasoning the next request contains."""

    NONE = "none"
    CURRENT_TURN = "current_turn"
    ALL = "all"


class ChangedRows(StrEnum):
    """What happens to the rollouts of prompts that were changed in the file or removed from it."""

    KEEP = "keep"
    AGAIN = "again"


@app.command("batch")
def batch_command(
    prompts: Annotated[
        Path, typer.Argument(metavar="PROMPTS.jsonl", help='The prompts, one row each: {"prompt": "…"}.', show_default=False)
    ],
    run_name: Annotated[str, typer.Option("--run-name", help="The name of the run; its folder is RUNS/NAME.", show_default=False)],
    *,
    model: Annotated[
        str | None,
        typer.Option(help="A model of the settings.", show_default="the first of completions.tier", rich_help_panel=SAMPLED),
    ] = None,
    rollouts: Annotated[int, typer.Option("--rollouts", "-n", min=1, help="Rollouts for each prompt.", rich_help_panel=SAMPLED)] = 1,
    temperature: Annotated[float | None, typer.Option(min=0.0, rich_help_panel=SAMPLED, show_default="the model's own")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, rich_help_panel=SAMPLED, show_default="the model's own")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="The most tokens of one answer.", rich_help_panel=SAMPLED, show_default="the model's own")
    ] = None,
    sampling: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Any other parameter, its value as JSON; repeatable.", rich_help_panel=SAMPLED),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of the run; each rollout's seed is derived from it.", rich_help_panel=SAMPLED)] = 0,
    is_unseeded: Annotated[bool, typer.Option("--unseeded", help="Send the model no seed.", rich_help_panel=SAMPLED)] = False,
    system: Annotated[
        str | None, typer.Option(metavar="FILE|TEXT", help="The system message for rows without one.", rich_help_panel=SAMPLED)
    ] = None,
    ephemeral: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TEXT", help="A text sent with every request, but not part of the conversation.", rich_help_panel=SAMPLED
        ),
    ] = None,
    prefill: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Messages (JSON) put before every prompt, as part of the conversation.", rich_help_panel=SAMPLED),
    ] = None,
    keep_reasoning: Annotated[
        KeepReasoning, typer.Option(help="Which earlier reasoning to send again, if the server accepts it.", rich_help_panel=SAMPLED)
    ] = KeepReasoning.CURRENT_TURN,
    max_turns: Annotated[int, typer.Option(min=1, help="The most model calls in one chat.", rich_help_panel=SAMPLED)] = 10,
    prompt_field: Annotated[str, typer.Option(help="The field of a row that holds the prompt.", rich_help_panel=SAMPLED)] = PROMPT_FIELD,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOOLSET",
            help="A pack, mcp, mcp:SERVER, or Python: module or module:name; repeatable.",
            rich_help_panel=TOOLS,
        ),
    ] = None,
    distribution: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Draw toolsets for each prompt, each by its percentage: a YAML or JSON file, or all, balanced, minimal.",
            rich_help_panel=TOOLS,
        ),
    ] = None,
    has_subagents: Annotated[
        bool, typer.Option("--subagents", help="Add a tool `delegate`: an agent with the same tools.", rich_help_panel=TOOLS)
    ] = False,
    subagent_depth: Annotated[int, typer.Option(min=1, max=8, help="How many levels of agents may delegate.", rich_help_panel=TOOLS)] = 1,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="A function that scores rollouts: function(row, rollout) returns a reward, or a mapping with one.",
            rich_help_panel=SCORES,
        ),
    ] = None,
    pass_mark: Annotated[
        float, typer.Option(help="The smallest reward with which a rollout passes, for pass@k.", rich_help_panel=SCORES)
    ] = DEFAULT_PASS_MARK,
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-j", min=1, help="How many rollouts run at once.", rich_help_panel=PACE)
    ] = 8,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one whole rollout.", rich_help_panel=PACE)] = 600.0,
    call_timeout: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds for one answer of the model.", show_default="completions.deadline_s", rich_help_panel=PACE),
    ] = None,
    tool_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one call of a tool.", rich_help_panel=PACE)] = 60.0,
    verify_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for one score.", rich_help_panel=PACE)] = 60.0,
    retries: Annotated[
        int, typer.Option(min=0, help="How often a failed call is repeated; each pause is longer.", rich_help_panel=PACE)
    ] = 3,
    budget_usd: Annotated[float | None, typer.Option(min=0.0, help="Stop before the run costs more.", rich_help_panel=PACE)] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=0, help="Stop before the run uses more tokens.", rich_help_panel=PACE)] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only this many rows, from the start of the file.", rich_help_panel=PACE)
    ] = None,
    runs: Annotated[Path, typer.Option(help="The folder that holds all runs.", rich_help_panel=RUN)] = Path("runs"),
    is_resumed: Annotated[bool, typer.Option("--resume", help="Continue the run, if it exists.", rich_help_panel=RUN)] = False,
    is_retried: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: run the failed rollouts once more.", rich_help_panel=RUN)
    ] = False,
    changed: Annotated[
        ChangedRows | None,
        typer.Option(
            help="With --resume, if rows were changed or removed: keep their rollouts, or set them aside and run the rows again.",
            rich_help_panel=RUN,
        ),
    ] = None,
    has_groups: Annotated[
        bool, typer.Option("--groups", help="Also write groups.jsonl: one graph for each prompt.", rich_help_panel=RUN)
    ] = False,
    is_stored: Annotated[
        bool, typer.Option("--store", help="Also store every rollout as a session in the database.", rich_help_panel=RUN)
    ] = False,
    account: Annotated[str, typer.Option(help="The account of the calls and sessions.", rich_help_panel=RUN)] = "batch",
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Check everything and show the plan; run nothing.")] = False,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print the statistics as JSON on standard output, and nothing else there.")
    ] = False,
    config: Config = None,
) -> None:
    """Run many prompts through an agent loop with tools, several rollouts each, and keep every rollout as a message graph.

    A row needs a `prompt`: a text, or a list of messages. It may have an `id`, a `system` message and a `cwd`; all other
    fields are for tools and verifiers. Try it without a key:

        hermes batch prompts.jsonl --run-name try --model scripted --tools concierge

    The output is in RUNS/NAME: graphs.jsonl for `hermes export`, statistics.json, rollouts.jsonl with a line for each rollout. A failed
    rollout is kept with its reason. Every finished rollout is on disk before the next begins. If the run stops for any reason, the same
    command with --resume continues it, and no rollout is paid for twice.

    Then: hermes export RUNS/NAME/graphs.jsonl --out rows

    Exit code 0 when every rollout is finished, 1 when the run stopped early, 130 when you stopped it, 2 for bad arguments."""
    settings = settings_from(config)
    if budget_usd is not None and not math.isfinite(budget_usd * MICRO_PER_USD):
        fail(f"--budget-usd {budget_usd:g}: expected an amount in US dollars; leave the option out for no limit")
    try:
        toolsets = read_distribution(distribution, tools or ()) if distribution is not None else all_toolsets(tools or ())
        recipe = BatchRecipe(
            model=model or tiers_of(settings)[settings.completions.tier].chain[0],
            seed=seed,
            is_seeded=not is_unseeded,
            sampling=parse_sampling(sampling or (), temperature=temperature, top_p=top_p),
            max_tokens=max_tokens,
            max_turns=max_turns,
            system=text_or_file("--system", system),
            ephemeral=text_or_file("--ephemeral", ephemeral),
            prefill=read_messages(prefill) if prefill is not None else (),
            keep_reasoning=keep_reasoning.value,
            toolsets=toolsets,
            subagent_depth=subagent_depth if has_subagents else 0,
            verify=verify,
        )
        items = PromptFile(prompts, prompt=prompt_field)
        order = BatchOrder(
            settings=settings,
            recipe=recipe,
            pace=BatchPace(
                concurrency=concurrency,
                timeout_s=timeout,
                call_timeout_s=call_timeout,
                tool_timeout_s=tool_timeout,
                verify_timeout_s=verify_timeout,
                retries=retries,
            ),
            budget=Budget(None if budget_usd is None else round(budget_usd * MICRO_PER_USD), budget_tokens),
            items=items,
            rollouts=rollouts,
            limit=limit,
            account=account,
            verifier=load_verifier(verify),
            is_stored=is_stored,
            is_quiet=is_json,
        )
        path, index = runs / folder_name(run_name), items.index()
        _refuse_bad_order(order)
        if is_dry:
            show_plan(order, path, index, is_json=is_json)
            return
        with closing(RunFolder.open(path, recipe.to_dict(), may_go_on=is_resumed)) as folder:
            changes = changes_since(folder, index)
            _handle_changes(folder, changes, changed, is_retried=is_retried)
            record_items(folder, index)
            without = frozenset(changes.changed if changed is ChangedRows.KEEP else ())
            stopped = run(run_batch(order, folder, without))
            sums = summarise_run(folder, order, stopped, pass_mark)
            folder.write(STATISTICS, [json.dumps(sums.values, indent=2) + "\n"])
            folder.write(ITEMS, sums.item_lines)
            if has_groups:
                folder.write(GROUPS, (line + "\n" for line in graphs_by_item(folder)))
    except (TrajectoryError, StartRefused) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or runs}: {error.strerror}")
    if is_json:
        typer.echo(json.dumps(sums.values))
    say_end(path, sums.values, is_quiet=is_json, export=path / (GROUPS if has_groups else GRAPHS))
    if stopped.reason or stopped.left:
        raise typer.Exit(130 if stopped.reason == INTERRUPTED else CANNOT_RUN)


def _refuse_bad_order(order: BatchOrder) -> None:
    """Refuse a bad model or toolset before anything is written, as far as this is known without a call to a server."""
    names = list(order.recipe.toolsets.toolsets)
    model = order.recipe.model
    refuse_unusable_model(order.settings, model)
    if (names or order.recipe.subagent_depth) and not models_of(order.settings)[model].capabilities.tools:
        raise TrajectorySettingsError(f"{model} takes no tools; leave out --tools and --subagents, or choose another --model")
    refuse_unknown_servers(order.settings, names)
    python_toolsets(order.settings, names)


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
