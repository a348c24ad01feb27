"""The commands that make and check training data: export, verify, import. Needs the extra `export`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hermes.cli.commands import app
from hermes.cli.errors import complain, fail
from hermes.trajectories.calls import NO_IDS, NO_PROMPT_IDS, Policies
from hermes.trajectories.errors import SourceError, TrajectoryError
from hermes.trajectories.export import Summary, export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.imports import SHAPES, import_files
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.source import Sessions, find_files
from hermes.trajectories.tokenize import Tokenizer, load_tokenizer
from hermes.trajectories.verify import verify

Graphs = Annotated[list[Path], typer.Argument(help="Graphs as JSON or JSONL files, or folders of them.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON on standard output, and nothing else there.")]


class Keep(StrEnum):
    ALL = "all"
    ACCEPTED = "accepted"


class Retries(StrEnum):
    ALL = "all"
    LAST = "last"


class Derived(StrEnum):
    EXCLUDE = "exclude"
    INCLUDE = "include"


@app.command("export")
def export_command(
    graphs: Graphs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must not exist, or be empty.", show_default=False)],
    format_: Annotated[str, typer.Option("--format", "-f", help=f"One of {', '.join(sorted(FORMATS))}.")] = "parquet",
    *,
    keep: Annotated[Keep, typer.Option(help="accepted: leave out what an edit gave up and rejected compaction attempts.")] = Keep.ALL,
    retries: Annotated[Retries, typer.Option(help="last: of several samples in one context train the last.")] = Retries.ALL,
    derived: Annotated[Derived, typer.Option(help="include: also train prompts that were tokenised later (off-policy).")] = Derived.EXCLUDE,
    policy_version: Annotated[list[str] | None, typer.Option(help="Train only what this policy version sampled; repeatable.")] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A folder with tokenizer.json and chat template, for calls without token ids (off-policy)."),
    ] = None,
    source: Annotated[str, typer.Option(help="What the `source` column of the sharegpt format says.")] = "hermes-agent",
    is_json: Json = False,
) -> None:
    """Export graphs as training data, with a ledger that accounts for every sampled token.

    Every sample of every version and every attached chat is trained exactly once, in exactly the context it was sampled in, or
    listed in ledger.jsonl with the reason why not. Check the result with: hermes verify DIR

    Exit code 0 when all went well, 1 when an input could not be read (it is named, the rest is exported), 2 for bad arguments."""
    policies = Policies(keep.value, retries.value, derived.value, frozenset(policy_version) if policy_version else None)
    settings = ExportSettings(format=format_, policies=policies, source=source)
    try:
        files = find_files(graphs)
        sessions = Sessions(files)
        with _progress(files, is_json) as advance:
            summary = export(sessions, out, settings, FORMATS, tokenizer=_tokenizer(tokenizer), on_session=advance)
    except TrajectoryError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror}")
    for broken in summary.broken:
        complain(str(broken))
    if not summary.trained:
        complain(f"nothing in this export is trained: {_why_nothing(summary)}")
    if is_json:
        typer.echo(json.dumps({**summary.manifest, "broken": [str(error) for error in summary.broken]}))
    else:
        _show(summary, out)
    if summary.broken:
        raise typer.Exit(1)


@app.command("verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(help="What hermes export wrote.")],
    *,
    against: Annotated[
        list[Path] | None, typer.Option(help="Graphs as JSON or JSONL files, or folders of them, to check the export against; repeatable.")
    ] = None,
    is_json: Json = False,
) -> None:
    """Check an export from its files alone: every sample trained exactly once and in its own context, or listed with a reason.

    Shares no code with the exporter. With --against the source graphs are read too, so that a row and its ledger line that
    were removed together are noticed. Exit code 0 when all holds, 1 when something is wrong, 2 when this is no export."""
    try:
        report = verify(folder, find_files(against or ()))
    except (TrajectoryError, OSError) as error:
        fail(str(error))
    if is_json:
        typer.echo(json.dumps({"ok": report.ok, "problems": report.problems, **report.counts}))
    else:
        for problem in report.problems:
            complain(problem)
        state = "[bold green]holds[/]" if report.ok else f"[bold red]{len(report.problems)} problems[/]"
        Console().print(f"{folder}: {state}  " + ", ".join(f"{value:,} {name}" for name, value in report.counts.items()), soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help="Trajectory files (JSON or JSONL).", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The JSONL file of graphs to write.", show_default=False)],
    *,
    shape: Annotated[str | None, typer.Option(help=f"One of {', '.join(SHAPES)}; guessed from each line when left out.")] = None,
    is_json: Json = False,
) -> None:
    """Read trajectories that other programs wrote (ShareGPT, hermes-agent, OpenAI fine-tuning) into graphs.

    What is wrong with them (a lost question, results under the wrong name, injected thoughts …) is reported and nothing is
    silently repaired. Exit code 0 when all went well, 1 when a line could not be read, 2 for bad arguments."""
    if shape is not None and shape not in SHAPES:
        fail(f"unknown shape {shape!r}; one of {', '.join(SHAPES)}")
    if out.exists():
        fail(f"{out} exists")
    for file in files:
        if not file.is_file():
            fail(f"{file}: no such file")
    count, broken, findings = 0, list[str](), list[str]()
    draft = out.with_name(f".{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("w", encoding="utf-8") as lines:
            for imported in import_files(files, shape):
                if isinstance(imported, SourceError):
                    broken.append(str(imported))
                    continue
                lines.write(imported.graph.to_json() + "\n")
                findings += [f"{imported.name}: {finding}" for finding in imported.findings]
                count += 1
        draft.rename(out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        fail(f"{error.filename or out}: {error.strerror}")
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    for line in (*broken, *findings):
        complain(line)
    if is_json:
        typer.echo(json.dumps({"graphs": count, "findings": findings, "broken": broken}))
    else:
        Console().print(f"{count:,} graphs in {out}, {len(findings):,} findings, {len(broken):,} lines not read", soft_wrap=True)
    if broken:
        raise typer.Exit(1)


def _tokenizer(folder: Path | None) -> Tokenizer | None:
    return load_tokenizer(folder) if folder is not None else None


@contextmanager
def _progress(files: list[Path], is_quiet: bool) -> Iterator[Callable[[SessionPlan], None]]:  # noqa: FBT001  # one switch
    console = Console(stderr=True, quiet=is_quiet)
    columns = (
        TextColumn("exporting"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[sessions]:,} sessions, {task.fields[tokens]:,} tokens"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("export", total=sum(file.stat().st_size for file in files), sessions=0, tokens=0)
        counts = {"sessions": 0, "tokens": 0}

        def advance(plan: SessionPlan) -> None:
            counts["sessions"] += 1
            counts["tokens"] += sum(call.trained for call in plan.calls)
            progress.update(task, advance=plan.session.size, **counts)  # type: ignore[arg-type]  # rich types fields as Any

        yield advance


def _why_nothing(summary: Summary) -> str:
    """Say why an export is empty, and what would help where something would."""
    reasons = summary.manifest["excluded"]
    if not reasons:
        return "the graphs hold no sampled response"
    main = max(reasons, key=lambda reason: reasons[reason]["samples"])
    has_no_ids = main in (NO_IDS, NO_PROMPT_IDS)
    advice = "; a text format takes them (--format sharegpt), or --tokenizer DIR gives them ids" if has_no_ids else ""
    return f"{reasons[main]['samples']:,} samples: {main}{advice}"


def _show(summary: Summary, out: Path) -> None:
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
