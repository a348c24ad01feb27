"""What `hermes export` prints: its progress, its result, and why an export is empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hermes.trajectories.calls import NO_CONSENT, NO_IDS, NO_PROMPT_IDS, SCRIPTED_ANSWER
from hermes.trajectories.export import ExportSummary
from hermes.trajectories.parallel_export import ExportProgress
from hermes.trajectories.plan import SessionPlan


class HasSize(Protocol):
    """A source with a total size, for the progress bar."""

    @property
    def size(self) -> int: ...


class ExportBar:
    """Shows progress: session by session, or in the steps that an engine reports."""

    def __init__(self, progress: Progress, task: TaskID, source: HasSize) -> None:
        self._progress, self._task, self._source = progress, task, source
        self._sessions = self._tokens = 0

    def on_session(self, plan: SessionPlan) -> None:
        self._sessions += 1
        self._tokens += sum(call.trained for call in plan.calls)
        self._progress.update(self._task, total=self._source.size, advance=plan.session.size, sessions=self._sessions, tokens=self._tokens)

    def on_step(self, step: ExportProgress) -> None:
        self._progress.update(self._task, total=step.bytes_to_read, completed=step.bytes_read, sessions=step.sessions, tokens=step.tokens)


@contextmanager
def show_export_bar(source: HasSize, *, is_quiet: bool) -> Iterator[ExportBar]:
    """Show a bar while the block lasts, on a terminal."""
    console = Console(stderr=True, quiet=is_quiet)
    columns = (
        TextColumn("exporting"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[sessions]:,} sessions, {task.fields[tokens]:,} tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield ExportBar(progress, progress.add_task("export", total=source.size, sessions=0, tokens=0), source)


NO_IDS_ADVICE = "; export them in a text format (--format sharegpt), or give them ids with --tokenizer DIR"
ADVICE = {
    NO_IDS: NO_IDS_ADVICE,
    NO_PROMPT_IDS: NO_IDS_ADVICE,
    SCRIPTED_ANSWER: (
        "; the answers of a script are not training data: connect a model (set ANTHROPIC_API_KEY, or name a server in hermes.toml), "
        'or run `hermes local install` and set llm.stand_in = "local"'
    ),
    NO_CONSENT: "; messages sent with a key from `hermes keys create --trains` may be trained on",
}


def why_nothing(summary: ExportSummary) -> str:
    """Return why an export is empty, and, if there is a remedy, what to do."""
    reasons = summary.manifest["excluded"]
    if not reasons:
        return "the graphs hold no sampled response" if summary.manifest["sessions"] else "there is no session"
    main = max(reasons, key=lambda reason: reasons[reason]["samples"])
    return f"{reasons[main]['samples']:,} samples: {main}{ADVICE.get(main, '')}"


def show_summary(summary: ExportSummary, out: Path) -> None:
    manifest = summary.manifest
    tokens: dict[str, int] = manifest["tokens"]
    table = Table(title=f"{out}", title_justify="left", show_header=False, box=None, padding=(0, 2))
    again = f"  ({manifest['duplicates']:,} more were duplicates)" if manifest["duplicates"] else ""
    rows: list[tuple[str, str]] = [
        ("sessions", f"{manifest['sessions']:,}"),
        ("rows", f"{manifest['rows']:,}"),
        ("samples", f"{manifest['samples']:,}{again}"),
        ("  trained", f"{summary.trained:,}"),
        ("  not trained", f"{manifest['samples'] - summary.trained:,}"),
        ("sampled tokens", f"{tokens['sampled']:,}"),
        ("  trained", f"{tokens['trained']:,}"),
        ("  excluded", f"{tokens['excluded']:,}"),
    ]
    rows += [(f"    {reason}", f"{count['tokens']:,}  (samples: {count['samples']:,})") for reason, count in manifest["excluded"].items()]
    for name, value in rows:
        table.add_row(name, value)
    console = Console()
    console.print(table)
    console.print(f"Check it: hermes verify {out}", style="dim", soft_wrap=True)
