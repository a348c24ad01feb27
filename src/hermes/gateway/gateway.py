"""The one way to a model: who may, what for, who answers, what it cost.

    latch and cap  →  the user's budget  →  the cache  →  the chain, a slot for each attempt  →  the call's row  →  settled, and counted

Latch, cap and budget are asked once for the whole chain, never per attempt; a slot is held by each attempt for itself. The row is written
before the budget is settled and the money counted: `calls` is the truth that both can be rebuilt from.

Keeps no text; who wants the answer in a message graph hands in how it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import structlog

from hermes.gateway.answer_cache import cache_key, decode, encode, may_cache, may_keep
from hermes.gateway.catalogue import ModelCatalogue, Tier
from hermes.gateway.chain import ChainAnswer, ChainLink, ChainRun
from hermes.gateway.fleet import Adapter
from hermes.gateway.partial_answer import PartialAnswer
from hermes.gateway.prices import Prices, TokenRate
from hermes.gateway.slots import Slots
from hermes.gateway.token_estimate import answer_tokens, prompt_tokens
from hermes.ports.alerts import Alerts
from hermes.ports.backends import Backend, ChatMessage, Completion, CutShort, Delta, ModelRequest, Unauthorized, Usage
from hermes.ports.budgets import BudgetHold, Budgets, GlobalSpend
from hermes.ports.cache import AnswerCache
from hermes.ports.clock import Clock
from hermes.ports.errors import PortError, StoreUnavailable
from hermes.ports.meter import CallMeter
from hermes.ports.model_calls import CallAttempt, CallOutcome, ModelCall, ModelCalls
from hermes.ports.models import Answer, AnswerStarted, Caller, ChainFailed
from hermes.ports.transactions import Transaction, Transactions

log = structlog.get_logger()
T = TypeVar("T")


class CallRecorder(Protocol):
    """How what a model said is written down together with its call's row; by whoever wants it in a message graph.

    Also given what was said before a stream broke off: its finish reason is `cut_short` or `cancelled`."""

    async def at_once(self, call: ModelCall, completion: Completion) -> UUID | None:
        """Write both in one stroke, if that can be; return the session that has it now. None: it cannot; nothing was said to anybody."""
        ...

    async def write(self, tx: Transaction, call: ModelCall, completion: Completion) -> UUID:
        """Write what was said, in the transaction of the call's row; return the session that has it now."""
        ...


def no_adapter(_: str) -> None:
    """Agents speak through the chains of their tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Every model call passes here."""

    catalogue: ModelCatalogue
    prices: Prices
    backends: Mapping[str, Backend]
    """By name, as the catalogue's models name them. Looked up at each call, so that one may be exchanged between two calls."""
    slots: Slots
    budgets: Budgets
    spend: GlobalSpend
    cache: AnswerCache
    calls: ModelCalls
    transactions: Transactions
    alerts: Alerts
    meter: CallMeter
    clock: Clock
    adapter_of: Callable[[str], Adapter | None] = no_adapter
    """What an agent speaks through; None: the chain. Looked up once for each call, so a call ends on the adapter it began on."""
    deadline_s: float = 45.0
    cap_micro_usd: int | None = None
    """The platform's money for one UTC day; None for no limit."""
    _recordings: set[asyncio.Task[Any]] = field(default_factory=set, init=False, repr=False)

    async def complete(self, ask: ModelRequest, caller: Caller, record: CallRecorder | None = None) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises Paused, BudgetSpent, UnknownPrice, NoCapacity, ChainFailed, and StoreUnavailable when the budget cannot be asked; then
        nothing was spent, or what was spent is counted."""
        ticket = await self._admit(ask, caller)
        run = self._run(ticket, caller)
        try:
            copied = await self._copied(ask, ticket, caller)
            if copied is not None:
                return copied
            answered = await run.complete()
        except BaseException as error:
            await self._failed(ticket, caller, run, error)
            raise
        answer = await self._paid(ticket, caller, answered, record)
        if caller.may_use_cache and may_cache(ask) and may_keep(answer.completion):
            # Under the model that answered, which need not be the first of the chain.
            await self.cache.put(caller.user_id, cache_key(ask, answered.link), encode(answer.completion, answer.call_id))
        return answer

    async def stream(
        self, ask: ModelRequest, caller: Caller, record: CallRecorder | None = None
    ) -> AsyncGenerator[AnswerStarted | Delta | Answer]:
        """Yield who began, the deltas, and last of all the answer. Raises as `complete` does, and CutShort after the first delta.

        Whoever leaves early pays for what was said: close it (`aclosing`)."""
        ticket = await self._admit(ask, caller)
        run, said, link, is_paid = self._run(ticket, caller), PartialAnswer(), ticket.links[0], False
        try:
            async with aclosing(run.stream()) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChainLink):
                        link = piece
                        yield AnswerStarted(ticket.hold.id, link.answers_as)
                        continue
                    if isinstance(piece, ChainAnswer):
                        is_paid = True
                        yield await self._paid(ticket, caller, piece, record)
                        return
                    said.add(piece)
                    yield piece
        except BaseException as error:
            if not is_paid:
                await self._failed(ticket, caller, run, error, record=record, said=InterruptedStream(link, said))
            raise

    def _run(self, ticket: AdmittedCall, caller: Caller) -> ChainRun:
        return ChainRun(ticket.ask, ticket.links, deadline_s=ticket.deadline_s, slots=self.slots, user=str(caller.user_id))

    async def _admit(self, ask: ModelRequest, caller: Caller) -> AdmittedCall:
        tier = self.catalogue.tier(caller.tier)
        adapter = self.adapter_of(caller.agent) if caller.agent is not None else None
        names = caller.models or tier.chain
        if adapter is not None:
            names = (adapter.model, *(name for name in names if name != adapter.model))
            ask = replace(ask, cwd=Path(adapter.cwd)) if adapter.cwd is not None else ask
        links = self.links(names)
        if not links:
            raise ChainFailed((), None)
        prompt, deadline_s = prompt_tokens(ask), caller.deadline_s or self.deadline_s
        today = self.clock.now().date()
        rates = {link.model: self.prices.rate(link.model, today, prompt) for link in links}  # unknown: refused before anything is asked
        most = prompt + max(min(ask.max_tokens, link.max_tokens) for link in links)
        hold = await self._reserve(caller, tier, most, deadline_s + self.slots.wait_s + LEASE_MARGIN_S)
        return AdmittedCall(ask, hold, links, rates, prompt, deadline_s)

    async def _reserve(self, caller: Caller, tier: Tier, tokens: int, lease_s: float) -> BudgetHold:
        """Ask for the platform's word and the user's budget at once; who is paused is told so, whatever their budget says."""
        limits = {"day_limit": tier.day_tokens, "month_limit": tier.month_tokens}
        reserving = self._keep(asyncio.ensure_future(self.budgets.reserve(caller.user_id, **limits, tokens=tokens, lease_s=lease_s)))
        try:
            await self.spend.admit(self.cap_micro_usd)  # both are under way together, and go to Redis in one trip
            return await asyncio.shield(reserving)
        except BaseException:
            self._keep(asyncio.ensure_future(self._give_back(reserving)))  # what is being reserved is reserved, and nobody wants it
            raise

    async def _give_back(self, reserving: asyncio.Task[BudgetHold]) -> None:
        with suppress(PortError):  # also where there was nothing to reserve
            await self.budgets.release(await reserving)

    def links(self, names: Sequence[str]) -> list[ChainLink]:
        """The links of a chain whose backends are there."""
        models = [(name, self.catalogue.models[name]) for name in names]
        return [
            ChainLink(name, self.backends[model.backend], model.id, model.max_tokens)
            for name, model in models
            if model.backend in self.backends
        ]

    async def _copied(self, ask: ModelRequest, ticket: AdmittedCall, caller: Caller) -> Answer | None:
        """An answer that was given to the same question before, if there is one: it takes no slot and costs nothing."""
        link = ticket.links[0]
        if not caller.may_use_cache or not may_cache(ask):
            return None
        kept = await self.cache.get(caller.user_id, cache_key(ask, link))
        if kept is None:
            return None
        completion, sampled_by = decode(kept)
        call = ModelCall(
            **self._who(ticket, caller),
            model=link.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=0,
            backend=link.backend.name,
            answered_by=completion.model,
            usage=completion.usage,
            cache_hit=True,
        )
        await self._record(ticket.hold, call)
        return Answer(call.id, completion, link.backend.name, link.model, 0, {}, (), 0, copy_of=sampled_by)

    async def _paid(self, ticket: AdmittedCall, caller: Caller, answered: ChainAnswer, record: CallRecorder | None) -> Answer:
        link, completion = answered.link, answered.completion
        rate = self.prices.rate(link.model, ticket.hold.day, completion.usage.tokens_in)
        cost = rate.cost(completion.usage)
        call = ModelCall(
            **self._who(ticket, caller),
            model=link.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=answered.ms,
            backend=link.backend.name,
            answered_by=completion.model,
            attempts=answered.attempts,
            usage=completion.usage,
            micro_usd=cost,
            rate=rate.to_dict(),
            first_token_ms=answered.first_delta_ms,
        )
        self._alert(answered.attempts)
        session_id = await self._surely(self._record(ticket.hold, call, completion, record))
        return Answer(
            call.id, completion, link.backend.name, link.model, cost, call.rate, answered.attempts, answered.ms, session_id=session_id
        )

    async def _failed(
        self,
        ticket: AdmittedCall,
        caller: Caller,
        run: ChainRun,
        error: BaseException,
        *,
        record: CallRecorder | None = None,
        said: InterruptedStream | None = None,
    ) -> None:
        """Count what a call cost that gave no answer: nothing, or what had been said until then. That much is recorded too."""
        outcome, usage, model = CallOutcome.FAILED, Usage(), ticket.links[0].model
        backend: str | None = None
        message: ChatMessage | None = None
        if isinstance(error, CutShort):
            outcome, usage, model, backend, message = CallOutcome.CUT_SHORT, error.usage, error.model, error.backend, error.partial
        elif said is not None and said.partial:
            # Its reader left: the vendor bills the prompt and what was said, and we have no count but our own.
            outcome, model, backend, message = CallOutcome.CANCELLED, said.link.model, said.link.backend.name, said.partial.message
            usage = Usage(tokens_in=ticket.prompt, tokens_out=answer_tokens(message, ticket.ask.max_tokens), is_estimated=True)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            # Nothing was said yet, but if a backend had been asked, it bills the prompt.
            outcome, usage = CallOutcome.CANCELLED, Usage(tokens_in=0 if run.asked is None else ticket.prompt, is_estimated=True)
            model = model if run.asked is None else run.asked.model
        rate = ticket.rates.get(model)
        call = ModelCall(
            **self._who(ticket, caller),
            model=model,
            outcome=outcome,
            latency_ms=0,
            backend=backend,
            attempts=run.attempts,
            usage=usage,
            micro_usd=rate.cost(usage) if rate else 0,
            rate=rate.to_dict() if rate else {},
        )
        completion = None
        if message is not None:
            who = said.link.answers_as if said is not None else model
            completion = Completion(message=message, finish_reason=outcome, usage=usage, model=who, request_digest="")
        self._alert(run.attempts)
        await self._surely(self._record(ticket.hold, call, completion, record))

    async def _surely(self, recording: Coroutine[Any, Any, UUID | None]) -> UUID | None:
        """Let a recording come to its end although whoever waits for it is told to stop: what was paid is written down."""
        return await asyncio.shield(self._keep(asyncio.ensure_future(recording)))

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        """Hold on to a task until it has ended: the event loop alone does not."""
        self._recordings.add(task)
        task.add_done_callback(self._recordings.discard)
        return task

    async def settled(self) -> None:
        """Wait until everything that was paid is written down and counted. For whoever is about to close the stores."""
        while self._recordings:
            await asyncio.gather(*self._recordings, return_exceptions=True)

    async def _record(
        self, hold: BudgetHold, call: ModelCall, completion: Completion | None = None, record: CallRecorder | None = None
    ) -> UUID | None:
        session_id = await self._write(call, completion, record)
        self.meter.count(call)
        # Nobody waits for the counters: until they have it, what was reserved counts, which is more.
        self._keep(asyncio.ensure_future(self._count(hold, call)))
        return session_id

    async def _count(self, hold: BudgetHold, call: ModelCall) -> None:
        adding = self._keep(asyncio.ensure_future(self.spend.add(call.micro_usd, day=hold.day, call_id=hold.id)))
        await self.budgets.settle(hold, tokens=call.tokens, micro_usd=call.micro_usd)
        await adding

    async def _write(self, call: ModelCall, completion: Completion | None, record: CallRecorder | None) -> UUID | None:
        """Write the call's row and what was said, together. The answer is worth more than either; a person should know what is missing."""
        try:
            if completion is not None and record is not None:
                try:
                    return await self._write_both(call, completion, record)
                except StoreUnavailable:
                    raise
                except Exception:
                    # An answer in hand meets whatever may be wrong with its record: say so, and keep the money right.
                    log.exception("sample_not_recorded", call_id=str(call.id))
                    self.alerts.alert("sample_not_recorded", call_id=str(call.id))
            async with self.transactions.once() as tx:
                await self.calls.add(tx, call)
        except StoreUnavailable:
            # The counters still know it, until they are lost.
            self.alerts.alert("call_not_recorded", call_id=str(call.id), micro_usd=call.micro_usd)
        return call.session_id

    async def _write_both(self, call: ModelCall, completion: Completion, record: CallRecorder) -> UUID:
        session_id = await record.at_once(call, completion)
        if session_id is None:
            async with self.transactions.begin() as tx:
                session_id = await record.write(tx, call, completion)
                await self.calls.add(tx, replace(call, session_id=session_id))
        return session_id

    def _who(self, ticket: AdmittedCall, caller: Caller) -> dict[str, Any]:
        return {
            "id": ticket.hold.id,
            "day": ticket.hold.day,
            "account_id": caller.account,
            "source": caller.source,
            "tier": caller.tier,
            "user_id": caller.user_id,
            "turn_id": caller.turn_id,
            "session_id": caller.session_id,
        }

    def _alert(self, attempts: Sequence[CallAttempt]) -> None:
        """A wrong key or an unpaid bill does not mend itself."""
        for attempt in attempts:
            if attempt.outcome == Unauthorized.__name__:
                self.alerts.alert("backend_refused_us", backend=attempt.backend, model=attempt.model, status=attempt.status)


LEASE_MARGIN_S = 15.0
"""How long a reservation outlives the deadline and the waiting for slots: writing down what was used."""


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that was let in."""

    ask: ModelRequest
    hold: BudgetHold
    links: Sequence[ChainLink]
    rates: Mapping[str, TokenRate]
    prompt: int
    """The most tokens that its prompt may have."""
    deadline_s: float


@dataclass(frozen=True, slots=True)
class InterruptedStream:
    """What a link had said of an answer."""

    link: ChainLink
    partial: PartialAnswer
