"""A run: many rollouts at once, each of them kept, however it ends. It ends when all are done, or when the user stops it:

stop(…)     begins no more rollouts; those under way finish
give_up()   interrupts the rollouts under way; they are kept aside, and made again when the run is resumed

The budget counts the whole run, also rollouts that are aside, and looks ahead: it expects each rollout under way to cost the average so
far, and begins none that would exceed the limit. The first one runs alone, to learn its cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from typing import Protocol

from hermes.graph import MessageGraph
from hermes.trajectories.batch.agent_loop import ChatEnding, RolloutAgent, RolloutChat, converse, with_subagents
from hermes.trajectories.batch.prompt_file import PromptItem
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe, seed_of
from hermes.trajectories.batch.rollout import Rollout, RolloutEntry, RolloutOutcome, RolloutUsage, Verifier, annotate_rollout, score
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.tools import RolloutContext, Toolset, ToolsetFailed, is_cancelled, open_rollout_tools
from hermes.trajectories.sampling_model import ModelFailed, SamplingModel

MICRO_PER_USD = 1_000_000
MIN_ERRORS_IN_A_ROW = 20
"""The run stops after so many errors in a row, or twice `concurrency` if that is more: then the fault is not in single rollouts."""


class RolloutOutput(Protocol):
    """A place that keeps finished rollouts."""

    async def put(self, rollout: Rollout) -> None:
        """Return when the rollout is stored."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One rollout to make."""

    item: PromptItem
    rollout: int
    attempt: int


@dataclass(frozen=True, slots=True)
class _Making:
    """What the workers of a run share."""

    jobs: Iterator[RolloutJob]
    model: SamplingModel
    toolsets: Mapping[str, Toolset]
    outputs: Sequence[RolloutOutput]


class BatchRun:
    """A run: what it makes, the folder that keeps it, and why it stopped."""

    def __init__(
        self,
        folder: RunFolder,
        items: Iterable[PromptItem],
        recipe: BatchRecipe,
        pace: BatchPace | None = None,
        *,
        rollouts: int = 1,
        limit: int | None = None,
        without: frozenset[str] = frozenset(),
        budget: Budget | None = None,
        verifier: Verifier | None = None,
        on_rollout: Callable[[RolloutEntry], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Makes so many `rollouts` of each item, of the first `limit` items only, and none of the items in `without`.

        `items` are read several times. The budget also counts what the folder has when the run begins. `sleep` waits between two tries."""
        self.folder, self.items, self.recipe, self.pace = folder, items, recipe, pace or BatchPace()
        self.budget, self.verifier, self.limit = budget or Budget(), verifier, limit
        self.reason = ""
        """Why the run was stopped; empty if it was not."""
        self.on_rollout, self._sleep = on_rollout, sleep
        self._rollouts, self._without = rollouts, without
        self._under_way: set[asyncio.Task[Rollout]] = set()
        self._changed = asyncio.Condition()
        self._errors_in_a_row = 0

    def jobs(self) -> Iterator[RolloutJob]:
        """Yield the rollouts that are not done, item by item: rollouts of one prompt run together, so the server's prompt cache helps."""
        for item in islice(self.items, self.limit):
            if item.id in self._without:
                continue
            for number in range(self._rollouts):
                if (item.id, number) not in self.folder.done:
                    yield RolloutJob(item, number, self.folder.attempts(item.id, number))

    @property
    def left(self) -> int:
        """How many rollouts are not done. Reads all items."""
        return sum(1 for _ in self.jobs())

    async def run(self, model: SamplingModel, toolsets: Mapping[str, Toolset] | None = None, outputs: Sequence[RolloutOutput] = ()) -> None:
        """Work until all rollouts are done or `stop` is called. The recipe draws from the names of the toolsets. Each rollout is put to the
        folder, and then to the outputs, one after the other. Raises errors that are not a rollout's: a full disk, a bug in Hermes."""
        for placed in self.folder.read_index():
            self.budget.add(placed.entry)
        for entry in self.folder.entries_aside():
            self.budget.add(entry, is_finished=False)
        making = _Making(iter(self.jobs()), model, toolsets or {}, (RolloutWriter(self.folder), *outputs))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.pace.concurrency):
                    group.create_task(self._work(making))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    def stop(self, reason: str) -> None:
        """Begin no more rollouts. The first reason is kept."""
        self.reason = self.reason or reason

    def give_up(self) -> None:
        """Stop, and interrupt the rollouts under way."""
        self.stop("given up")
        for task in self._under_way:
            task.cancel()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    async def _work(self, making: _Making) -> None:
        while await self._may_begin():
            try:
                job = next(making.jobs, None)
                if job is None:
                    return
                await self._keep(await self._run_as_task(job, making), making.outputs)
            finally:
                async with self._changed:
                    self.budget.end()
                    self._changed.notify_all()

    async def _may_begin(self) -> bool:
        """Wait until the budget allows another rollout; return False if the run has to stop."""
        async with self._changed:
            while not self.reason:
                decision = self.budget.begin()
                if decision is BudgetDecision.GO:
                    return True
                if decision is BudgetDecision.WAIT:
                    await self._changed.wait()
                else:
                    self.stop(self.budget.reason)
        return False

    async def _run_as_task(self, job: RolloutJob, making: _Making) -> Rollout:
        task = asyncio.create_task(self._perform(job, making))
        self._under_way.add(task)
        try:
            return await task
        finally:
            self._under_way.discard(task)

    async def _keep(self, rollout: Rollout, outputs: Sequence[RolloutOutput]) -> None:
        entry = rollout.entry
        is_finished = entry.outcome is not RolloutOutcome.INTERRUPTED
        self.budget.add(entry, is_finished=is_finished)
        if not is_finished:
            self.folder.put_aside([(entry, rollout.graph.to_json().encode())])
            return
        for output in outputs:
            await output.put(rollout)
        self._errors_in_a_row = self._errors_in_a_row + 1 if entry.outcome is RolloutOutcome.ERROR else 0
        if self._errors_in_a_row >= max(MIN_ERRORS_IN_A_ROW, 2 * self.pace.concurrency):
            self.stop(f"{self._errors_in_a_row} rollouts in a row failed, the last one with: {entry.reason}")
        self.on_rollout(entry)

    async def _perform(self, job: RolloutJob, making: _Making) -> Rollout:
        """Make one rollout, and have it verified. An error becomes the rollout's outcome."""
        recipe, item, run_id = self.recipe, job.item, self.folder.run_id
        seed = seed_of(recipe.seed, item.id, job.rollout)
        drawn = recipe.toolsets.draw(recipe.seed, item.id)
        graph = MessageGraph(recipe.messages(item), seed=f"{run_id}/{item.id}")
        length, began, usage = len(graph), time.monotonic(), RolloutUsage()
        name = f"{run_id}/{item.id}/{job.rollout}" + (f".{job.attempt}" if job.attempt else "")
        context = RolloutContext(item.id, job.rollout, seed, item.row, item.cwd)
        toolsets = [making.toolsets[each] for each in drawn]
        ended = await self._converse(RolloutChat(graph, name, seed, cwd=item.cwd), making.model, usage, toolsets, context)
        entry = RolloutEntry(
            item=item.id,
            rollout=job.rollout,
            attempt=job.attempt,
            digest=item.digest,
            outcome=ended.outcome,
            reason=ended.reason,
            seed=seed,
            toolsets=list(drawn),
            messages=len(graph),
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            micro_usd=usage.micro_usd,
            retries=usage.retries,
            subagents=usage.subagents,
            finish_reasons=dict(usage.finish_reasons),
            tools={tool: dict(counts) for tool, counts in usage.tools.items()},
            seconds=round(time.monotonic() - began, 3),
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if self.verifier is not None and ended.outcome not in (RolloutOutcome.ERROR, RolloutOutcome.INTERRUPTED):
            entry = await self._verify(self.verifier, Rollout(entry, graph), item)
        annotate_rollout(graph, entry, length - 1, item.rest)
        return Rollout(entry, graph)

    async def _converse(
        self, chat: RolloutChat, model: SamplingModel, usage: RolloutUsage, toolsets: Sequence[Toolset], context: RolloutContext
    ) -> ChatEnding:
        head = chat.graph[0]
        system = head.get("content") if head["role"] == "system" and isinstance(head.get("content"), str) else None
        try:
            async with asyncio.timeout(self.pace.timeout_s), open_rollout_tools(toolsets, context) as tools:
                agent = RolloutAgent(model=model, recipe=self.recipe, pace=self.pace, tools=tools, usage=usage, sleep=self._sleep)
                return await converse(chat, with_subagents(agent, system))
        except TimeoutError:
            return ChatEnding(RolloutOutcome.TIMEOUT, f"after {self.pace.timeout_s:g} s")
        except ToolsetFailed as failed:
            return ChatEnding(RolloutOutcome.ERROR, str(failed))
        except ModelFailed as failed:  # no request would be answered any more
            self.stop(str(failed))
            return ChatEnding(RolloutOutcome.INTERRUPTED, str(failed))
        except asyncio.CancelledError:
            return self._end_cancelled()

    async def _verify(self, verifier: Verifier, rollout: Rollout, item: PromptItem) -> RolloutEntry:
        try:
            scored = await score(verifier, item.row, rollout, timeout_s=self.pace.verify_timeout_s)
        except asyncio.CancelledError:
            ended = self._end_cancelled()
            return replace(rollout.entry, outcome=ended.outcome, reason=ended.reason)
        return replace(rollout.entry, reward=scored.reward, metrics=scored.metrics, verify_error=scored.error)

    def _end_cancelled(self) -> ChatEnding:
        """Return how a cancelled rollout ended: interrupted, if `give_up` cancelled it; its samples so far are kept.

        If this task is not being cancelled, something that the rollout waited for was: that is an error of the rollout. If the run was
        not stopped, the CancelledError is raised again."""
        if not is_cancelled():
            return ChatEnding(RolloutOutcome.ERROR, "something that it waited for was cancelled")
        task = asyncio.current_task()
        if not self.reason or task is None:
            raise  # noqa: PLE0704  # called in an except clause
        task.uncancel()
        return ChatEnding(RolloutOutcome.INTERRUPTED, self.reason)


class RolloutWriter:
    """Writes rollouts to the run folder. Rollouts that end while the disk is busy are written together."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._waiting: list[tuple[Rollout, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._broken: Exception | None = None

    async def put(self, rollout: Rollout) -> None:
        """Return when the rollout is on disk. If a write failed, raise its error, now and for every later rollout.

        After a failed write the file may end in a torn line, and no more lines may follow."""
        if self._broken is not None:
            raise self._broken
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rollout, rollout.graph.to_json().encode(), written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_waiting())
        await asyncio.shield(written)

    async def _write_waiting(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._folder.put, [(rollout, text) for rollout, text, _ in taken])
            except Exception as error:  # noqa: BLE001  # raised in every waiting task, so that none waits for ever
                self._broken = error
                for _, _, written in taken + self._waiting:
                    written.set_exception(error)
                return
            for _, _, written in taken:
                written.set_result(None)


class BudgetDecision(StrEnum):
    """Whether another rollout may begin."""

    GO = "go"
    WAIT = "wait"
    """Ask again when a rollout under way has ended: then the average is better known."""
    STOP = "stop"


@dataclass(slots=True)
class Budget:
    """The limits of a run, None for no limit, and what it has spent."""

    micro_usd: int | None = None
    tokens: int | None = None
    spent_micro_usd: int = 0
    spent_tokens: int = 0
    finished: int = 0
    made: int = 0
    """All rollouts that were made, also those that are aside."""
    under_way: int = 0
    reason: str = ""
    """Why the run has to stop."""

    def begin(self) -> BudgetDecision:
        """Decide whether a rollout may begin; on GO it counts as under way."""
        decisions = {self._decide(*limit) for limit in self._limits()}
        if BudgetDecision.STOP in decisions:
            return BudgetDecision.STOP
        if BudgetDecision.WAIT in decisions:
            return BudgetDecision.WAIT
        self.under_way += 1
        return BudgetDecision.GO

    def end(self) -> None:
        """Count a rollout as no longer under way."""
        self.under_way -= 1

    def add(self, entry: RolloutEntry, *, is_finished: bool = True) -> None:
        """Count what a rollout cost."""
        self.finished += is_finished
        self.made += 1
        self.spent_micro_usd += entry.micro_usd
        self.spent_tokens += entry.tokens

    def _decide(self, limit: int | None, spent: int, reason: str) -> BudgetDecision:
        if limit is None:
            return BudgetDecision.GO
        each = spent / self.made if self.made else 0.0
        if spent < limit and (self.finished or not self.under_way) and spent + (self.under_way + 1) * each <= limit:
            return BudgetDecision.GO
        if spent < limit and self.under_way:
            return BudgetDecision.WAIT
        self.reason = reason
        return BudgetDecision.STOP

    def _limits(self) -> tuple[tuple[int | None, int, str], ...]:
        usd = f"{self.spent_micro_usd / MICRO_PER_USD:,.4f} of {(self.micro_usd or 0) / MICRO_PER_USD:,.4f} USD are spent"
        tokens = f"{self.spent_tokens:,} of {self.tokens or 0:,} tokens are used"
        return (
            (
                self.micro_usd,
                self.spent_micro_usd,
                f"{usd}, and the next rollout would exceed the budget; resume with a higher --budget-usd",
            ),
            (
                self.tokens,
                self.spent_tokens,
                f"{tokens}, and the next rollout would exceed the budget; resume with a higher budget_tokens",
            ),
        )
