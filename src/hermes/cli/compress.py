"""The command `hermes compress`: shorten long trajectories to a token target. Files alone need only the extra `export`."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes.cli.commands import app
from hermes.cli.compress_output import show_analysis, show_compress_bar, show_finished
from hermes.cli.compress_paths import StoredQuery, find_paths, load_service, spool_sessions
from hermes.cli.engines import LOCAL, open_engine
from hermes.cli.output import complain, fail, output_console
from hermes.trajectories.compress.analysis import analyse
from hermes.trajectories.compress.files import CompressReport, analysis_progress, compress_files, compress_files_with_model
from hermes.trajectories.compress.output import TRAJECTORY_METRICS
from hermes.trajectories.compress.paid_summaries import SummaryBudgetSpent
from hermes.trajectories.compress.run import CompressJob
from hermes.trajectories.compress.settings import CompressionSettings
from hermes.trajectories.compress.settings_file import read_settings
from hermes.trajectories.compress.worker import CompressWork
from hermes.trajectories.engines import ChunkEngine, WorkerDied
from hermes.trajectories.errors import TrajectoryError
from hermes.trajectories.sampling_model import SamplingModel

CONFIG = Path("configs/trajectory_compression.yaml")
DEFAULT_CONFIG = "trajectory_compression.yaml"
NO_MODEL = "none"
EXIT_INTERRUPTED, EXIT_INCOMPLETE = 130, 1
OUT_OF_THE_STORE = "Read from the store of a Hermes, running or not, instead of files"
WHO_AND_HOW = "The model that summarises, and where the work is done"


@app.command("compress")
def compress_command(
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
    sample_percent: Annotated[float, typer.Option(min=0, max=100, help="Take only this percentage of the trajectories.")] = 100.0,
    seed: Annotated[int, typer.Option(help="The same seed takes the same trajectories.")] = 42,
    config: Annotated[
        Path | None,
        typer.Option(
            help=f"A YAML file with all settings; hermes-agent's file works too. Default: ./{CONFIG} if it exists.", show_default=False
        ),
    ] = None,
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
            rich_help_panel=WHO_AND_HOW,
        ),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            min=0, help="Stop before the run costs more; the same command continues it.", show_default=False, rich_help_panel=WHO_AND_HOW
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", "-w", min=1, help="Processes; at most one for each core.", show_default=False, rich_help_panel=WHO_AND_HOW
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="local; daft; or ray://HOST:PORT for Daft on a Ray cluster. The model is still called from this machine.",
            rich_help_panel=WHO_AND_HOW,
        ),
    ] = LOCAL,
    conversation: Annotated[
        list[str] | None,
        typer.Option(
            help="A conversation or session id, a channel, or a chat's name in X-Hermes-Session; repeatable.",
            rich_help_panel=OUT_OF_THE_STORE,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Whole sessions with a message since then: 24h, 7d, 2026-11-15, 2026-11-15T12:00 (UTC).",
            rich_help_panel=OUT_OF_THE_STORE,
        ),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Sessions of this account.", rich_help_panel=OUT_OF_THE_STORE)] = None,
    is_everything: Annotated[bool, typer.Option("--stored", help="All sessions of the store.", rich_help_panel=OUT_OF_THE_STORE)] = False,
    settings_file: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="Read Hermes' own settings (models, store) from this file instead of ./hermes.toml.",
            show_default=False,
            rich_help_panel=OUT_OF_THE_STORE,
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
    settings = _settings(config, target_tokens, tokenizer, workers)
    chosen = settings.summarization.model if model is None else None if model == NO_MODEL else model
    if budget_usd is not None:
        _refuse_no_budget(budget_usd, chosen)
    query = StoredQuery(tuple(conversation or ()), since, account, is_everything, settings_file)
    order = _CompressOrder(settings, chosen, budget_usd, settings_file, is_json=is_json, restarts=is_restart)
    broken = 0
    try:
        work = CompressWork(settings, chosen, sample_percent, seed)
        work.counter()  # a missing tokenizer is reported before the work begins
        nowhere = Path("nowhere") if query and is_dry_run else None  # a dry run writes nothing, so it needs no --out
        places, inputs = find_paths(files or (), query, out or nowhere, settings)
        with open_engine(engine, settings.processing.num_workers) as chosen_engine, tempfile.TemporaryDirectory() as folder:
            if is_dry_run:
                if query:
                    inputs, broken = spool_sessions(replace(places, out=Path(folder, "out")), query, restarts=False)
                _dry_run(CompressJob(inputs, work, places), chosen_engine, order)
                return
            if query:
                inputs, broken = spool_sessions(places, query, restarts=is_restart)
            finished = _run(CompressJob(inputs, work, places), chosen_engine, replace(order, restarts=is_restart and not query))
    except TrajectoryError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or out or 'the output'}: {error.strerror}")
    except WorkerDied:
        complain("a worker process was killed, perhaps because memory ran out; the same command continues, if need be with fewer --workers")
        raise typer.Exit(EXIT_INCOMPLETE) from None
    except SummaryBudgetSpent as error:
        complain(f"{error}; the paid summaries are kept: the same command with a larger --budget-usd continues")
        raise typer.Exit(EXIT_INCOMPLETE) from None
    except KeyboardInterrupt:
        complain("stopped; the same command continues the run")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    _report(finished, order)
    if broken or not finished.is_clean:
        raise typer.Exit(EXIT_INCOMPLETE)


@dataclass(frozen=True, slots=True)
class _CompressOrder:
    """The options of the command beyond the work itself."""

    settings: CompressionSettings
    model: str | None
    budget_usd: float | None
    settings_file: Path | None
    is_json: bool
    restarts: bool

    def chosen(self) -> tuple[Any, Any]:
        """Return the module that opens models, and the model that the user chose."""
        service = load_service("a model's summaries need")
        return service, service.choose_model(self.model, self.settings.summarization, self.settings_file)


def _settings(config: Path | None, target: int | None, tokenizer: str | None, workers: int | None) -> CompressionSettings:
    options = {"compression.target_max_tokens": target, "tokenizer.name": tokenizer, "processing.num_workers": workers}
    file = config if config is not None else CONFIG if CONFIG.is_file() else None
    try:
        return read_settings(file, {key: value for key, value in options.items() if value is not None})
    except TrajectoryError as error:
        fail(str(error))


def _refuse_no_budget(usd: float, model: str | None) -> None:
    if model is None:
        fail("--budget-usd needs a model that costs money; name one with --model")
    if not math.isfinite(usd * 1_000_000):  # the budget is counted in millionths
        fail(f"--budget-usd is an amount in US dollars, not {usd}; leave it out for no limit")


def _run(job: CompressJob, engine: ChunkEngine, order: _CompressOrder) -> CompressReport:
    size = sum(each.path.stat().st_size for each in job.inputs)
    if order.model is None:
        with show_compress_bar(size, "compressing", is_quiet=order.is_json, is_paid=False) as advance:
            return compress_files(job, engine, restarts=order.restarts, on_step=advance)
    service, chosen = order.chosen()
    budget = None if order.budget_usd is None else round(order.budget_usd * 1_000_000)
    with show_compress_bar(size, "compressing", is_quiet=order.is_json, is_paid=True) as advance:

        async def act(model: SamplingModel, at_once: int | None) -> CompressReport:
            return await compress_files_with_model(
                model, job, engine, budget_micro_usd=budget, at_once=at_once, restarts=order.restarts, on_step=advance
            )

        finished: CompressReport = service.with_model(chosen, act)
        return finished


def _dry_run(job: CompressJob, engine: ChunkEngine, order: _CompressOrder) -> None:
    size = sum(each.path.stat().st_size for each in job.inputs)
    service, chosen = order.chosen() if order.model is not None else (None, None)  # a missing model is reported at once
    with show_compress_bar(size, "counting", is_quiet=order.is_json, is_paid=False) as advance:
        found = analyse(job, engine, on_step=lambda so_far: advance(analysis_progress(so_far, job)))
    values = found.to_dict(order.settings.compression.target_max_tokens)
    if service is not None:
        values |= {"model": order.model, "cost_usd": service.price_usd(chosen, found.prompt_tokens, found.answer_tokens, found.requests)}
    for problem in found.problems:
        complain(problem)
    if order.is_json:
        typer.echo(json.dumps(values))
    else:
        show_analysis(values, order.model)
    if found.totals.rejected or found.totals.failed:
        raise typer.Exit(EXIT_INCOMPLETE)


def _report(finished: CompressReport, order: _CompressOrder) -> None:
    """Print what the run did, and the files that it wrote."""
    places = finished.places
    for problem in finished.problems:
        complain(problem)
    summary = finished.metrics["summary"]
    more = summary["trajectories_rejected"] + summary["trajectories_failed"] - len(finished.problems)
    if more > 0:
        complain(f"and {more:,} more")
    settings = order.settings
    files = {
        "output": (places.out, True),
        "rejected": (places.side_path("rejected"), summary["trajectories_rejected"]),
        "over_limit": (
            places.side_path("over_limit"),
            summary["trajectories_still_over_limit"] and not settings.processing.save_over_limit,
        ),
        "metrics": (places.metrics, settings.metrics.enabled),
        "trajectories": (places.side_path(TRAJECTORY_METRICS), settings.metrics.enabled and settings.metrics.per_trajectory),
    }
    written = {name: str(file) for name, (file, is_written) in files.items() if is_written}
    if order.is_json:
        typer.echo(json.dumps({**finished.metrics, "files": written, "problems": finished.problems, "resumed": finished.is_resumed}))
        return
    show_finished(finished, places, model=order.model)
    console = output_console()
    for name, file in list(written.items())[1:]:
        console.print(f"{name.replace('_', ' ')}: {file}", style="dim", soft_wrap=True)
