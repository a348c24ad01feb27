"""Many rollouts at once. Each ends in its own way and is kept; the run ends when all are done, or is stopped in good order.

stop(…)     nothing new is begun; what is under way comes to its end
give_up()   what is under way is cut off where it stands, kept aside, and made again the next time"""

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
"""So many errors one after the other, or twice as many as there are rollouts at once, mean that something is wrong with all of them."""


class RolloutOutput(Protocol):
    """Where finished rollouts are kept."""

    async def put(self, rollout: Rollout) -> None:
        """Return when it is kept for good."""
        ...


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One rollout that is to be made."""

    item: PromptItem
    rollout: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """All that a run is to do, and what with."""

    run_id: str
    jobs: Iterable[RolloutJob]
    recipe: BatchRecipe
    pace: BatchPace
    model: SamplingModel
    toolsets: Mapping[str, Toolset] = field(default_factory=dict)
    """By the names that the recipe draws from."""
    verifier: Verifier | None = None


def remaining_jobs(
    items: Iterable[PromptItem], rollouts: int, folder: RunFolder, without: frozenset[str] = frozenset()
) -> Iterator[RolloutJob]:
    """Yield what is still to be done, item by item: the rollouts of one prompt run side by side, which servers' caches like."""
    for item in items:
        if item.id in without:
            continue
        for number in range(rollouts):
            if (item.id, number) not in folder.done:
                yield RolloutJob(item, number, folder.attempts(item.id, number))


class BatchRunner:
    """A run under way."""

    def __init__(
        self,
        plan: BatchPlan,
        folder: RunFolder,
        shelves: Sequence[RolloutOutput],
        budget: Budget,
        *,
        on_rollout: Callable[[RolloutEntry], None] = lambda _: None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """A rollout is put on all shelves, one after the other; `sleep` is how the time between two tries passes."""
        self._plan, self._folder, self._shelves, self._budget = plan, folder, shelves, budget
        self._on_rollout, self._sleep = on_rollout, sleep
        self._jobs = iter(plan.jobs)
        self._under_way: set[asyncio.Task[Rollout]] = set()
        self._moved = asyncio.Condition()
        self._in_a_row = 0
        self.reason = ""
        """Why the run was stopped; nothing if it came to its end."""

    def stop(self, reason: str) -> None:
        """Begin nothing new. The first reason stands."""
        self.reason = self.reason or reason

    def give_up(self) -> None:
        """Cut off what is under way."""
        self.stop("given up")
        for task in self._under_way:
            task.cancel()

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    async def run(self) -> None:
        """Work until everything is done or somebody says stop. Raises what no rollout can be blamed for: a full disk, a fault of ours."""
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
                await self._keep(await self._performed(job))
            finally:
                async with self._moved:
                    self._budget.end()
                    self._moved.notify_all()

    async def _may_begin(self) -> bool:
        """Wait until the budget allows another rollout; False if the run is to stop."""
        async with self._moved:
            while not self.reason:
                verdict = self._budget.begin()
                if verdict is BudgetDecision.GO:
                    return True
                if verdict is BudgetDecision.WAIT:
                    await self._moved.wait()
                else:
                    self.stop(self._budget.reason)
        return False

    async def _performed(self, job: RolloutJob) -> Rollout:
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
        for shelf in self._shelves:
            await shelf.put(rollout)
        self._in_a_row = self._in_a_row + 1 if entry.outcome is RolloutOutcome.ERROR else 0
        if self._in_a_row >= max(MIN_ERRORS_IN_A_ROW, 2 * self._plan.pace.concurrency):
            self.stop(f"{self._in_a_row} rollouts in a row failed, the last one with: {entry.reason}")
        self._on_rollout(entry)

    async def _perform(self, job: RolloutJob) -> Rollout:
        """Make one rollout, and have it verified. Whatever happens on the way is how it ended."""
        plan, item = self._plan, job.item
        recipe, pace = plan.recipe, plan.pace
        seed = seed_of(recipe.seed, item.id, job.rollout)
        drawn = recipe.toolsets.draw(recipe.seed, item.id)
        graph = MessageGraph(recipe.messages(item), seed=f"{plan.run_id}/{item.id}")
        length, began, tally = len(graph), time.monotonic(), RolloutUsage()
        name = f"{plan.run_id}/{item.id}/{job.rollout}" + (f".{job.attempt}" if job.attempt else "")
        context = RolloutContext(item.id, job.rollout, seed, item.row, item.cwd)
        ended = await self._converse(RolloutChat(graph, name, seed), tally, [plan.toolsets[each] for each in drawn], context)
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
            calls=tally.calls,
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            micro_usd=tally.micro_usd,
            retries=tally.retries,
            subagents=tally.subagents,
            finish_reasons=dict(tally.finish_reasons),
            tools={tool: dict(counts) for tool, counts in tally.tools.items()},
            seconds=round(time.monotonic() - began, 3),
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if plan.verifier is not None and ended.outcome not in (RolloutOutcome.ERROR, RolloutOutcome.INTERRUPTED):
            entry = await self._verified(plan.verifier, Rollout(entry, graph), item, pace)
        annotate_rollout(graph, entry, length - 1, item.rest)
        return Rollout(entry, graph)

    async def _converse(self, chat: RolloutChat, tally: RolloutUsage, toolsets: Sequence[Toolset], context: RolloutContext) -> ChatEnding:
        plan = self._plan
        head = chat.graph[0]
        system = head.get("content") if head["role"] == "system" and isinstance(head.get("content"), str) else None
        try:
            async with asyncio.timeout(plan.pace.timeout_s), open_rollout_tools(toolsets, context) as tools:
                agent = RolloutAgent(model=plan.model, recipe=plan.recipe, pace=plan.pace, tools=tools, tally=tally, sleep=self._sleep)
                return await converse(chat, with_subagents(agent, system))
        except TimeoutError:
            return ChatEnding(RolloutOutcome.TIMEOUT, f"after {plan.pace.timeout_s:g} s")
        except ToolsetFailed as failed:
            return ChatEnding(RolloutOutcome.ERROR, str(failed))
        except ModelFailed as failed:  # nobody would be answered any more
            self.stop(str(failed))
            return ChatEnding(RolloutOutcome.INTERRUPTED, str(failed))
        except asyncio.CancelledError:
            return self._cut_off()

    async def _verified(self, verifier: Verifier, rollout: Rollout, item: PromptItem, pace: BatchPace) -> RolloutEntry:
        try:
            said = await score(verifier, item.row, rollout, timeout_s=pace.verify_timeout_s)
        except asyncio.CancelledError:
            ended = self._cut_off()
            return replace(rollout.entry, outcome=ended.outcome, reason=ended.reason)
        return replace(rollout.entry, reward=said.reward, metrics=said.metrics, verify_error=said.error)

    def _cut_off(self) -> ChatEnding:
        """Take a cancellation as the end of a rollout, if it is meant so: what was sampled so far is kept.

        One that nobody meant for this rollout comes from something that it waited for, and is an error of it."""
        if not is_cancelled():
            return ChatEnding(RolloutOutcome.ERROR, "something that it waited for was cancelled")
        task = asyncio.current_task()
        if not self.reason or task is None:
            raise  # noqa: PLE0704  # called in an except clause
        task.uncancel()
        return ChatEnding(RolloutOutcome.INTERRUPTED, self.reason)
