"""The command `hermes compress`: shorten long trajectories to a token target. Files alone need only the extra `export`."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes.cli.commands import LazyParts, app
from hermes.cli.compress_output import show_analysis, show_compress_bar, show_finished
from hermes.cli.compress_paths import StoredQuery, find_paths, spool_sessions
from hermes.cli.engines import open_engine
from hermes.cli.file_keys import SetKeys, command_with_keys, parse_keys
from hermes.cli.options import STORE, AllStored, Conversations, Since, StoreAccount
from hermes.cli.output import complain, fail, output_console
from hermes.trajectories.compress.analysis import analyse
from hermes.trajectories.compress.model_queue import SummaryBudgetSpent, compress_files_with_model
from hermes.trajectories.compress.output import TRAJECTORY_METRICS
from hermes.trajectories.compress.run import CompressRun, compress_files
from hermes.trajectories.compress.settings import CompressionSettings, read_settings
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines import ChunkEngine, WorkerDied
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.sampling_model import SamplingModel

CONFIG = Path("configs/trajectory_compression.yaml")
DEFAULT_CONFIG = "trajectory_compression.yaml"
NO_MODEL = "none"
EXIT_INTERRUPTED, EXIT_INCOMPLETE = 130, 1
SUMMARIES = "The model that summarises"
KEYS = {
    "--workers": "processing.num_workers",
    "-w": "processing.num_workers",
    "--engine": "processing.engine",
    "--sample-percent": "processing.sample_percent",
    "--seed": "processing.seed",
}
"""Former options, which still work, and the keys that they are now."""


def complete_model(context: typer.Context, incomplete: str) -> list[str]:
    """Complete a word to `none` or a model of the settings."""
    parts: LazyParts = context.obj
    names: list[str] = parts.load_compress_service("the names of models need").complete_models(context, incomplete)
    return [*([NO_MODEL] if NO_MODEL.startswith(incomplete) else []), *names]


@app.command("compress", cls=command_with_keys({}, "the settings (--config)", former=KEYS))
def compress_command(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="A file of trajectories (ShareGPT, OpenAI or graphs; JSON or JSONL), or a folder of them.", show_default=False),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The file to write, or the folder if the input is one. Default: the input's name with `_compressed`.",
            show_default=False,
        ),
    ] = None,
    target_tokens: Annotated[
        int | None, typer.Option("--target-tokens", "-t", min=1, help="The most tokens of a trajectory.", show_default=False)
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="A folder with tokenizer.json and chat template, a Hugging Face name in the local cache, or `estimate` (3 bytes a token).",
            show_default=False,
        ),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count and plan everything, and show the cost. Write nothing and call no model.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help=f"A YAML file with all settings; hermes-agent's file works too. Default: ./{CONFIG} if it exists.", show_default=False
        ),
    ] = None,
    keys: SetKeys = None,
    is_config_wanted: Annotated[
        bool, typer.Option("--print-config", help="Print the default settings, each with an explanation, and stop.")
    ] = False,
    is_restart: Annotated[
        bool, typer.Option("--restart", help="Discard an unfinished run with the summaries that it paid for, and start over.")
    ] = False,
    is_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON on standard output, and nothing else there.")] = False,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model of the settings that writes the summaries; with `none`, they are extracted without a model. "
            "Default: the model of --config, which names none by default.",
            show_default=False,
            autocompletion=complete_model,
            rich_help_panel=SUMMARIES,
        ),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            min=0, help="Stop before the run costs more; the same command continues it.", show_default=False, rich_help_panel=SUMMARIES
        ),
    ] = None,
    conversation: Conversations = None,
    since: Since = None,
    account: StoreAccount = None,
    is_everything: AllStored = False,
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="Read Hermes' own settings (models, store) from this file instead of ./hermes.toml.",
            show_default=False,
            rich_help_panel=STORE,
        ),
    ] = None,
) -> None:
    """Shorten long trajectories to a token target: the first and last turns stay, and as little as possible of the middle is summarised.

    A trajectory that is short enough is copied byte for byte. A shortened row says so: on_policy is false, and off_policy names the turns
    that were sampled with more text before them. Graphs keep both versions, so `hermes export` still trains every answer in its own
    context. The store is never changed. Nothing is dropped: a trajectory that stays too long is flagged, and a line that cannot be read
    is kept in NAME.rejected.jsonl.

    If the command is killed, the same command continues the run, and pays for no summary twice.

    Exit code 0 when all went well, 1 when a line could not be read or the budget is used up, 2 for bad arguments."""
    if is_config_wanted:
        typer.echo(resources.files("hermes.trajectories.compress").joinpath(DEFAULT_CONFIG).read_text(encoding="utf-8"), nl=False)
        return
    parts: LazyParts = context.obj
    options = {"compression.target_max_tokens": target_tokens, "tokenizer.name": tokenizer}
    settings = _settings(config, parse_keys(keys) | {key: value for key, value in options.items() if value is not None})
    chosen = settings.summarization.model if model is None else None if model == NO_MODEL else model
    budget = None if budget_usd is None else _micro_usd(budget_usd, chosen)
    query = StoredQuery(tuple(conversation or ()), since, account, is_everything, settings_file)
    broken = 0
    try:
        work = CompressWork(settings, chosen)
        work.counter()  # a missing tokenizer is reported before the work begins
        nowhere = Path("nowhere") if query and is_dry_run else None  # a dry run writes nothing, so it needs no --out
        places, inputs = find_paths(files or (), query, out or nowhere, settings)
        processing = settings.processing
        with open_engine(processing.engine, processing.num_workers, parts) as engine, tempfile.TemporaryDirectory() as folder:
            if query:
                spool = replace(places, out=Path(folder, "out")) if is_dry_run else places
                inputs, broken = spool_sessions(spool, query, parts, restarts=is_restart and not is_dry_run)
            run = CompressRun(inputs, work, places)
            if is_dry_run:
                _dry_run(run, engine, settings_file, parts, is_json=is_json)
                return
            _compress(run, engine, settings_file, parts, budget, restarts=is_restart and not query, is_quiet=is_json)
    except TrajectoryError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or out or 'the output'}: {error.strerror}")
    except WorkerDied:
        complain(
            "a worker process was killed, perhaps because memory ran out; the same command continues, if need be with fewer "
            "processing.num_workers"
        )
        raise typer.Exit(EXIT_INCOMPLETE) from None
    except SummaryBudgetSpent as error:
        complain(f"{error}; the paid summaries are kept: the same command with a larger --budget-usd continues")
        raise typer.Exit(EXIT_INCOMPLETE) from None
    except KeyboardInterrupt:
        complain("stopped; the same command continues the run")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _report(run, is_json=is_json)
    if broken or not run.is_clean:
        raise typer.Exit(EXIT_INCOMPLETE)


def _settings(config: Path | None, overrides: dict[str, Any]) -> CompressionSettings:
    file = config if config is not None else CONFIG if CONFIG.is_file() else None
    try:
        return read_settings(file, overrides)
    except TrajectoryError as error:
        fail(str(error))


def _micro_usd(usd: float, model: str | None) -> int:
    if model is None:
        fail("--budget-usd needs a model that costs money; name one with --model")
    if not math.isfinite(usd * 1_000_000):  # the budget is counted in millionths
        fail(f"--budget-usd is an amount in US dollars, not {usd}; leave it out for no limit")
    return round(usd * 1_000_000)


def _choose_model(run: CompressRun, settings_file: Path | None, parts: LazyParts) -> tuple[Any, Any]:
    """Return the module that opens models, and the model that the user chose."""
    service = parts.load_compress_service("a model's summaries need")
    return service, service.choose_model(run.work.model, run.work.settings.summarization, settings_file)


def _compress(
    run: CompressRun,
    engine: ChunkEngine,
    settings_file: Path | None,
    parts: LazyParts,
    budget: int | None,
    *,
    restarts: bool,
    is_quiet: bool,
) -> None:
    size = run.input_bytes
    if run.work.model is None:
        with show_compress_bar(size, "compressing", is_quiet=is_quiet, is_paid=False) as advance:
            compress_files(run, engine, restarts=restarts, on_step=advance)
        return
    service, chosen = _choose_model(run, settings_file, parts)
    with show_compress_bar(size, "compressing", is_quiet=is_quiet, is_paid=True) as advance:

        async def act(model: SamplingModel, at_once: int | None) -> None:
            await compress_files_with_model(
                model, run, engine, budget_micro_usd=budget, at_once=at_once, restarts=restarts, on_step=advance
            )

        service.with_model(chosen, act)


def _dry_run(run: CompressRun, engine: ChunkEngine, settings_file: Path | None, parts: LazyParts, *, is_json: bool) -> None:
    model = run.work.model
    service, chosen = _choose_model(run, settings_file, parts) if model is not None else (None, None)  # a missing model is reported at once
    with show_compress_bar(run.input_bytes, "counting", is_quiet=is_json, is_paid=False) as advance:
        found = analyse(run, engine, on_step=advance)
    values = found.to_dict(run.work.settings.compression.target_max_tokens)
    if service is not None:
        values |= {"model": model, "cost_usd": service.price_usd(chosen, found.prompt_tokens, found.answer_tokens, found.requests)}
    for problem in found.problems:
        complain(problem)
    if is_json:
        typer.echo(json.dumps(values))
    else:
        show_analysis(values, model)
    if not run.is_clean:
        raise typer.Exit(EXIT_INCOMPLETE)


def _report(run: CompressRun, *, is_json: bool) -> None:
    """Print what the run did, and the files that it wrote."""
    places, totals, settings = run.places, run.totals, run.work.settings
    for problem in run.problems:
        complain(problem)
    more = totals.rejected + totals.failed - len(run.problems)
    if more > 0:
        complain(f"and {more:,} more")
    files = {
        "output": (places.out, True),
        "rejected": (places.side_path("rejected"), totals.rejected),
        "over_limit": (places.side_path("over_limit"), totals.still_over_limit and not settings.processing.save_over_limit),
        "metrics": (places.metrics, settings.metrics.enabled),
        "trajectories": (places.side_path(TRAJECTORY_METRICS), settings.metrics.enabled and settings.metrics.per_trajectory),
    }
    written = {name: str(file) for name, (file, is_written) in files.items() if is_written}
    if is_json:
        typer.echo(json.dumps({**run.metrics, "files": written, "problems": run.problems, "resumed": run.is_resumed}))
        return
    show_finished(run)
    console = output_console()
    for name, file in list(written.items())[1:]:
        console.print(f"{name.replace('_', ' ')}: {file}", style="dim", soft_wrap=True)
