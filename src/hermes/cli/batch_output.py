"""What `hermes batch` prints: the plan of a dry run, changed prompts, and the result of a run."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from hermes.app.catalogue import models_of, prices_from
from hermes.cli.batch_run import INTERRUPTED
from hermes.cli.output import complain, output_console
from hermes.config import Settings
from hermes.console.amounts import count_phrase
from hermes.graph import MessageGraph
from hermes.ports.backends import Usage
from hermes.trajectories.batch.recipe import BatchRecipe
from hermes.trajectories.batch.run import BatchRun
from hermes.trajectories.batch.run_files import RUN
from hermes.trajectories.batch.run_folder import ItemChanges, list_some
from hermes.trajectories.batch.statistics import statistics_of

CHARACTERS_PER_TOKEN = 4
MAX_SHOWN_CHARS = 300


def summarise_run(run: BatchRun, pass_mark: float) -> tuple[dict[str, Any], Iterable[str]]:
    """Add up the whole run. Returns the statistics, and a line of JSON for each item."""
    folder, left = run.folder, run.left
    sums = statistics_of((placed.entry for placed in folder.read_index()), folder.entries_aside(), pass_mark=pass_mark)
    values = {
        "run": folder.path.name,
        "id": folder.run_id,
        "model": run.recipe.model,
        "planned": sums.rollouts + left,
        **sums.to_dict(),
        "left": left,
        "stopped": run.reason,
        "updated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": run.recipe.to_dict(),
    }
    return values, sums.item_lines()


def say_changes(changes: ItemChanges, *, are_kept: bool) -> None:
    """Print which prompts are new, changed or removed since the last run."""
    if changes.new:
        complain(f"{count_phrase(len(changes.new), 'new row')} since the last run, to be run too ({list_some(changes.new)})")
    if changes.changed:
        what = "its rollouts stay, and no new ones are made" if are_kept else "to be run again"
        complain(f"{count_phrase(len(changes.changed), 'changed row')}, {what} ({list_some(changes.changed)})")
    if changes.removed:
        what = "its rollouts stay" if are_kept else "its rollouts are set aside"
        complain(f"{count_phrase(len(changes.removed), 'row')} not in the file any more, {what} ({list_some(changes.removed)})")


def say_end(path: Path, values: Mapping[str, Any], *, is_quiet: bool, export: Path) -> None:
    """Print the result of a run, and the next command."""
    if not is_quiet:
        output_console().print(_table(path, values))
    failed = values["failed"]
    if failed:
        complain(f"{count_phrase(failed, 'rollout')} failed; rollouts.jsonl has the reasons. Run them once more: --resume --retry-failed")
    if values["rewards"]["verify_errors"]:
        count = count_phrase(values["rewards"]["verify_errors"], "rollout")
        complain(f"{count} without a reward, because the verifier failed: see verify_error in rollouts.jsonl")
    reason, left = values["stopped"], values["left"]
    if reason:
        why = "the run was stopped" if reason == INTERRUPTED else f"the run stopped: {reason}"
        complain(f"{why}; {values['rollouts']:,} rollouts are done, {left:,} are left. Continue: {_resume_command()}")
    elif left:
        complain(
            f"{count_phrase(left, 'rollout')} {'was' if left == 1 else 'were'} not run, for an unknown reason. "
            f"Continue: {_resume_command()}"
        )
    elif not is_quiet:
        typer.secho(f"Export it: hermes export {shlex.quote(str(export))} --out rows", fg="bright_black")


def _resume_command() -> str:
    """Return the command that the user typed, with --resume."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    return " ".join(shlex.quote(word) for word in ("hermes", *words, "--resume"))


def _table(path: Path, values: Mapping[str, Any]) -> Table:
    table = Table(title=str(path), title_justify="left", show_header=False, box=None, padding=(0, 2))
    tokens, cost, turns = values["tokens"], values["cost_usd"], values["turns"]
    rows = [
        ("rollouts", f"{values['rollouts']:,} of {values['planned']:,}, for {values['items']:,} prompts"),
        *((f"  {name}", f"{count:,}") for name, count in values["outcomes"].items()),
        ("turns", f"{turns.get('mean', 0):g} on average, {turns.get('max', 0):g} at most"),
        ("tokens", f"{tokens['total']:,}  ({tokens['prompt']:,} in prompts, {tokens['completion']:,} sampled)"),
        ("cost", f"${cost['total']:,.4f}"),
        *((f"tool {name}", f"{line['calls']:,} calls, {line['success_rate']:.0%} done") for name, line in values["tools"].items()),
    ]
    rewards = values["rewards"]
    if rewards["scored"]:
        at = ", ".join(f"pass@{k} {share:.1%}" for k, share in rewards["pass_at"].items())
        rows.append(("reward", f"{rewards['mean']:g} on average over {rewards['scored']:,}; {at}"))
    if values["aside"]["rollouts"]:
        rows.append(("set aside", f"{values['aside']['rollouts']:,} rollouts, {values['aside']['tokens']:,} tokens"))
    for name, value in rows:
        table.add_row(name, value)
    return table


def show_plan(run: BatchRun, settings: Settings, index: Mapping[str, str], *, is_json: bool) -> None:
    """Print the plan of a run."""
    recipe, folder, path = run.recipe, run.folder, run.folder.path
    jobs = list(run.jobs())
    drawn = Counter(" + ".join(recipe.toolsets.draw(recipe.seed, item.id)) or "no tools" for item in islice(run.items, run.limit))
    characters = sum(len(json.dumps(list(map(dict, recipe.messages(job.item))))) + len(recipe.ephemeral or "") for job in jobs)
    prompt = characters // CHARACTERS_PER_TOKEN
    first_request = MessageGraph(recipe.messages(jobs[0].item)).context(ephemeral=recipe.ephemeral) if jobs else []
    values: dict[str, Any] = {
        "run": str(path),
        "exists": (path / RUN).exists(),
        "model": recipe.model,
        "items": min(len(index), run.limit or len(index)),
        "rollouts": {"done": len(folder.done), "to_do": len(jobs)},
        "toolsets": dict(drawn.most_common()),
        "estimate": {"prompt_tokens": prompt, **_cost_range(settings, recipe, prompt, len(jobs))},
        "first_request": first_request,
    }
    if is_json:
        typer.echo(json.dumps(values))
        return
    table = Table(title=f"{path} (dry run: no model is called, nothing is written)", title_justify="left", show_header=False, box=None)
    estimate = values["estimate"]
    for name, value in (
        ("model", recipe.model),
        ("prompts", f"{values['items']:,}"),
        ("rollouts", f"{len(jobs):,} to do, {len(folder.done):,} done"),
        *((f"  with {tools}", f"{count:,} prompts") for tools, count in values["toolsets"].items()),
        ("first turns", f"about {prompt:,} tokens of prompts; tools and later turns add to it"),
        ("  cost", f"${estimate['min_usd']:,.4f}, and up to ${estimate['max_usd']:,.4f} if every answer has the greatest length"),
    ):
        table.add_row(name, value)
    console = output_console()
    console.print(table)
    for message in first_request:
        text = message.get("content")
        shown = text if isinstance(text, str) else json.dumps(text)
        console.print(f"[bold]{message['role']}[/]  ", end="")
        console.print(shown[:MAX_SHOWN_CHARS] + ("…" if len(shown) > MAX_SHOWN_CHARS else ""), markup=False, highlight=False)
    if values["exists"]:
        complain("the run exists; continue it with --resume")


def _cost_range(settings: Settings, recipe: BatchRecipe, prompt: int, rollouts: int) -> dict[str, float]:
    """Return the lowest and the highest cost of the first turns, at today's prices."""
    model = models_of(settings)[recipe.model]
    rate = prices_from(settings).rate(model.address, datetime.now(UTC).date(), 0)
    max_out = min(recipe.max_tokens or model.max_tokens, model.max_tokens) * rollouts
    lowest, highest = (rate.cost(Usage(tokens_in=prompt, tokens_out=out)) / 1e6 for out in (0, max_out))
    return {"min_usd": lowest, "max_usd": highest}
