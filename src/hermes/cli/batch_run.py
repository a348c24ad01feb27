"""Run a batch: open the services that it needs, show its progress, and stop cleanly when the user presses Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hermes.app.batch_model import GatewayModel, make_batch_model, open_batch_services
from hermes.app.rollout_store import RolloutStore
from hermes.app.toolsets import open_toolsets
from hermes.cli.output import complain
from hermes.cli.runtime import start_log
from hermes.config import LogLevel, Settings
from hermes.trajectories.batch.recipe import BatchPace
from hermes.trajectories.batch.rollout import FAILED_OUTCOMES, RolloutEntry
from hermes.trajectories.batch.run import MICRO_PER_USD, BatchRun, RolloutOutput
from hermes.trajectories.batch.run_folder import RunFolder

INTERRUPTED = "interrupted"
GRACE_S = 10.0
"""How long running rollouts may take to end after Ctrl-C."""
PROGRESS_INTERVAL_S = 15.0
"""How often a run prints its progress when it does not run on a terminal."""


async def run_batch(run: BatchRun, settings: Settings, *, account: str, is_stored: bool, is_quiet: bool) -> None:
    """Make the rollouts that are not done yet; `run` says afterwards why it stopped, and what is left."""
    start_log(replace(settings, log=replace(settings.log, level=LogLevel.WARNING)))
    _say_recovered(run.folder)
    left = run.left
    if not left and not is_stored:
        return
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(open_batch_services(settings, run.recipe.model))
        model = await make_batch_model(services, run.recipe.model, account=account)
        toolsets = await stack.enter_async_context(open_toolsets(services, list(run.recipe.toolsets.toolsets), account=account))
        run.pace = _limit_pace(run, model)
        outputs: list[RolloutOutput] = []
        if is_stored:
            store = RolloutStore(services, run.folder, account=account, user_id=model.user_id)
            await store.catch_up()
            outputs.append(store)
        with show_progress(left, is_quiet=is_quiet) as bar, stop_on_signals(run, bar.say):
            run.on_rollout = bar.advance
            await run.run(model, toolsets, outputs)


@contextmanager
def stop_on_signals(run: BatchRun, say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C once: running rollouts get GRACE_S to end. Twice: cancel them. Three times: exit at once."""
    loop, count = asyncio.get_running_loop(), 0

    def on_signal() -> None:
        nonlocal count
        count += 1
        if count == 1:
            run.stop(INTERRUPTED)
            say(f"stopping: running rollouts have {GRACE_S:g} s to end; Ctrl-C again cancels them now")
            loop.call_later(GRACE_S, run.give_up)
        elif count == 2:
            run.give_up()
        else:
            os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@dataclass(slots=True)
class BatchBar:
    """Shows the progress of a run: a bar on a terminal, elsewhere a line every PROGRESS_INTERVAL_S; nothing if `is_quiet`."""

    bar: Progress
    task: TaskID
    total: int
    is_quiet: bool
    done: int = 0
    failed: int = 0
    tokens: int = 0
    usd: float = 0.0
    began: float = field(default_factory=time.monotonic)
    told_at: float = field(default_factory=time.monotonic)

    def advance(self, entry: RolloutEntry) -> None:
        """Count a rollout."""
        self.done += 1
        self.failed += entry.outcome in FAILED_OUTCOMES
        self.tokens += entry.completion_tokens
        self.usd += entry.micro_usd / MICRO_PER_USD
        speed = self.tokens / max(time.monotonic() - self.began, 1e-9)
        self.bar.update(self.task, advance=1, failed=self.failed, speed=speed, usd=self.usd)
        if self.bar.disable and not self.is_quiet and time.monotonic() - self.told_at > PROGRESS_INTERVAL_S:
            self.told_at = time.monotonic()
            progress = f"{self.done:,} of {self.total:,} rollouts, {self.failed:,} failed, {speed:,.0f} tokens/s, ${self.usd:,.4f}"
            typer.echo(progress, err=True)

    def say(self, text: str) -> None:
        """Print a message above the bar."""
        if self.bar.disable:
            complain(text)
        else:
            self.bar.console.print(f"hermes: {text}", style="red", highlight=False, markup=False)


@contextmanager
def show_progress(total: int, *, is_quiet: bool) -> Iterator[BatchBar]:
    """Show the progress of a run as long as the block lasts."""
    console = Console(stderr=True, quiet=is_quiet)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]:,} failed"),
        TextColumn("{task.fields[speed]:,.0f} tokens/s"),
        TextColumn("${task.fields[usd]:,.4f}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    is_shown = console.is_terminal and not is_quiet
    with Progress(*columns, console=console, transient=True, disable=not is_shown, refresh_per_second=4) as bar:
        yield BatchBar(bar, bar.add_task("batch", total=total, failed=0, speed=0.0, usd=0.0), total, is_quiet)


def _say_recovered(folder: RunFolder) -> None:
    if folder.recovered:
        complain(f"{folder.recovered:,} finished rollouts were not listed yet, because the run was killed; they are listed now")
    if folder.torn:
        complain("the run was killed while it wrote a line; that incomplete line is removed")


def _limit_pace(run: BatchRun, model: GatewayModel) -> BatchPace:
    """Return the pace of the run, lowered to what the model can do. Tells the user about every limit."""
    max_tokens, pace = run.recipe.max_tokens, run.pace
    if max_tokens is not None and max_tokens > model.max_tokens:
        complain(f"answers end at {model.max_tokens:,} tokens, not {max_tokens:,}; raise models.{model.name}.max_tokens in the settings")
    if pace.concurrency <= model.at_once:
        return pace
    if not run.recipe.toolsets.toolsets and run.verifier is None:
        return replace(pace, concurrency=model.at_once)  # further rollouts would only wait, and their timeouts would pass
    complain(f"of {pace.concurrency} rollouts at once, {model.at_once} call the model; the others wait, and their timeout counts that too")
    return pace
