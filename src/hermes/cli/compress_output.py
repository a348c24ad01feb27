"""What `hermes compress` prints: its progress, its result, and the plan of a dry run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hermes.cli.output import output_console
from hermes.trajectories.compress.run import CompressRun

MAX_BAR_CHARS = 30
"""The length of the longest bar of the histogram."""


@contextmanager
def show_compress_bar(size: int, what: str, *, is_quiet: bool, is_paid: bool) -> Iterator[Callable[[CompressRun], None]]:
    """Show a bar on a terminal: how much of the input is read, the tokens saved, and, with a paid model, the cost."""
    console = Console(stderr=True, quiet=is_quiet)
    columns = [
        TextColumn(what),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[trajectories]:,} trajectories, {task.fields[saved]:,} tokens saved"),
        *([TextColumn("{task.fields[usd]:.4f} USD")] if is_paid else []),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("compress", total=size, trajectories=0, saved=0, usd=0.0)

        def advance(run: CompressRun) -> None:
            totals, usd = run.totals, run.micro_usd / 1_000_000
            progress.update(task, completed=run.bytes_read, trajectories=totals.trajectories, saved=totals.tokens_saved, usd=usd)

        yield advance


def show_finished(run: CompressRun) -> None:
    """Print what a run did."""
    metrics = run.metrics
    summary, tokens = metrics["summary"], metrics["tokens"]
    summaries, took = metrics["summarization"], metrics["processing"]["duration_seconds"]
    rows: list[tuple[str, str]] = [
        ("trajectories", f"{summary['total_trajectories']:,}"),
        ("  short enough", f"{summary['trajectories_skipped_under_target']:,}"),
        ("  compressed", f"{summary['trajectories_compressed']:,}"),
    ]
    rows += _rows_above_zero(
        ("    with answers that are off-policy now", summary["trajectories_off_policy"]),
        ("    without the model, which failed", summaries["fallbacks"]),
        ("  still too long, and flagged", summary["trajectories_still_over_limit"]),
        ("  unchanged, because compression failed", summary["trajectories_failed"]),
        ("lines that could not be read", summary["trajectories_rejected"]),
        ("not in the sample", summary["trajectories_not_sampled"]),
    )
    about = "tokens, estimated" if tokens["estimated"] else "tokens"
    rows += [(about, f"{tokens['total_before']:,} -> {tokens['total_after']:,}  ({tokens['overall_compression_ratio']:.0%})")]
    if run.work.model is not None:
        rows += [(f"answers of {run.work.model}", f"{summaries['total_api_calls']:,}"), ("cost", f"{summaries['cost_usd']:.4f} USD")]
    rows += [("took", f"{took:,.1f} s{', an interrupted run included' if run.is_resumed else ''}")]
    _print_table(str(run.places.out), rows)


def show_analysis(found: Mapping[str, Any], model: str | None) -> None:
    """Print what a run would do."""
    tokens, number = found["tokens"], found["trajectories"]
    about = " (estimated)" if found["tokens_estimated"] else ""
    rows: list[tuple[str, str]] = [
        ("trajectories", f"{number:,}"),
        (f"tokens{about}", f"{tokens['total']:,}"),
        ("  shortest, median, longest", f"{tokens['min']:,}  {tokens['p50']:,}  {tokens['max']:,}"),
        ("  p10, p90, p99", f"{tokens['p10']:,}  {tokens['p90']:,}  {tokens['p99']:,}"),
        (f"over the target of {found['target_max_tokens']:,}", f"{found['over_target']:,}"),
        ("  can be shortened to it", f"{found['brought_under']:,}"),
        ("  cannot", f"{found['still_over_limit']:,}"),
        ("tokens to be summarised", f"{found['tokens_to_summarise']:,}  (summaries: {found['summaries']:,})"),
        ("tokens afterwards", f"{found['tokens_after']['total']:,}"),
    ]
    rows += _rows_above_zero(("not in the sample", found["not_sampled"]), ("lines that cannot be read", found["rejected"]))
    if model is not None:
        cost = found["cost_usd"]
        rows += [
            (
                f"requests to {model}",
                f"{found['requests']:,}  ({found['prompt_tokens']:,} tokens in, at most {found['answer_tokens']:,} out)",
            ),
            ("cost, about", "unknown" if cost is None else f"{cost:.4f} USD"),
        ]
    _print_table("dry run: nothing was written", rows)
    if found["histogram"]:
        highest = max(each["trajectories"] for each in found["histogram"])
        table = Table(show_header=False, box=None, padding=(0, 2))
        for each in found["histogram"]:
            bar = "█" * max(1, round(MAX_BAR_CHARS * each["trajectories"] / highest)) if each["trajectories"] else ""
            table.add_row(f"{each['from']:,} to {each['to']:,} tokens", f"{each['trajectories']:,}", bar)
        output_console().print(table)


def _rows_above_zero(*rows: tuple[str, int]) -> list[tuple[str, str]]:
    """Return the rows whose number is not zero."""
    return [(name, f"{number:,}") for name, number in rows if number]


def _print_table(title: str, rows: list[tuple[str, str]]) -> None:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, value in rows:
        table.add_row(name, value)
    output_console().print(table)
