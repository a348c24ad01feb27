"""The commands that make and check training data: export, verify, import. Needs the extra `export`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from hermes.cli.commands import LazyParts, app
from hermes.cli.engines import DAFT, LOCAL, RAY, open_engine, parse_workers
from hermes.cli.options import (
    STORE,
    AllStored,
    Conversations,
    FormerOptions,
    Json,
    Since,
    StoreAccount,
    StoreConfig,
    command_without,
    complete_from,
)
from hermes.cli.output import complain, fail, output_console, print_json, print_properties
from hermes.trajectories.calls import DERIVED, NO_CONSENT, NO_IDS, NO_PROMPT_IDS, SCRIPTED_ANSWER, SamplePolicies
from hermes.trajectories.engines import ChunkEngine, WorkerDied
from hermes.trajectories.engines.local import LocalEngine
from hermes.trajectories.errors import SourceError, TrajectoryError, TrajectorySettingsError
from hermes.trajectories.export import ExportSummary, export
from hermes.trajectories.formats import FORMATS
from hermes.trajectories.formats.llamafactory import DATASET
from hermes.trajectories.imports import SHAPES, import_files
from hermes.trajectories.parallel_export import ExportProgress, export_on
from hermes.trajectories.plan import ExportSettings, SessionPlan
from hermes.trajectories.private_files import open_private_text
from hermes.trajectories.rewards import RewardRule, check_rules
from hermes.trajectories.signature import LedgerSigner, load_trusted_key, signature_refusal
from hermes.trajectories.source import ExportSession, ExportSource, FileSessions, find_files
from hermes.trajectories.tokenizer import Tokenizer, load_tokenizer
from hermes.trajectories.verify import VerifyReport, verify

Graphs = Annotated[list[Path] | None, typer.Argument(help="Graphs as JSON or JSONL files, or folders of them.", show_default=False)]
FORMER: FormerOptions = {
    "--engine": lambda engine: [] if engine == LOCAL else ["--workers", engine],
    "--include-scripted": ["--include", "scripted"],
    "--derived": lambda choice: ["--include", "derived"] if choice == "include" else [],
}
"""Former options of `hermes export`, which still work."""


class IncludedSamples(StrEnum):
    """Samples that an export leaves out unless the user asks for them."""

    DERIVED = "derived"
    SCRIPTED = "scripted"


@app.command("export", cls=command_without({}, FORMER))
def export_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must be new or empty.", show_default=False)],
    graphs: Graphs = None,
    format_: Annotated[
        str,
        typer.Option("--format", "-f", help=f"One of {', '.join(sorted(FORMATS))}.", autocompletion=complete_from(lambda: sorted(FORMATS))),
    ] = "parquet",
    *,
    keep: Annotated[
        Literal["all", "accepted"], typer.Option(help="accepted: leave out answers that an edit replaced, and rejected compactions.")
    ] = "all",
    retries: Annotated[Literal["all", "last"], typer.Option(help="last: of several samples in one context, train only the last.")] = "all",
    include: Annotated[
        list[IncludedSamples] | None,
        typer.Option(
            help="derived: also train samples whose prompts were tokenised later (off-policy). "
            "scripted: also answers of a script instead of a model, for tests. Repeatable."
        ),
    ] = None,
    policy_version: Annotated[list[str] | None, typer.Option(help="Train only samples of this policy version; repeatable.")] = None,
    reward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE][:response|:rollout]",
            help="The annotation that is the reward of its response, or of the whole rollout; with VALUE, 1 where it equals VALUE, else 0. "
            "Without it: reward and rollout_reward. Once for each scope.",
        ),
    ] = None,
    advantages: Annotated[
        Literal["reward", "group", "grpo"],
        typer.Option(
            help="group: the rollout's reward less the mean of its group, which is all rollouts of its session. "
            "grpo: also divided by the group's standard deviation."
        ),
    ] = "reward",
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="A folder with tokenizer.json and chat template, for calls without token ids (off-policy)."),
    ] = None,
    source: Annotated[
        str, typer.Option(help="The value of the `source` column in the sharegpt and llamafactory formats.")
    ] = "hermes-agent",
    is_bare: Annotated[
        bool,
        typer.Option(
            "--bare", help="sharegpt: rows of conversations, tools and source, and nothing else. The rest goes into sharegpt.rows.jsonl."
        ),
    ] = False,
    is_json: Json = False,
    workers: Annotated[
        str,
        typer.Option(
            "--workers",
            "-w",
            metavar="N|daft|ray://HOST:PORT",
            help="For large inputs: how many processes, at most one for each core; or Daft, on this machine or on a Ray cluster. "
            "All write the same bytes.",
            autocompletion=complete_from(lambda: (DAFT, RAY)),
        ),
    ] = "1",
    conversation: Conversations = None,
    since: Since = None,
    account: StoreAccount = None,
    is_everything: AllStored = False,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY.pem", help="Sign the export with this Ed25519 key: `openssl genpkey -algorithm ed25519 -out KEY.pem`."),
    ] = None,
    save_graphs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Also write the graphs, for `hermes verify --against`: plain text, not sealed; only you can read the file.",
            rich_help_panel=STORE,
        ),
    ] = None,
    config: StoreConfig = None,
) -> None:
    """Export graphs as training data, with a ledger that accounts for every sampled token.

    Graphs come from files, or with --conversation, --since, --account or --stored from the store of the settings. Messages of users who
    do not allow training are excluded; their decision at the time of the export counts.

    Every sample of every version and every attached chat is trained exactly once, in exactly the context it was sampled in, or
    listed in ledger.jsonl with the reason why not. Check the result with: hermes verify DIR

    Exit code 0 when all went well, 1 when an input could not be read (it is named, the rest is exported), 2 for bad arguments."""
    policies = SamplePolicies(
        keep,
        retries,
        derived="include" if IncludedSamples.DERIVED in (include or ()) else "exclude",
        policy_versions=frozenset(policy_version) if policy_version else None,
        scripted="include" if IncludedSamples.SCRIPTED in (include or ()) else "exclude",
        rewards=_reward_rules(reward or ()),
        advantages=advantages,
    )
    settings = ExportSettings(format=format_, policies=policies, source=source, is_bare=is_bare)
    is_stored = bool(conversation) or since is not None or account is not None or is_everything
    _refuse_contradictions(bool(graphs), is_stored, save_graphs, config, out)
    engine, processes = parse_workers(workers)
    if is_stored and (engine, processes) != (LOCAL, 1):
        fail("sessions from the store are exported in one process; write them with --save-graphs FILE.jsonl, then export that file")
    parts: LazyParts = context.obj
    try:
        signer = LedgerSigner.from_file(sign) if sign is not None else None
        with ExitStack() as stack:
            read: ExportSource
            if is_stored:
                read = stack.enter_context(parts.open_stored_sessions(conversation or (), since, account, config))
                sessions = stack.enter_context(_save_graphs(read, save_graphs) if save_graphs is not None else nullcontext(read))
                bar = stack.enter_context(show_export_bar(read, is_quiet=is_json))
                summary = export(
                    sessions, out, settings, FORMATS, tokenizer=_tokenizer(tokenizer), signer=signer, on_session=bar.on_session
                )
            else:
                read = FileSessions(find_files(graphs or ()))
                bar = stack.enter_context(show_export_bar(read, is_quiet=is_json))
                chosen = stack.enter_context(open_engine(engine, processes, parts))
                summary = _export_files(read, out, settings, tokenizer=tokenizer, signer=signer, engine=chosen, bar=bar)
    except TrajectoryError as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror}")
    except WorkerDied:
        complain("a worker process was killed, perhaps because memory ran out; try fewer --workers")
        raise typer.Exit(1) from None
    if read.erased_sessions:
        complain(f"{read.erased_sessions:,} sessions are left out: their users were erased")
    for broken in summary.broken:
        complain(str(broken))
    if not summary.trained:
        complain(f"nothing in this export is trained: {why_nothing(summary)}")
    if is_json:
        left_out = {"broken": [str(error) for error in summary.broken], "forgotten": read.erased_sessions}
        print_json({**summary.manifest, **left_out})
    else:
        show_summary(summary, out)
    if summary.broken:
        raise typer.Exit(1)


@app.command("verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(help="The folder that `hermes export` wrote.")],
    *,
    against: Annotated[
        list[Path] | None, typer.Option(help="Graphs as JSON or JSONL files, or folders of them, to check the export against; repeatable.")
    ] = None,
    trusted: Annotated[
        Path | None, typer.Option(metavar="PUBLIC.pem", help="Also check that this Ed25519 key signed the export.", show_default=False)
    ] = None,
    is_json: Json = False,
) -> None:
    """Check an export: every sample is trained exactly once and in its own context, or listed with a reason.

    From the files alone the command finds faults, not forgeries: a person who changes the rows can write a new ledger for them. With
    --against it computes every value of the export again from the graphs; name them as for the export, in the same order. The check
    shares no code with the exporter, and says what it proved and what not. With --trusted it checks who made the export. Exit code 0 when
    nothing is wrong, 1 when something is, 2 when the folder is not an export or the key is none."""
    try:
        key = load_trusted_key(trusted) if trusted is not None else None
        report = verify(folder, find_files(against or ()))
        refusal = signature_refusal(folder, key) if key is not None else None
    except (TrajectoryError, OSError) as error:
        fail(str(error))
    problems = [*report.problems, *([] if refusal is None else [refusal])]
    if is_json:
        words = {"problems": problems, "proven": () if problems else report.proven, "not_proven": report.not_proven}
        print_json({"ok": not problems, **words, **report.counts})
    else:
        for problem in problems:
            complain(problem)
        state = "[bold green]holds[/]" if not problems else f"[bold red]{len(problems)} problems[/]"
        output_console().print(
            f"{folder}: {state}  " + ", ".join(f"{value:,} {name}" for name, value in report.counts.items()), soft_wrap=True
        )
        show_proof(report)
    if problems:
        raise typer.Exit(1)


def show_proof(report: VerifyReport) -> None:
    """Print what the verification proved, if nothing is wrong, and what it cannot tell."""
    parts = [("Proven:", report.proven)] if report.ok else []
    for title, sentences in (*parts, ("Not proven:", report.not_proven)):
        output_console().print(title, *(f"  {sentence}" for sentence in sentences), sep="\n", markup=False, soft_wrap=True)


@app.command("import")
def import_command(
    files: Annotated[list[Path], typer.Argument(help="Trajectory files (JSON or JSONL).", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The JSONL file of graphs to write.", show_default=False)],
    *,
    shape: Annotated[
        str | None,
        typer.Option(
            help=f"One of {', '.join(SHAPES)}; without it, Hermes guesses from each line.", autocompletion=complete_from(lambda: SHAPES)
        ),
    ] = None,
    is_json: Json = False,
) -> None:
    """Read trajectories that other programs wrote (ShareGPT, hermes-agent, OpenAI fine-tuning) into graphs.

    Hermes reports faults in them (a lost question, results under the wrong name, injected thoughts …) and repairs nothing
    silently. Exit code 0 when all went well, 1 when a line could not be read, 2 for bad arguments."""
    if shape is not None and shape not in SHAPES:
        fail(f"unknown shape {shape!r}; one of {', '.join(SHAPES)}")
    if out.exists():
        fail(f"{out} exists; name another file with --out, or remove it")
    for file in files:
        if not file.is_file():
            fail(f"{file}: no such file")
    count, broken, findings = 0, list[str](), list[str]()
    draft = out.with_name(f".{out.name}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with open_private_text(draft) as lines:
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
        print_json({"graphs": count, "findings": findings, "broken": broken})
    else:
        output_console().print(f"{count:,} graphs in {out}, {len(findings):,} findings, {len(broken):,} lines not read", soft_wrap=True)
    if broken:
        raise typer.Exit(1)


def _reward_rules(texts: Iterable[str]) -> tuple[RewardRule, ...]:
    try:
        rules = tuple(map(RewardRule.parse, texts))
        check_rules(rules)
    except TrajectorySettingsError as error:
        fail(str(error))
    return rules


def _export_files(
    read: FileSessions,
    out: Path,
    settings: ExportSettings,
    *,
    tokenizer: Path | None,
    signer: LedgerSigner | None,
    engine: ChunkEngine,
    bar: ExportBar,
) -> ExportSummary:
    if isinstance(engine, LocalEngine) and engine.workers == 1:
        return export(read, out, settings, FORMATS, tokenizer=_tokenizer(tokenizer), signer=signer, on_session=bar.on_session)
    return export_on(engine, read, out, settings, FORMATS, tokenizer=tokenizer, signer=signer, on_step=bar.on_step)


def _refuse_contradictions(has_graphs: bool, is_stored: bool, save_graphs: Path | None, config: Path | None, out: Path) -> None:  # noqa: FBT001  # the options
    if has_graphs and is_stored:
        fail("read graphs either from files or from the store: leave out GRAPHS, or --conversation, --since, --account and --stored")
    if not has_graphs and not is_stored:
        fail("which graphs? Name files or folders, or read the store with --conversation, --since, --account or --stored")
    if not is_stored and (save_graphs is not None or config is not None):
        fail("--save-graphs and --config need sessions from the store: --conversation, --since, --account or --stored")
    if save_graphs is None:
        return
    if save_graphs.exists():
        fail(f"{save_graphs} exists; name another file with --save-graphs, or remove it")
    if out.resolve() in (save_graphs.resolve(), *save_graphs.resolve().parents):
        fail(f"{save_graphs} lies in {out}; that folder must hold only the export")


@contextmanager
def _save_graphs(source: ExportSource, file: Path) -> Iterator[Iterable[ExportSession | SourceError]]:
    """Write the sessions to a file while they are read. It appears when the block ends without an error; only its owner can read it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(handle)
    try:
        yield _SavedSessions(source, Path(name))
        Path(name).rename(file)
    finally:
        Path(name).unlink(missing_ok=True)


class _SavedSessions:
    """Sessions that are written to a file as they are read. After several passes the file holds those of the last pass."""

    def __init__(self, source: ExportSource, file: Path) -> None:
        self._source, self._file = source, file

    def __iter__(self) -> Iterator[ExportSession | SourceError]:
        with self._file.open("w", encoding="utf-8") as lines:
            for session in self._source:
                if isinstance(session, ExportSession):
                    lines.write(session.graph.to_json() + "\n")
                yield session


def _tokenizer(folder: Path | None) -> Tokenizer | None:
    return load_tokenizer(folder) if folder is not None else None


# --- what an export prints


class ExportBar:
    """Shows progress: session by session, or in the steps that an engine reports."""

    def __init__(self, progress: Progress, task: TaskID, source: ExportSource) -> None:
        self._progress, self._task, self._source = progress, task, source
        self._sessions = self._tokens = 0

    def on_session(self, plan: SessionPlan) -> None:
        self._sessions += 1
        self._tokens += sum(call.trained for call in plan.calls)
        self._progress.update(self._task, total=self._source.size, advance=plan.session.size, sessions=self._sessions, tokens=self._tokens)

    def on_step(self, step: ExportProgress) -> None:
        self._progress.update(self._task, total=step.bytes_to_read, completed=step.bytes_read, sessions=step.sessions, tokens=step.tokens)


@contextmanager
def show_export_bar(source: ExportSource, *, is_quiet: bool) -> Iterator[ExportBar]:
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


SUPERVISED_FORMATS = frozenset({"atif", "llamafactory", "openai", "sharegpt", "trl"})
"""Formats whose readers train without advantages."""
NO_IDS_ADVICE = "; export them in a text format (--format sharegpt), or give them ids with --tokenizer DIR"
ADVICE = {
    NO_IDS: NO_IDS_ADVICE,
    NO_PROMPT_IDS: NO_IDS_ADVICE,
    DERIVED: "; train them off-policy with --include derived",
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


def why_no_advantages(policies: Mapping[str, Any]) -> str:
    """Return one line for an export whose advantages are all 0: why, and what to do."""
    names = " and ".join(rule["name"] for rule in policies["rewards"]) or "reward, rollout_reward and advantage"
    cause = f"no trained sample has one other than 0 ({names})"
    if policies["advantages"] != "reward":
        cause += ", or the rollouts of each session all have the same (several rollouts in a session: hermes batch -n 4 --set groups=true)"
    return (
        f"Every advantage is 0, so a policy gradient would train nothing: {cause}. Annotate rewards (graph.annotate, hermes batch with a "
        "verifier), or name the annotation that is the reward: --reward NAME. Supervised training needs none."
    )


def show_policies(trained: Mapping[str, Mapping[str, int]], what: str, indent: int = 2) -> list[tuple[str, str]]:
    """Return how much is on and off policy; nothing if all of it is on policy."""
    if not trained["off_policy"]["rows"]:
        return []
    return [(f"{' ' * indent}{name.replace('_', ' ')}", f"{count[what]:,}") for name, count in trained.items()]


def show_summary(summary: ExportSummary, out: Path) -> None:
    manifest = summary.manifest
    tokens: dict[str, int] = manifest["tokens"]
    again = f"  ({manifest['duplicates']:,} more were duplicates)" if manifest["duplicates"] else ""
    rows: list[tuple[str, str]] = [
        ("sessions", f"{manifest['sessions']:,}"),
        ("rows", f"{manifest['rows']:,}"),
        *show_policies(manifest["trained"], "rows"),
        ("samples", f"{manifest['samples']:,}{again}"),
        ("  trained", f"{summary.trained:,}"),
        *show_policies(manifest["trained"], "samples", indent=4),
        ("  not trained", f"{manifest['samples'] - summary.trained:,}"),
        ("sampled tokens", f"{tokens['sampled']:,}"),
        ("  trained", f"{tokens['trained']:,}"),
        *show_policies(manifest["trained"], "tokens", indent=4),
        ("  excluded", f"{tokens['excluded']:,}"),
    ]
    rows += [(f"    {reason}", f"{count['tokens']:,}  (samples: {count['samples']:,})") for reason, count in manifest["excluded"].items()]
    print_properties(rows, str(out))
    if summary.trained and not manifest["nonzero_advantages"] and manifest["settings"]["format"] not in SUPERVISED_FORMATS:
        typer.echo(why_no_advantages(manifest["settings"]["policies"]))
    typer.secho(f"Check it: hermes verify {out}", fg="bright_black")
    if manifest["settings"]["format"] == "llamafactory":
        typer.secho(f"Train with dataset_dir: {out}, dataset: {DATASET}, mask_history: true", fg="bright_black")
