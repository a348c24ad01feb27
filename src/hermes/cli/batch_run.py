"""Carry a batch run out: open what it needs, show how it gets on, and stop in good order when somebody says so."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hermes.app.sampling import GatewayModel, model_on, open_ground
from hermes.app.shelf import StoreShelf
from hermes.app.toolsets import open_toolsets
from hermes.cli.errors import complain
from hermes.cli.running import start_log
from hermes.config import LogLevel, Settings
from hermes.trajectories.batch.budget import PER_USD, Budget
from hermes.trajectories.batch.folder import Folder, Writer
from hermes.trajectories.batch.items import Items
from hermes.trajectories.batch.recipe import Pace, Recipe
from hermes.trajectories.batch.rollout import FAILED, Entry
from hermes.trajectories.batch.runner import Job, Plan, Runner, Shelf, jobs_of
from hermes.trajectories.batch.verify import Verifier

INTERRUPTED = "interrupted"
GRACE_S = 10.0
"""How long what is under way may take to end after Ctrl-C."""
NEWS_S = 15.0
"""How often a run says where it is when nobody watches its bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for."""

    settings: Settings
    recipe: Recipe
    pace: Pace
    budget: Budget
    items: Items
    rollouts: int
    limit: int | None
    account: str
    verifier: Verifier | None
    is_stored: bool
    is_quiet: bool

    def jobs(self, folder: Folder, without: frozenset[str]) -> Iterator[Job]:
        """What is still to be done."""
        return jobs_of(islice(iter(self.items), self.limit), self.rollouts, folder, without)


async def perform(order: Order, folder: Folder, without: frozenset[str]) -> str:
    """Make the rollouts that are still to be made; return why it stopped before, or nothing. Items in `without` get no new ones."""
    start_log(replace(order.settings, log=replace(order.settings.log, level=LogLevel.WARNING)))
    _say_recovered(folder)
    for placed in folder.placed():
        order.budget.add(placed.entry)
    for entry in folder.entries_aside():
        order.budget.add(entry, is_finished=False)
    left = sum(1 for _ in order.jobs(folder, without))
    if not left and not order.is_stored:
        return ""
    recipe = order.recipe
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(open_ground(order.settings, recipe.model))
        model = await model_on(ground, recipe.model, account=order.account)
        toolsets = await stack.enter_async_context(open_toolsets(ground, list(recipe.toolsets.toolsets), account=order.account))
        _warn(order, model)
        shelves: list[Shelf] = [Writer(folder)]
        if order.is_stored:
            store = StoreShelf(ground, folder, account=order.account, user_id=model.user_id)
            await store.catch_up()
            shelves.append(store)
        plan = Plan(
            run_id=folder.run_id,
            jobs=order.jobs(folder, without),
            recipe=recipe,
            pace=order.pace,
            model=model,
            toolsets=toolsets,
            verifier=order.verifier,
        )
        with progress(left, is_quiet=order.is_quiet) as advance:
            runner = Runner(plan, folder, shelves, order.budget, on_rollout=advance)
            with signals(runner):
                await runner.run()
        return runner.reason


@contextmanager
def signals(runner: Runner) -> Iterator[None]:
    """Ctrl-C once: let what is under way end, for a moment. Twice: cut it off. Three times: leave."""
    loop, count = asyncio.get_running_loop(), 0

    def told() -> None:
        nonlocal count
        count += 1
        if count == 1:
            runner.stop(INTERRUPTED)
            complain(f"stopping: {runner.under_way:,} rollouts under way have {GRACE_S:g} s to end; Ctrl-C again cuts them off now")
            loop.call_later(GRACE_S, runner.give_up)
        elif count == 2:
            runner.give_up()
        else:
            os._exit(130)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def progress(total: int, *, is_quiet: bool) -> Iterator[Callable[[Entry], None]]:
    """Show how far a run is: a bar on a terminal, elsewhere a line now and then; nothing if it is to be quiet."""
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
    counts: dict[str, Any] = {"failed": 0, "speed": 0.0, "usd": 0.0}
    done, tokens, began, told = 0, 0, time.monotonic(), time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal, refresh_per_second=4) as bar:
        task = bar.add_task("batch", total=total, **counts)

        def advance(entry: Entry) -> None:
            nonlocal done, tokens, told
            done, tokens = done + 1, tokens + entry.completion_tokens
            counts["failed"] += entry.outcome in FAILED
            counts["usd"] += entry.micro_usd / PER_USD
            counts["speed"] = tokens / max(time.monotonic() - began, 1e-9)
            bar.update(task, advance=1, **counts)
            if not console.is_terminal and not is_quiet and time.monotonic() - told > NEWS_S:
                told = time.monotonic()
                failed, speed, usd = counts["failed"], counts["speed"], counts["usd"]
                typer.echo(f"{done:,} of {total:,} rollouts, {failed:,} failed, {speed:,.0f} tokens/s, ${usd:,.4f}", err=True)

        yield advance


def _say_recovered(folder: Folder) -> None:
    if folder.recovered:
        complain(f"{folder.recovered:,} finished rollouts were not noted yet, because the run was killed; they are now")
    if folder.torn:
        complain("a line that was torn when the run was killed is cut off")


def _warn(order: Order, model: GatewayModel) -> None:
    asked = order.recipe.max_tokens
    if asked is not None and asked > model.max_tokens:
        complain(
            f"answers end at {model.max_tokens:,} tokens, not {asked:,}: the settings pay for no more; raise models.{model.name}.max_tokens"
        )
    if order.pace.concurrency > model.at_once:
        why = "this model answers one at a time" if model.at_once == 1 else f"only {model.at_once} calls run at once (llm.slots)"
        complain(
            f"--concurrency {order.pace.concurrency} is more than is used: {why}; the others wait, and their waiting counts in --timeout"
        )
