"""Run many rollouts at once. Each one is kept, however it ends. The run ends when all are done, or when the user stops it:

stop(…)     begins no more rollouts; those under way finish
give_up()   interrupts the rollouts under way; they are kept aside, and made again when the run is resumed"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from hermes.graph import MessageGraph
from hermes.trajectories.batch.agent_loop import ChatEnding, RolloutAgent, RolloutChat, converse
from hermes.trajectories.batch.budget import Budget, BudgetDecision
from hermes.trajectories.batch.delegate import with_subagents
from hermes.trajectories.batch.prompt_file import PromptItem
from hermes.trajectories.batch.recipe import BatchPace, BatchRecipe
from hermes.trajectories.batch.rollout import Rollout, RolloutEntry, RolloutOutcome, RolloutUsage, annotate_rollout
from hermes.trajectories.batch.run_folder import RunFolder
from hermes.trajectories.batch.seeds import seed_of
from hermes.trajectories.batch.threads import is_cancelled
from hermes.trajectories.batch.tools import RolloutContext, Toolset, ToolsetFailed, open_rollout_tools
from hermes.trajectories.batch.verifier import Verifier, score
from hermes.trajectories.sampling_model import ModelFailed, SamplingModel

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a run has to do, and with which model and tools."""

    run_id: str
    jobs: Iterable[RolloutJob]
    recipe: BatchRecipe
    pace: BatchPace
    model: SamplingModel
    toolsets: Mapping[str, Toolset] = field(default_factory=dict)
    """By name; the recipe draws from these names."""
    verifier: Verifier | None = None


def remaining_jobs(
    items: Iterable[PromptItem], rollouts: int, folder: RunFolder, without: frozenset[str] = frozenset()
) -> Iterator[RolloutJob]:
    """Yield the rollouts that are not done, item by item: rollouts of one prompt run together, so the server's prompt cache helps."""
    for item in items:
        if item.id in without:
            continue
        for number in range(rollouts):
            if (item.id, number) not in folder.done:
                yield RolloutJob(item, number, folder.attempts(item.id, number))


class BatchRunner:
    """Runs the rollouts of a plan."""

    def __init__(
        self,
        plan: BatchPlan,
        folder: RunFolder,
        outputs: Sequence[RolloutOutput],
        budget: Budget,
        *,
        on_rollout: Callable[[RolloutEntry], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Each rollout is put to all outputs, one after the other. `sleep` waits between two tries."""
        self._plan, self._folder, self._outputs, self._budget = plan, folder, outputs, budget
        self._on_rollout, self._sleep = on_rollout, sleep
        self._jobs = iter(plan.jobs)
        self._under_way: set[asyncio.Task[Rollout]] = set()
        self._changed = asyncio.Condition()
        self._errors_in_a_row = 0
        self.reason = ""
        """Why the run was stopped; empty if it was not."""

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

    async def run(self) -> None:
        """Work until all rollouts are done or `stop` is called. Raises errors that are not a rollout's: a full disk, a bug in Hermes."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._plan.pace.concurrency):
                    group.create_task(self._work())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _work(self) -> None:
        while await self._may_begin():
            try:
                job = next(self._jobs, None)
                if job is None:
                    return
                await self._keep(await self._run_as_task(job))
            finally:
                async with self._changed:
                    self._budget.end()
                    self._changed.notify_all()

    async def _may_begin(self) -> bool:
        """Wait until the budget allows another rollout; return False if the run has to stop."""
        async with self._changed:
            while not self.reason:
                decision = self._budget.begin()
                if decision is BudgetDecision.GO:
                    return True
                if decision is BudgetDecision.WAIT:
                    await self._changed.wait()
                else:
                    self.stop(self._budget.reason)
        return False

    async def _run_as_task(self, job: RolloutJob) -> Rollout:
        task = asyncio.create_task(self._perform(job))
        self._under_way.add(task)
        try:
            return await task
        finally:
            self._under_way.discard(task)

    async def _keep(self, rollout: Rollout) -> None:
        entry = rollout.entry
        is_finished = entry.outcome is not RolloutOutcome.INTERRUPTED
        self._budget.add(entry, is_finished=is_finished)
        if not is_finished:
            self._folder.put_aside([(entry, rollout.graph.to_json().encode())])
            return
        for output in self._outputs:
            await output.put(rollout)
        self._errors_in_a_row = self._errors_in_a_row + 1 if entry.outcome is RolloutOutcome.ERROR else 0
        if self._errors_in_a_row >= max(MIN_ERRORS_IN_A_ROW, 2 * self._plan.pace.concurrency):
            self.stop(f"{self._errors_in_a_row} rollouts in a row failed, the last one with: {entry.reason}")
        self._on_rollout(entry)

    async def _perform(self, job: RolloutJob) -> Rollout:
        """Make one rollout, and have it verified. An error becomes the rollout's outcome."""
        plan, item = self._plan, job.item
        recipe, pace = plan.recipe, plan.pace
        seed = seed_of(recipe.seed, item.id, job.rollout)
        drawn = recipe.toolsets.draw(recipe.seed, item.id)
        graph = MessageGraph(recipe.messages(item), seed=f"{plan.run_id}/{item.id}")
        length, began, usage = len(graph), time.monotonic(), RolloutUsage()
        name = f"{plan.run_id}/{item.id}/{job.rollout}" + (f".{job.attempt}" if job.attempt else "")
        context = RolloutContext(item.id, job.rollout, seed, item.row, item.cwd)
        ended = await self._converse(RolloutChat(graph, name, seed), usage, [plan.toolsets[each] for each in drawn], context)
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
        if plan.verifier is not None and ended.outcome not in (RolloutOutcome.ERROR, RolloutOutcome.INTERRUPTED):
            entry = await self._verify(plan.verifier, Rollout(entry, graph), item, pace)
        annotate_rollout(graph, entry, length - 1, item.rest)
        return Rollout(entry, graph)

    async def _converse(self, chat: RolloutChat, usage: RolloutUsage, toolsets: Sequence[Toolset], context: RolloutContext) -> ChatEnding:
        plan = self._plan
        head = chat.graph[0]
        system = head.get("content") if head["role"] == "system" and isinstance(head.get("content"), str) else None
        try:
            async with asyncio.timeout(plan.pace.timeout_s), open_rollout_tools(toolsets, context) as tools:
                agent = RolloutAgent(model=plan.model, recipe=plan.recipe, pace=plan.pace, tools=tools, usage=usage, sleep=self._sleep)
                return await converse(chat, with_subagents(agent, system))
        except TimeoutError:
            return ChatEnding(RolloutOutcome.TIMEOUT, f"after {plan.pace.timeout_s:g} s")
        except ToolsetFailed as failed:
            return ChatEnding(RolloutOutcome.ERROR, str(failed))
        except ModelFailed as failed:  # no request would be answered any more
            self.stop(str(failed))
            return ChatEnding(RolloutOutcome.INTERRUPTED, str(failed))
        except asyncio.CancelledError:
            return self._end_cancelled()

    async def _verify(self, verifier: Verifier, rollout: Rollout, item: PromptItem, pace: BatchPace) -> RolloutEntry:
        try:
            scored = await score(verifier, item.row, rollout, timeout_s=pace.verify_timeout_s)
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
