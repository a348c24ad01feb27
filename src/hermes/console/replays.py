"""What operators do with replays: ask for one, for many, look at them, stop them, keep one as a sample. Behind pages, commands and the API.

Whether a replay may run is a question of the role, and the audit log has it; what it says is content, and needs an `Opened` of the
conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from hermes.console.access import AccessRefused, ConsoleAccess, Opened, Subject
from hermes.console.replay_diff import DiffPiece, ToolDiff, diff_calls, diff_words
from hermes.console.replay_keep import AnsweredReplay, NotKept, ReplayKeeper
from hermes.console.replay_progress import ReplayProgress
from hermes.console.replay_record import NotReplayable, RecordedRequests, ReplayPrompt
from hermes.console.replay_work import ReplayWorker
from hermes.ports.errors import NotFound, PortError, UserErased, require_known
from hermes.ports.models import UnknownPrice
from hermes.ports.operators import Actor, Role
from hermes.ports.replays import (
    MAX_ANSWERS,
    MAX_BATCH_MODELS,
    MAX_BATCH_TURNS,
    NewReplay,
    ReadingTools,
    Replay,
    ReplayBatch,
    ReplayChange,
    ReplayFilter,
    ReplayModels,
    Replays,
    ReplaySource,
)
from hermes.ports.runtime import Transactions

BYTES_PER_TOKEN, MAX_GUESSED_TOKENS, GUESSED_ANSWER_TOKENS = 4, 20_000, 300
"""For the estimate of a turn that no model answered. A request of more tokens has images, whose bytes say nothing of their tokens."""


class ReplayInvalid(PortError):
    """The request for a replay is wrong; the message says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """A replay beside the recorded turn, with its content."""

    replay: Replay
    source: ReplaySource
    recorded: ReplayPrompt | None
    """None: the recorded request is gone."""
    change: ReplayChange
    progress: ReplayProgress
    words: Sequence[DiffPiece] = ()
    tools: Sequence[ToolDiff] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What a batch would do and cost, before anything is asked."""

    wanted: ReplayFilter
    title: str
    models: tuple[str, ...]
    sources: Sequence[ReplaySource]
    estimates: Mapping[str, int] = field(default_factory=dict)
    """Micro-dollars by model: the tokens of the recorded calls, or a guess at them, at the model's price of today."""
    left_today: int | None = None

    @property
    def replayable(self) -> int:
        return sum(not source.why_not for source in self.sources)

    @property
    def micro_usd(self) -> int:
        return sum(self.estimates.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayConsole:
    """The actions and readers of replays."""

    transactions: Transactions
    access: ConsoleAccess
    replays: Replays
    records: RecordedRequests
    models: ReplayModels
    tools: ReadingTools
    keeper: ReplayKeeper
    worker: ReplayWorker

    # --- one turn

    async def find_source(self, actor: Actor, source_id: UUID) -> ReplaySource:
        """Return the turn, or the call of the completions API. Raises NotFound, also if the operator does not see its account."""
        async with self.transactions.begin() as tx:
            found = await self.replays.sources(tx, [source_id])
        if not found or not actor.operator.sees(found[0].account):
            raise NotFound(f"there is no turn {source_id}")
        return found[0]

    async def of_source(self, source: ReplaySource) -> Sequence[Replay]:
        """Return the replays of a turn, newest first."""
        async with self.transactions.begin() as tx:
            return await self.replays.of_source(tx, source)

    def estimate(self, source: ReplaySource, model: str, count: int = 1) -> int:
        """What replays of a turn would cost, in micro-dollars: by the recorded tokens, or of a turn that no model answered by the length of
        its request. Raises ReplayInvalid."""
        tokens = (source.tokens_in, source.tokens_out)
        if not any(tokens):
            tokens = (min(source.request_bytes // BYTES_PER_TOKEN, MAX_GUESSED_TOKENS), GUESSED_ANSWER_TOKENS)
        try:
            return count * self.models.estimate(model, *tokens)
        except UnknownPrice as error:
            raise ReplayInvalid(str(error)) from None

    async def read_request(self, opened: Opened, source: ReplaySource) -> ReplayPrompt:
        """Return the recorded request. Raises NotReplayable and UserErased."""
        check_opened(opened, source)
        async with self.transactions.begin() as tx:
            return await self.records.read(tx, source)

    async def run(
        self, actor: Actor, source: ReplaySource, model: str, change: ReplayChange, *, count: int = 1, reason: str = ""
    ) -> list[UUID]:
        """Add replays of a turn that wait; return their ids. Raises AccessRefused, ReplayInvalid, and NotReplayable with the reason."""
        self._check_models([model])
        if not 1 <= count <= MAX_ANSWERS:
            raise ReplayInvalid(f"{count} answers: between 1 and {MAX_ANSWERS} can be asked for")
        facts = {"model": model, "answers": count}
        await self.access.permit(actor, Role.OPERATOR, "replay.run", turn_subject(source), reason=reason, facts=facts)
        if source.why_not:
            raise NotReplayable(f"this turn cannot be replayed: {source.why_not}")
        ids = [uuid4() for _ in range(count)]
        try:
            async with self.transactions.begin() as tx:
                for each in ids:
                    await self.replays.add(tx, NewReplay(id=each, source=source, by=actor.operator.name, model=model, change=change))
        except UserErased:
            raise NotReplayable("this turn cannot be replayed: erased") from None
        return ids

    # --- what came of it

    async def list(self, actor: Actor, before: tuple[datetime, UUID] | None = None, limit: int = 50) -> Sequence[Replay]:
        """Return replays that belong to no batch, newest first."""
        async with self.transactions.begin() as tx:
            return await self.replays.list(tx, accounts=actor.operator.accounts, before=before, limit=limit)

    async def get(self, actor: Actor, replay_id: UUID) -> tuple[Replay, ReplaySource]:
        """Return a replay and the turn that it repeats. Raises NotFound."""
        async with self.transactions.begin() as tx:
            replay = await self.replays.get(tx, replay_id)
            found = await self.replays.sources(tx, [replay.source_id])
        if not found or not actor.operator.sees(replay.account_id):
            raise NotFound(f"there is no replay {replay_id}")
        return replay, found[0]

    async def view(self, opened: Opened, replay: Replay, source: ReplaySource) -> ReplayView:
        """Return a replay with its content. Raises UserErased."""
        check_opened(opened, source)
        async with self.transactions.begin() as tx:
            content = await self.replays.open(tx, replay)
            try:
                recorded = await self.records.read(tx, source)
            except NotReplayable:
                recorded = None
        progress = ReplayProgress.from_bytes(content.progress)
        words: Sequence[DiffPiece] = ()
        tools: Sequence[ToolDiff] = ()
        if recorded is not None and progress.answers:
            words = diff_words(recorded.text, progress.text) if not progress.not_run else ()
            tools = diff_calls(recorded.tool_calls, progress.tool_calls)
        return ReplayView(
            replay=replay, source=source, recorded=recorded, change=content.change, progress=progress, words=words, tools=tools
        )

    async def keep(self, actor: Actor, replay_id: UUID, *, reason: str = "") -> str:
        """Put a replay's answers into the session's graph as samples; return the response's id. Raises AccessRefused, and NotKept if a user
        does not allow training, if it is kept already, or if there is no place for it."""
        replay, source = await self.get(actor, replay_id)
        facts = {"replay_id": str(replay.id), "model": replay.model}
        await self.access.permit(actor, Role.OWNER, "replay.keep", turn_subject(source), reason=reason, facts=facts)
        if replay.kept_as:
            raise NotKept(f"it is kept already, as {replay.kept_as}")
        async with self.transactions.begin() as tx:
            await self.keeper.check(tx, replay)
            content = await self.replays.open(tx, replay)
            recorded = await self.records.read(tx, source)
            answered = AnsweredReplay(
                replay=replay,
                source=source,
                recorded=recorded,
                change=content.change,
                progress=ReplayProgress.from_bytes(content.progress),
            )
            kept = await self.keeper.keep(tx, answered)
            await self.replays.note_kept(tx, replay.id, kept)
        return kept

    # --- batches

    async def plan(self, actor: Actor, wanted: ReplayFilter, models: Sequence[str], last: int) -> BatchPlan:
        """Return what a batch over the newest turns would do and cost. Asks no model. Raises ReplayInvalid and AccessRefused."""
        chosen = tuple(dict.fromkeys(models))
        self._check_models(chosen)
        if not 1 <= len(chosen) <= MAX_BATCH_MODELS:
            raise ReplayInvalid(f"{len(chosen)} models: a batch asks between 1 and {MAX_BATCH_MODELS}")
        if not 1 <= last <= MAX_BATCH_TURNS:
            raise ReplayInvalid(f"the last {last} turns: a batch repeats between 1 and {MAX_BATCH_TURNS}")
        if wanted.accounts != actor.operator.accounts:
            raise AccessRefused("a batch is over the accounts that its operator sees")
        async with self.transactions.begin() as tx:
            sources = await self.replays.sources(tx, await self.replays.newest_turns(tx, wanted, last))
        estimates = {model: sum(self.estimate(source, model) for source in sources if not source.why_not) for model in chosen}
        return BatchPlan(
            wanted=wanted,
            title=describe_filter(wanted, last),
            models=chosen,
            sources=sources,
            estimates=estimates,
            left_today=await self.models.left_today(),
        )

    async def run_batch(self, actor: Actor, plan: BatchPlan, *, reason: str = "") -> UUID:
        """Add the replays of a plan; return the batch. Workers run two at a time. Raises AccessRefused, and ReplayInvalid for a plan
        without a turn."""
        if not plan.sources:
            raise ReplayInvalid("no turn matches this filter")
        batch_id = uuid4()
        facts: dict[str, Any] = {"models": list(plan.models), "turns": len(plan.sources), "estimate_micro_usd": plan.micro_usd}
        subject = batch_subject(actor, batch_id, {source.account for source in plan.sources})
        await self.access.permit(actor, Role.OPERATOR, "replay.batch", subject, reason=reason, facts=facts)
        async with self.transactions.begin() as tx:
            await self.replays.add_batch(tx, batch_id, by=actor.operator.name, models=plan.models, title=plan.title)
            for source in plan.sources:
                for model in plan.models:
                    new = NewReplay(
                        id=uuid4(), source=source, by=actor.operator.name, model=model, batch_id=batch_id, why_not=source.why_not
                    )
                    await self.replays.add(tx, new)
            await self.replays.end_if_done(tx, batch_id)
        return batch_id

    async def batches(self, actor: Actor) -> Sequence[ReplayBatch]:
        """Return the newest batches."""
        async with self.transactions.begin() as tx:
            return await self.replays.batches(tx, accounts=actor.operator.accounts)

    async def get_batch(self, actor: Actor, batch_id: UUID) -> tuple[ReplayBatch, Sequence[Replay], Mapping[UUID, ReplaySource]]:
        """Return a batch, its replays in their order, and the turns that they repeat. Raises NotFound."""
        accounts = actor.operator.accounts
        async with self.transactions.begin() as tx:
            batch = await self.replays.get_batch(tx, batch_id, accounts=accounts)
            replays = await self.replays.of_batch(tx, batch_id, accounts=accounts)
            sources = await self.replays.sources(tx, list(dict.fromkeys(replay.source_id for replay in replays)))
        return batch, replays, {source.id: source for source in sources}

    async def stop(self, actor: Actor, batch_id: UUID) -> int:
        """Refuse the replays of a batch that still wait; return how many. Raises NotFound, and AccessRefused, also to an operator who does
        not see all of its turns."""
        await self._permit_batch(actor, batch_id, "replay.stop")
        async with self.transactions.begin() as tx:
            return await self.replays.stop(tx, batch_id)

    async def resume(self, actor: Actor, batch_id: UUID) -> int:
        """Ask again for the replays of a batch that failed or were stopped; return how many. Raises as `stop`."""
        await self._permit_batch(actor, batch_id, "replay.resume")
        async with self.transactions.begin() as tx:
            return await self.replays.resume(tx, batch_id)

    async def _permit_batch(self, actor: Actor, batch_id: UUID, action: str) -> None:
        async with self.transactions.begin() as tx:
            await self.replays.get_batch(tx, batch_id, accounts=actor.operator.accounts)
            accounts = {replay.account_id for replay in await self.replays.of_batch(tx, batch_id, accounts=None)}
        hidden = [account for account in accounts if not actor.operator.sees(account)]
        subject = batch_subject(actor, batch_id, set(hidden[:1]) or accounts)
        await self.access.permit(actor, Role.OPERATOR, action, subject)

    def _check_models(self, models: Sequence[str]) -> None:
        known = self.models.names()
        for model in models:
            try:
                require_known(model, known, "model")
            except PortError as error:
                raise ReplayInvalid(str(error)) from None


def turn_subject(source: ReplaySource) -> Subject:
    kind = "turn" if source.turn_id is not None else "call"
    return Subject(kind=kind, id=str(source.id), user_id=source.user_id, account=source.account)


def batch_subject(actor: Actor, batch_id: UUID, accounts: AbstractSet[str]) -> Subject:
    """A batch, with the account of its turns. For an operator of some accounts, one of those stands for all."""
    is_one = len(accounts) == 1 or actor.operator.accounts is not None
    return Subject(kind="replay_batch", id=str(batch_id), account=min(accounts) if accounts and is_one else None)


def conversation_subject(source: ReplaySource) -> Subject:
    """What an operator opens to read a turn and its replays."""
    return Subject(kind="conversation", id=str(source.conversation_id), user_id=source.user_id, account=source.account)


def check_opened(opened: Opened, source: ReplaySource) -> None:
    if (opened.subject.kind, opened.subject.id) != ("conversation", str(source.conversation_id)):
        raise AccessRefused("another conversation is open")


def describe_filter(wanted: ReplayFilter, last: int) -> str:
    """The filter of a batch in words: `the last 50 turns, status failed, agent bali`."""
    names = ("status", "agent", "model", "platform", "tier", "tool", "user")
    words = [f"{name} {getattr(wanted, name)}" for name in names if getattr(wanted, name) is not None]
    if wanted.since is not None:
        words.append(f"since {wanted.since:%Y-%m-%d %H:%M} UTC")
    return ", ".join([f"the last {last} turns", *words])
