"""`hermes replay`: what another model would have said: one turn, or the last turns of a filter against up to four models."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import UUID

import typer

from hermes.app.root import Hermes
from hermes.cli.actor import command_actor
from hermes.cli.commands import app
from hermes.cli.moments import parse_moment
from hermes.cli.options import Config, Json
from hermes.cli.output import CANNOT_RUN, complain, fail, print_json, print_properties, print_table
from hermes.cli.runtime import complete_models, run, with_hermes
from hermes.console.access import AccessRefused
from hermes.console.amounts import show_usd
from hermes.console.replay_forms import FILTER_NAMES, SAMPLING, read_filter, read_sampling
from hermes.console.replay_keep import NotKept
from hermes.console.replay_table import BatchTable, build_table
from hermes.console.replays import BatchPlan, ReplayConsole, ReplayInvalid, ReplayView, conversation_subject
from hermes.ports.errors import NotFound, StaleHead, UserErased
from hermes.ports.replays import MAX_ANSWERS, MAX_BATCH_MODELS, MAX_BATCH_TURNS, Replay, ReplayChange, ReplayFilter, ReplayState
from hermes.terminal import show_safely

T = TypeVar("T")
LOOK_S = 0.5
"""How often a command looks how far a batch is."""
ACTIONS = ("keep", "stop", "resume", "show")

TurnOrAction = Annotated[
    str | None,
    typer.Argument(
        metavar="[TURN]", help="The id of a turn or of a call of the completions API; or keep, stop, resume, show.", show_default=False
    ),
]
ActionId = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="After keep and show: a replay's id. After stop and resume: a batch's.", show_default=False),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", help=f"The model to ask; for many turns up to {MAX_BATCH_MODELS}, repeatable.", autocompletion=complete_models),
]


@app.command()
def replay(
    turn: TurnOrAction = None,
    action_id: ActionId = None,
    *,
    models: Models = None,
    answers: Annotated[int, typer.Option("--answers", "-n", min=1, max=MAX_ANSWERS, help="Answers to one turn.")] = 1,
    system: Annotated[Path | None, typer.Option("--system", help="A file with another system text.", show_default=False)] = None,
    without_tools: Annotated[bool, typer.Option("--without-tools", help="Offer the model no tool.")] = False,
    run_tool: Annotated[
        list[str] | None, typer.Option("--run-tool", help="A tool that only reads and may run if the model calls it with new arguments.")
    ] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0.0, max=2.0, show_default=False)] = None,
    sampling: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="top_p, max_tokens, seed or temperature; repeatable.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why you read what was said; the audit log has it. Production asks for it.")] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Turns without an answer.", rich_help_panel="Many turns")] = False,
    last: Annotated[
        int | None,
        typer.Option(
            "--last", min=1, max=MAX_BATCH_TURNS, help="How many of the newest turns.", rich_help_panel="Many turns", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="24h, 7d, 2026-11-15", rich_help_panel="Many turns", show_default=False)
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="NAME=VALUE",
            help="Only turns with this agent, model, platform, tier, tool or user; repeatable.",
            rich_help_panel="Many turns",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask after the estimate.", rich_help_panel="Many turns")] = False,
    is_json: Json = False,
    is_csv: Annotated[bool, typer.Option("--csv", help="Print the table of many turns as CSV.", rich_help_panel="Many turns")] = False,
    config: Config = None,
) -> None:
    """Ask a model again what a turn asked: a dry run. Nothing is sent, charged to the user, remembered or written into the conversation.

    The request is the recorded one, word for word, with what you change. Tools get their recorded results; a call with other arguments ends
    the replay, unless the tool only reads and you name it with --run-tool. Hermes pays, up to console.replay_daily_usd a day.

        hermes replay 3f0c… --model claude-sonnet
        hermes replay 3f0c… --model claude-haiku --system other.txt --temperature 0
        hermes replay --failed --last 50 --model claude-haiku --model claude-sonnet
        hermes replay --last 20 --where agent=bali --where tool=venue_search --model claude-haiku
        hermes replay show REPLAY · keep REPLAY · stop BATCH · resume BATCH

    Exit code 0 when it is done, 1 when no model answered, 2 for bad input."""
    if turn in ACTIONS:
        act_on(turn or "", action_id, reason=reason, is_json=is_json, config=config)
        return
    if action_id is not None:
        fail(f"{action_id}: a replay is of one turn; for many turns use --last")
    if not models:
        fail("say which model to ask: --model NAME")
    if turn is not None:
        change = ReplayChange(
            system=read_text(system),
            tools=() if without_tools else None,
            sampling=parse_sampling(sampling or (), temperature),
            run_tools=tuple(run_tool or ()),
        )
        replay_turn(parse_id(turn), models, change, answers=answers, reason=reason, is_json=is_json, config=config)
        return
    if last is None:
        fail("name a turn, or say how many of the newest: --last 50")
    wanted = parse_where(where or (), is_failed=failed, since=since)
    replay_many(wanted, models, last, is_confirmed=yes, is_json=is_json, is_csv=is_csv, config=config)


def replay_turn(
    turn_id: UUID, models: Sequence[str], change: ReplayChange, *, answers: int, reason: str, is_json: bool, config: Path | None
) -> None:
    actor = command_actor()

    async def ask(hermes: Hermes) -> list[ReplayView]:
        console = hermes.replays
        source = await console.find_source(actor, turn_id)
        # First, so that without a reason nothing is paid that could not be shown.
        opened = await console.access.open(actor, conversation_subject(source), reason)
        ids = [each for model in models for each in await console.run(actor, source, model, change, count=answers, reason=reason)]
        await console.worker.work_off(ids)
        await wait_for(console, ids)
        return [await console.view(opened, *await console.get(actor, each)) for each in ids]

    views = run_console(config, ask)
    if is_json:
        print_json([view_json(view) for view in views])
    else:
        for view in views:
            print_view(view)
    if all(view.replay.state is not ReplayState.DONE for view in views):
        raise typer.Exit(CANNOT_RUN)


async def wait_for(console: ReplayConsole, ids: Sequence[UUID]) -> None:
    """Wait for replays that a worker beside this command took."""
    actor = command_actor()
    while any([(await console.get(actor, each))[0].is_open for each in ids]):  # noqa: ASYNC110  # another process ends them
        await asyncio.sleep(LOOK_S)


def replay_many(
    wanted: ReplayFilter, models: Sequence[str], last: int, *, is_confirmed: bool, is_json: bool, is_csv: bool, config: Path | None
) -> None:
    actor = command_actor()

    async def ask(hermes: Hermes) -> BatchTable | None:
        console = hermes.replays
        plan = await console.plan(actor, wanted, models, last)
        if not plan.sources:
            raise ReplayInvalid("no turn matches")
        show_plan(plan)
        if not is_confirmed and not await asyncio.to_thread(typer.confirm, "Replay them?", err=True):
            return None
        batch_id = await console.run_batch(actor, plan)
        typer.echo(f"Batch {batch_id}. Ctrl-C leaves it to the workers; `hermes replay stop {batch_id}` ends it.", err=True)
        watching = asyncio.create_task(watch(console, batch_id))
        try:
            while not watching.done():
                await console.worker.work_off()  # beside the workers, also where none runs
                await asyncio.wait([watching], timeout=LOOK_S)
        finally:
            watching.cancel()
        return build_table(*await console.get_batch(actor, batch_id))

    table = run_console(config, ask)
    if table is None:
        typer.echo("Nothing was asked.")
    elif is_csv:
        typer.echo(table.to_csv(), nl=False)
    elif is_json:
        print_json(table_json(table))
    else:
        print_sums(table)


async def watch(console: ReplayConsole, batch_id: UUID) -> None:
    """Show how far a batch is, until it has ended."""
    actor, shown = command_actor(), ""
    while True:
        batch, _, _ = await console.get_batch(actor, batch_id)
        text = f"{batch.ended} of {batch.total} · {show_usd(batch.micro_usd)}"
        if text != shown and sys.stderr.isatty():
            typer.echo(f"\r{text}    ", nl=batch.state != "running", err=True)
        shown = text
        if batch.state != "running":
            return
        await asyncio.sleep(LOOK_S)


def act_on(action: str, name: str | None, *, reason: str, is_json: bool, config: Path | None) -> None:
    if name is None:
        fail(f"{action}: the id of a {'batch' if action in {'stop', 'resume'} else 'replay'} is missing")
    found, actor = parse_id(name), command_actor()

    async def act(hermes: Hermes) -> Any:
        console = hermes.replays
        if action == "keep":
            return {"kept_as": await console.keep(actor, found, reason=reason)}
        if action == "stop":
            return {"stopped": await console.stop(actor, found)}
        if action == "resume":
            return {"resumed": await console.resume(actor, found)}
        replayed, source = await console.get(actor, found)
        return await console.view(await console.access.open(actor, conversation_subject(source), reason), replayed, source)

    result = run_console(config, act)
    if isinstance(result, ReplayView):
        print_json(view_json(result)) if is_json else print_view(result)
    elif is_json:
        print_json(result)
    else:
        sentences = {"kept_as": "Kept as the sample {}.", "stopped": "{} replays will not be asked.", "resumed": "{} replays wait again."}
        [(what, value)] = result.items()
        typer.echo(sentences[what].format(value))


def run_console(config: Path | None, act: Callable[[Hermes], Coroutine[Any, Any, T]]) -> T:
    """Run an action; what an operator did wrong is one line, with the code for bad input."""

    async def guarded(hermes: Hermes) -> T | Exception:
        try:
            return await act(hermes)
        except (AccessRefused, ReplayInvalid, NotKept, NotFound) as error:
            return error
        except UserErased:
            return NotFound("the person was forgotten, and this was erased with them")
        except StaleHead:
            return NotFound("the conversation went on at this moment; try again")

    result = run(with_hermes(config, guarded))
    if isinstance(result, Exception):
        fail(str(result))
    return result


# --- how it is shown


def show_plan(plan: BatchPlan) -> None:
    """Print the estimate on standard error: standard output is for the result."""
    lines = [f"{plan.title}: {len(plan.sources)} turns, {plan.replayable} can be replayed"]
    lines += [f"  {model}: about {show_usd(micro_usd)}" for model, micro_usd in plan.estimates.items()]
    if plan.left_today is not None:
        lines.append(f"  together about {show_usd(plan.micro_usd)}; replays may still cost {show_usd(plan.left_today)} today")
    typer.echo("\n".join(lines), err=True)


def print_view(view: ReplayView) -> None:
    found, source = view.replay, view.source
    rows = [
        ("replay", str(found.id)),
        ("model", found.model),
        ("outcome", found.error or found.state.value),
        ("tool calls", {None: "–", True: "same", False: "other"}[found.same_tools]),  # noqa: RUF001  # as the tables have it
        ("likeness", "–" if found.likeness is None else f"{found.likeness:.2f}"),  # noqa: RUF001
        ("tokens", f"{found.tokens_in or 0:,} + {found.tokens_out or 0:,} (recorded {source.tokens_in:,} + {source.tokens_out:,})"),
        ("time", f"{found.latency_ms or 0:,} ms (recorded {source.latency_ms:,} ms)"),
        ("cost", f"{show_usd(found.micro_usd or 0)} (recorded {show_usd(source.micro_usd)})"),
    ]
    print_properties(rows)
    for call in view.progress.not_run:
        complain(f"would call {call.name}({call.arguments}); it did not run")
    typer.echo(f"\n{show_safely(view.progress.text)}\n" if view.progress.text else "")


def print_sums(table: BatchTable) -> None:
    print_table(
        ("model", "answered", "diverged", "failed", "not asked", "same tools", "likeness", "p50 ms", "p95 ms", "tokens", "cost"),
        (
            (
                sums.model or "recorded",
                str(sums.answered),
                str(sums.diverged),
                str(sums.failed),
                str(sums.refused),
                str(sums.same_tools),
                "" if sums.likeness is None else f"{sums.likeness:.2f}",
                "" if sums.p50_ms is None else f"{sums.p50_ms:,}",
                "" if sums.p95_ms is None else f"{sums.p95_ms:,}",
                f"{sums.tokens_in:,} + {sums.tokens_out:,}",
                show_usd(sums.micro_usd),
            )
            for sums in (table.original, *table.sums)
        ),
    )


def view_json(view: ReplayView) -> dict[str, Any]:
    return {
        **replay_row(view.replay),
        "text": view.progress.text,
        "recorded_text": None if view.recorded is None else view.recorded.text,
        "not_run": [asdict(call) for call in view.progress.not_run],
    }


def table_json(table: BatchTable) -> dict[str, Any]:
    rows = [
        {"turn_id": str(row.source.id), "outcome": row.source.outcome, "replays": [cell and replay_row(cell) for cell in row.cells]}
        for row in table.rows
    ]
    return {"id": str(table.batch.id), "state": table.batch.state, "sums": [asdict(sums) for sums in table.sums], "turns": rows}


def replay_row(found: Replay) -> dict[str, Any]:
    names = (
        "model",
        "state",
        "is_diverged",
        "same_tools",
        "same_text",
        "likeness",
        "error",
        "tokens_in",
        "tokens_out",
        "micro_usd",
        "latency_ms",
    )
    return {"id": str(found.id), **{name: getattr(found, name) for name in names}}


def parse_sampling(pairs: Sequence[str], temperature: float | None) -> dict[str, float | int]:
    """Read `--set NAME=VALUE`."""
    given = parse_pairs("--set", pairs, tuple(SAMPLING))
    try:
        return read_sampling({**({} if temperature is None else {"temperature": temperature}), **given})
    except ReplayInvalid as error:
        fail(f"--set {error}")


def parse_where(pairs: Sequence[str], *, is_failed: bool, since: str | None) -> ReplayFilter:
    """Read `--where NAME=VALUE`, `--failed` and `--since`."""
    given = parse_pairs("--where", pairs, tuple(name for name in FILTER_NAMES if name not in {"status", "since", "until"}))
    try:
        wanted = read_filter({**given, "status": "failed" if is_failed else ""}, None)
    except ReplayInvalid as error:
        fail(f"--where {error}")
    return replace(wanted, since=parse_moment(since) if since else None)


def parse_pairs(option: str, pairs: Sequence[str], known: tuple[str, ...]) -> dict[str, str]:
    given = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or name not in known:
            fail(f"{option} {pair!r}: expected NAME=VALUE; the names are {', '.join(known)}")
        given[name] = value
    return given


def read_text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--system {file}: {getattr(error, 'strerror', None) or 'not text in UTF-8'}")


def parse_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"{text!r} is not an id; `hermes turns list` shows those of turns")
