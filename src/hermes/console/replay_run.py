"""The dry run: the recorded request is asked again, with what the operator changed, and goes on as the turn would have gone on.

    read the recorded request  →  ask  →  tools: the recorded result, or a tool that only reads, if it was ticked  →  ask again  →  compare
                                            └─▶  any other call: the replay ends there, diverged; the tool does not run

All that it is made of is in `DryRunner`: readers of the journal and the graphs, the replays' own store, models, and tools that only read.
No outbox, no channel, no credits, no memory, no session is among them, so it can neither send nor charge a user nor write what a user
said. Each answer is stored in the transaction that writes its call's row: an answer that was paid is not asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from hermes.console.replay_diff import call_key, likeness, same_calls
from hermes.console.replay_progress import ReplayProgress, ReplayTool
from hermes.console.replay_record import UNREADABLE, NotReplayable, RecordedRequests, ReplayPrompt
from hermes.gateway.catalogue import REPLAY_TIER
from hermes.ports.backends import BackendError, Completion, ModelRequest
from hermes.ports.credits import BudgetSpent, CallsPaused
from hermes.ports.errors import DataDamaged, NotFound, UserErased
from hermes.ports.models import Answer, Caller, CallOutcome, CallPurpose, CallSource, ModelCall, NoAnswer
from hermes.ports.replays import (
    CallRows,
    ReadingTools,
    Replay,
    ReplayChange,
    ReplayModels,
    ReplayOutcome,
    Replays,
    ReplaySource,
    ReplayState,
    ToolRefused,
)
from hermes.ports.runtime import Clock, Transaction, Transactions
from hermes.ports.tools import UNKNOWN_TOOL, ToolCall, ToolResult, ToolUser
from hermes.router.effects import MAX_TOKENS, JournaledAnswer
from hermes.router.steps.run_tools import MAX_TOOL_CALLS, message_of, refuse_calls

MAX_TOKENS_NAME = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunner:
    """Runs claimed replays to their end."""

    transactions: Transactions
    replays: Replays
    records: RecordedRequests
    models: ReplayModels
    calls: CallRows
    tools: ReadingTools
    clock: Clock

    async def run(self, claimed: Replay) -> None:
        """Run a replay, from where an earlier attempt was cut off; no further, if the claim does not stand any more. Raises
        StoreUnavailable; then the claim stands until it is stale."""
        try:
            outcome = await self._run(claimed)
        except (NotReplayable, UserErased) as error:
            outcome = ReplayOutcome(state=ReplayState.REFUSED, error="erased" if isinstance(error, UserErased) else str(error))
        except CallsPaused as error:
            outcome = ReplayOutcome(state=ReplayState.REFUSED, error=f"calls are paused: {error.reason}")
        except (BudgetSpent, CapReached):
            outcome = ReplayOutcome(state=ReplayState.REFUSED, error="the day's money for replays is spent")
        except NotFound as error:
            outcome = ReplayOutcome(state=ReplayState.REFUSED, error=str(error))
        except DataDamaged:
            outcome = ReplayOutcome(state=ReplayState.REFUSED, error=UNREADABLE)
        except (NoAnswer, BackendError) as error:
            outcome = ReplayOutcome(state=ReplayState.FAILED, error=type(error).__name__)
        except ClaimGone:
            return
        async with self.transactions.begin() as tx:
            if outcome.state is not ReplayState.DONE:
                outcome = add_costs(outcome, await self._read_progress(tx, claimed))
            await self.replays.finish(tx, claimed, outcome)

    async def _read_progress(self, tx: Transaction, claimed: Replay) -> ReplayProgress:
        """What a replay had brought that did not come to its end; nothing, if it was erased or cannot be opened."""
        try:
            return ReplayProgress.from_bytes((await self.replays.open(tx, claimed)).progress)
        except (UserErased, DataDamaged):
            return ReplayProgress()

    async def _run(self, claimed: Replay) -> ReplayOutcome:
        async with self.transactions.begin() as tx:
            found = await self.replays.sources(tx, [claimed.source_id])
            if not found:
                raise UserErased
            source = found[0]
            content = await self.replays.open(tx, claimed)
            recorded = await self.records.read(tx, source)
        asked, progress = recorded.changed(content.change), ReplayProgress.from_bytes(content.progress)
        ask = ReplayCall(self, claimed, source, asked)
        if not progress.answers:
            progress = await ask.first(progress)
        calls = progress.tool_calls
        if calls and asked.goes_on:
            if not progress.tools:
                progress = progress.with_tools(await self._run_tools(calls, recorded, content.change, source))
                await self._note(claimed, progress)
            if not progress.not_run and len(progress.answers) == 1:
                progress = await ask.second(progress)
        return compare(recorded, progress)

    async def _run_tools(
        self, calls: Sequence[ToolCall], recorded: ReplayPrompt, change: ReplayChange, source: ReplaySource
    ) -> list[ReplayTool]:
        """Find or make the results of a round of calls. After the first call that has none, no tool runs."""
        known = {call_key(tool.call): tool.result for tool in recorded.results}
        found: list[ReplayTool] = []
        for call in calls[:MAX_TOOL_CALLS]:
            result = known.get(call_key(call))
            if result is not None:
                found.append(ReplayTool(call=call, result=result_for(result, call), is_recorded=True))
                continue
            may_run = call.name in change.run_tools and all(tool.result is not None for tool in found)
            found.append(await self._read(call, source) if may_run else ReplayTool(call=call, result=None))
        too_many = zip(calls[MAX_TOOL_CALLS:], refuse_calls(calls, recorded.tools), strict=True)
        return found + [ReplayTool(call=call, result=result, is_recorded=True) for call, result in too_many]

    async def _read(self, call: ToolCall, source: ReplaySource) -> ReplayTool:
        user = ToolUser(source.user_id, source.account, source.language or "en", "UTC", source.id, self.clock.now())
        try:
            return ReplayTool(call=call, result=await self.tools.run(call, user))
        except ToolRefused:
            return ReplayTool(call=call, result=None)

    async def _note(self, claimed: Replay, progress: ReplayProgress) -> None:
        async with self.transactions.begin() as tx:
            await self.replays.note(tx, claimed, progress.to_bytes())


class CapReached(Exception):
    """What replays may cost in a day is spent."""


class ClaimGone(Exception):
    """Another process has taken the replay over, or it was erased."""


@dataclass(frozen=True, slots=True)
class ReplayCall:
    """Asks the model of one replay, and stores each answer together with its call's row."""

    runner: DryRunner
    claimed: Replay
    source: ReplaySource
    asked: ReplayPrompt

    async def first(self, progress: ReplayProgress) -> ReplayProgress:
        return await self._ask(self.asked.first(), self.asked.tool_choice, progress)

    async def second(self, progress: ReplayProgress) -> ReplayProgress:
        """Ask again after the tools, as a turn does: with the results, and without further calls."""
        results = [message_of(tool.result) for tool in progress.tools if tool.result is not None]
        return await self._ask(self.asked.then([progress.answers[0].message, *results]), "none", progress)

    async def _ask(
        self, messages: Sequence[Mapping[str, Any]], tool_choice: str | Mapping[str, Any] | None, progress: ReplayProgress
    ) -> ReplayProgress:
        models = self.runner.models
        if self.claimed.model not in models.names():
            raise NotFound(f"{self.claimed.model} cannot be asked")
        await self._hold()
        left = await models.left_today()
        if left is not None and left <= 0:
            raise CapReached
        payer, sampling = await models.payer(), dict(self.asked.sampling)
        request = ModelRequest(
            messages=messages,
            max_tokens=int(sampling.pop(MAX_TOKENS_NAME, None) or MAX_TOKENS),
            tools=self.asked.tools,
            tool_choice=tool_choice if self.asked.tools else None,
            sampling=sampling,
            wants_tokens=True,
            user=str(payer),
        )
        caller = Caller(
            user_id=payer,
            account=self.source.account,
            tier=REPLAY_TIER,
            source=CallSource.REPLAY,
            purpose=CallPurpose.REPLAY,
            may_use_cache=False,
            models=(self.claimed.model,),
        )

        writing = asyncio.Lock()

        async def record(call: ModelCall, completion: Completion) -> UUID:
            async with writing, self.runner.transactions.begin() as tx:
                await self.runner.calls.add(tx, call)
                if call.outcome is CallOutcome.ANSWERED:
                    await self.runner.replays.note(tx, self.claimed, progress.with_answer(journal_answer(call, completion)).to_bytes())
            return self.claimed.id

        try:
            return progress.with_answer(JournaledAnswer.of(await models.complete(request, caller, record)))
        except asyncio.CancelledError:
            async with writing:  # the answer is written to its end, and before the replay is given back
                raise

    async def _hold(self) -> None:
        """Renew the claim. Raises ClaimGone: a process that was frozen for a while pays for no more answers."""
        async with self.runner.transactions.begin() as tx:
            if not await self.runner.replays.renew(tx, self.claimed):
                raise ClaimGone


def journal_answer(call: ModelCall, completion: Completion) -> JournaledAnswer:
    """The answer of a call that is being recorded."""
    rate, backend = call.rate, call.backend or ""
    return JournaledAnswer.of(Answer(call.id, completion, backend, call.model, call.micro_usd, rate, call.attempts, call.latency_ms))


def result_for(result: ToolResult, call: ToolCall) -> ToolResult:
    """A recorded result, as the result of this call: the model gave it an id of its own."""
    return replace(result, call_id=call.id)


def compare(recorded: ReplayPrompt, progress: ReplayProgress) -> ReplayOutcome:
    """Put a replay beside the recorded turn."""
    not_run = progress.not_run
    is_comparable = not not_run and bool(recorded.text)
    outcome = ReplayOutcome(
        state=ReplayState.DONE,
        error=f"diverged: would call {', '.join(known_names(recorded, not_run))}" if not_run else None,
        is_diverged=bool(not_run),
        same_tools=same_calls(recorded.tool_calls, progress.tool_calls) if recorded.answers else None,
        same_text=progress.text == recorded.text if is_comparable else None,
        likeness=likeness(recorded.text, progress.text) if is_comparable else None,
    )
    return add_costs(outcome, progress)


def known_names(recorded: ReplayPrompt, calls: Sequence[ToolCall]) -> list[str]:
    """The names of the called tools. A name that a model made up is its own words, and stays out of what is read unopened."""
    offered = set(recorded.tool_names)
    return list(dict.fromkeys(call.name if call.name in offered else UNKNOWN_TOOL for call in calls))


def add_costs(outcome: ReplayOutcome, progress: ReplayProgress) -> ReplayOutcome:
    """The outcome with what its answers took; as it is, if there was none."""
    answers = progress.answers
    if not answers:
        return outcome
    return replace(
        outcome,
        tokens_in=sum(answer.tokens_in for answer in answers),
        tokens_out=sum(answer.tokens_out for answer in answers),
        micro_usd=sum(answer.micro_usd for answer in answers),
        latency_ms=sum(answer.latency_ms for answer in answers),
    )
