"""The one way to a model: it checks who may call, finds the model that answers, and records what the call cost.

    kill switch and caps  →  the user's budget  →  the cache  →  the chain, a slot for each attempt  →  the call's row  →  settle, and count
             │                      │                                      │ no slot, no model
             └──────────────────────┴──────────────────────────────────────┴──▶  refused: a row without tokens and cost, written later

The gateway checks kill switch, caps and budget once for the whole chain, never per attempt. Each attempt holds a slot of its own. The
gateway writes the row before it settles the budget and counts the money: `calls` is the truth from which both can be rebuilt. A row says
what the call was for, for which agent, platform and API key, how long it took, and of a call without a whole answer why. A refused call
waits for no row, and a flood of them is counted in a few rows (`refused_calls`).

Keeps no text. A caller that wants the answer in a message graph passes a CallRecorder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import structlog

from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.answer_cache import cache_key, decode, encode, may_cache, may_keep
from hermes.gateway.catalogue import ModelCatalogue, Tier
from hermes.gateway.chain import CallTrace, ChainAnswer, ChainLink, ChainRun
from hermes.gateway.fleet import Adapter
from hermes.gateway.prices import Prices, TokenRate, answer_tokens, prompt_tokens
from hermes.gateway.refused_calls import RefusedCalls
from hermes.gateway.slots import Slots
from hermes.ports.backends import Backend, ChatMessage, Completion, CutShort, Delta, ModelRequest, Unauthorized, Usage
from hermes.ports.credits import BudgetHold, Budgets, BudgetSpent, CallsPaused, GlobalSpend, SpendToday
from hermes.ports.errors import PortError, StoreUnavailable
from hermes.ports.models import (
    Answer,
    AnswerCache,
    AnswerStarted,
    Caller,
    CallMeter,
    CallOutcome,
    ChainFailed,
    ModelCall,
    ModelCalls,
    NoAnswer,
    NoCapacity,
)
from hermes.ports.runtime import Alerts, Clock, Transactions
from hermes.ports.traces import NO_TRACER, Tracer

log = structlog.get_logger()
T = TypeVar("T")


CallRecorder = Callable[[ModelCall, Completion], Awaitable[UUID]]
"""Writes a call's row and its answer together, and returns the answer's session. A caller passes one to get answers into a message graph.

It also gets the part of an answer that came before a stream broke off: its finish reason is `cut_short` or `cancelled`."""


def no_adapter(_: str) -> None:
    """No agent has an adapter of its own: all use the chains of their tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Every model call passes here."""

    catalogue: ModelCatalogue
    prices: Prices
    backends: Mapping[str, Backend]
    """By name, as the catalogue's models name them. Looked up at each call, so that a backend may be exchanged between two calls."""
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
    """The adapter of an agent; None: the chain. Looked up once for each call, so a call ends on the adapter it began on."""
    deadline_s: float = 45.0
    cap_micro_usd: int | None = None
    """The platform's money for one UTC day; None for no limit."""
    tracer: Tracer = NO_TRACER
    agent_caps: AgentCaps | None = None
    """The money of agents; None: it is neither counted nor limited."""
    _refused: RefusedCalls = field(default_factory=RefusedCalls, init=False, repr=False)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False, repr=False)

    async def complete(self, ask: ModelRequest, caller: Caller, recorder: CallRecorder | None = None) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises CallsPaused, BudgetSpent, UnknownPrice, NoCapacity, ChainFailed, and StoreUnavailable when the budget cannot be reserved;
        then nothing was spent, or what was spent is counted."""
        admitted = await self._admit(ask, caller)
        ask = admitted.ask
        may_use_cache = caller.may_use_cache and may_cache(ask)
        try:
            cached = await self.cache.get(caller.user_id, cache_key(ask, admitted.links[0])) if may_use_cache else None
            answered = await admitted.run.complete() if cached is None else decode(cached)
        except BaseException as error:
            await self._record_failure(admitted, error, recorder)
            raise
        if not isinstance(answered, ChainAnswer):
            return await self._record_copy(admitted, *answered)
        answer = await self._record_answer(admitted, answered, recorder)
        if may_use_cache and may_keep(answer.completion):
            # Under the model that answered, which need not be the first of the chain.
            await self.cache.put(caller.user_id, cache_key(ask, answered.link), encode(answer.completion, answer.call_id))
        return answer

    async def stream(
        self, ask: ModelRequest, caller: Caller, recorder: CallRecorder | None = None
    ) -> AsyncGenerator[AnswerStarted | Delta | Answer]:
        """Yield the model that answers, the deltas, and last of all the answer. Raises as `complete`, and CutShort after the first delta.

        A caller that stops early closes the stream (`aclosing`); the tokens produced so far are charged and recorded."""
        admitted, answered = await self._admit(ask, caller), None
        try:
            async with aclosing(admitted.run.stream()) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChainAnswer):
                        answered = piece
                        break
                    yield AnswerStarted(admitted.hold.id, piece.answers_as) if isinstance(piece, ChainLink) else piece
            assert answered is not None  # noqa: S101  # a chain ends with its answer, or raises
        except BaseException as error:
            await self._record_failure(admitted, error, recorder)
            raise
        yield await self._record_answer(admitted, answered, recorder)

    async def wait_settled(self) -> None:
        """Wait until everything that was paid is written down and counted. Call it before the stores are closed."""
        while self._tasks:
            self._refused.write_now()  # again and again: a call that is refused meanwhile would be written a minute later
            done, _ = await asyncio.wait(self._tasks, timeout=1.0)
            await asyncio.gather(*done, return_exceptions=True)

    async def spent_today(self) -> SpendToday | None:
        """What was spent today, with the caps; one round trip to the counters. None without `agent_caps`. Raises StoreUnavailable."""
        return None if self.agent_caps is None else await self.agent_caps.spent_today(self.spend, self.cap_micro_usd)

    # --- before the call

    async def _admit(self, ask: ModelRequest, caller: Caller) -> AdmittedCall:
        try:
            return await self._check(ask, caller)
        except (NoAnswer, PortError) as error:
            self._refuse(caller, error)
            raise

    async def _check(self, ask: ModelRequest, caller: Caller) -> AdmittedCall:
        tier = self.catalogue.tier(caller.tier)
        adapter = self.adapter_of(caller.agent) if caller.agent is not None and caller.uses_adapter else None
        names = caller.models or tier.chain
        if adapter is not None:
            names = (adapter.model, *(name for name in names if name != adapter.model))
            ask = replace(ask, cwd=Path(adapter.cwd)) if adapter.cwd is not None else ask
        links = self._links(names)
        if not links:
            raise ChainFailed((), None)
        prompt, deadline_s = prompt_tokens(ask), caller.deadline_s or self.deadline_s
        today = self.clock.now().date()
        rates = {link.model: self.prices.rate(link.model, today, prompt) for link in links}  # unknown: refused before any call
        max_tokens = prompt + max(min(ask.max_tokens, link.max_tokens) for link in links)
        hold = await self._reserve(caller, tier, max_tokens, deadline_s + self.slots.wait_s + LEASE_MARGIN_S)

        def price(link: ChainLink, usage: Usage) -> int:
            return self.prices.rate(link.model, hold.day, usage.tokens_in).cost(usage)

        trace = None if self.tracer is NO_TRACER else CallTrace(self.tracer, caller, price)
        run = ChainRun(ask, links, deadline_s=deadline_s, slots=self.slots, user=str(caller.user_id), trace=trace)
        return AdmittedCall(ask, caller, hold, links, run, rates, prompt)

    def _links(self, names: Sequence[str]) -> list[ChainLink]:
        """The links of a chain whose backends this process has."""
        models = [(name, self.catalogue.models[name]) for name in names]
        return [
            ChainLink(name, self.backends[model.backend], model.id, model.max_tokens)
            for name, model in models
            if model.backend in self.backends
        ]

    async def _reserve(self, caller: Caller, tier: Tier, tokens: int, lease_s: float) -> BudgetHold:
        """Check kill switch and caps, and reserve the user's budget meanwhile. CallsPaused comes before BudgetSpent."""
        limits = {"day_limit": tier.day_tokens, "month_limit": tier.month_tokens}
        reserving = self._start(self.budgets.reserve(caller.user_id, **limits, tokens=tokens, lease_s=lease_s))
        try:
            await self._check_caps(caller)  # both are under way together, and go to Redis in one round trip
            return await asyncio.shield(reserving)
        except BaseException:
            self._start(self._give_back(reserving))  # it may still succeed, and no call will use it
            raise

    async def _check_caps(self, caller: Caller) -> None:
        """Raise CallsPaused at the kill switch, the platform's cap, the agent's cap or the fleet's; the first of these that holds."""
        caps = self.agent_caps
        if caps is None or caller.agent is None or not caps.has_cap(caller.agent):
            await self.spend.admit(self.cap_micro_usd)
            return
        checks = await asyncio.gather(self.spend.admit(self.cap_micro_usd), caps.admit(caller.agent), return_exceptions=True)
        for error in checks:
            if error is not None:
                raise error

    async def _give_back(self, reserving: asyncio.Task[BudgetHold]) -> None:
        with suppress(PortError):  # also if the reservation failed
            await self.budgets.release(await reserving)

    def _refuse(self, caller: Caller, error: NoAnswer | PortError, run: ChainRun | None = None) -> None:
        """Record that no backend was asked. Neither waits nor raises."""
        call = ModelCall(
            id=uuid4(),
            day=self.clock.now().astimezone(UTC).date(),
            model=self._requested_model(caller),
            outcome=CallOutcome.REFUSED,
            latency_ms=0,
            error=describe_call_error(error),
            attempts=() if run is None else run.attempts,
            waited_ms=None if run is None else run.waited_ms,
            **caller_columns(caller),
        )
        self.meter.count(call)
        if self._refused.add(call):
            self._start(self._refused.write(self.calls, self.transactions))

    def _requested_model(self, caller: Caller) -> str:
        tier = self.catalogue.tiers.get(caller.tier)
        names = caller.models or (tier.chain if tier is not None else ())
        model = self.catalogue.models.get(names[0]) if names else None
        return model.id if model is not None else ""

    # --- after the call

    async def _record_answer(self, admitted: AdmittedCall, answered: ChainAnswer, recorder: CallRecorder | None) -> Answer:
        link, completion = answered.link, answered.completion
        rate = self.prices.rate(link.model, admitted.hold.day, completion.usage.tokens_in)
        cost = rate.cost(completion.usage)
        call = admitted.call(
            model=link.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=answered.ms,
            waited_ms=admitted.run.waited_ms,
            backend=link.backend.name,
            answered_by=completion.model,
            attempts=answered.attempts,
            usage=completion.usage,
            micro_usd=cost,
            rate=rate.to_dict(),
            first_token_ms=answered.first_delta_ms,
        )
        session_id = await self._record(admitted.hold, call, completion, recorder)
        return Answer(
            call.id, completion, link.backend.name, link.model, cost, call.rate, answered.attempts, answered.ms, session_id=session_id
        )

    async def _record_copy(self, admitted: AdmittedCall, completion: Completion, sampled_by: UUID) -> Answer:
        """Record an answer from the cache: it took no slot and costs nothing."""
        link = admitted.links[0]
        call = admitted.call(
            model=link.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=0,
            backend=link.backend.name,
            answered_by=completion.model,
            usage=completion.usage,
            cache_hit=True,
        )
        await self._record(admitted.hold, call)
        return Answer(call.id, completion, link.backend.name, link.model, 0, {}, (), 0, copy_of=sampled_by)

    async def _record_failure(self, admitted: AdmittedCall, error: BaseException, recorder: CallRecorder | None) -> None:
        """Count and record a call that gave no whole answer: it cost nothing, or the tokens produced so far. These are recorded too."""
        run = admitted.run
        if isinstance(error, NoCapacity) or (isinstance(error, ChainFailed) and error.last is None):
            self._refuse(admitted.caller, error, run)
            await asyncio.shield(self._start(self.budgets.release(admitted.hold)))
            return
        link = run.called or admitted.links[0]
        outcome, usage, model = CallOutcome.FAILED, Usage(), admitted.links[0].model
        backend: str | None = None
        message: ChatMessage | None = None
        if isinstance(error, CutShort):
            outcome, usage, model, backend, message = CallOutcome.CUT_SHORT, error.usage, error.model, error.backend, error.partial
        elif run.partial:
            # The caller left: the vendor bills the prompt and the tokens so far, and there is no count but our own estimate.
            outcome, model, backend, message = CallOutcome.CANCELLED, link.model, link.backend.name, run.partial.message
            usage = Usage(tokens_in=admitted.prompt, tokens_out=answer_tokens(message, admitted.ask.max_tokens), is_estimated=True)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            # No token came yet, but a backend that got the request bills the prompt.
            outcome, model = CallOutcome.CANCELLED, link.model
            usage = Usage(tokens_in=0 if run.called is None else admitted.prompt, is_estimated=True)
        rate = admitted.rates.get(model)
        call = admitted.call(
            model=model,
            outcome=outcome,
            latency_ms=run.ms,
            error=describe_call_error(error),
            waited_ms=run.waited_ms,
            backend=backend,
            attempts=run.attempts,
            usage=usage,
            micro_usd=rate.cost(usage) if rate else 0,
            rate=rate.to_dict() if rate else {},
        )
        completion = None
        if message is not None:
            completion = Completion(message=message, finish_reason=outcome, usage=usage, model=link.answers_as, request_digest="")
        await self._record(admitted.hold, call, completion, recorder)

    async def _record(
        self, hold: BudgetHold, call: ModelCall, completion: Completion | None = None, recorder: CallRecorder | None = None
    ) -> UUID | None:
        """Write a call down and count it, to the end, although the caller is cancelled meanwhile: what was paid is written down."""
        return await asyncio.shield(self._start(self._write_and_count(hold, call, completion, recorder)))

    async def _write_and_count(
        self, hold: BudgetHold, call: ModelCall, completion: Completion | None, recorder: CallRecorder | None
    ) -> UUID | None:
        for attempt in call.attempts:
            if attempt.outcome == Unauthorized.__name__:  # a wrong key or an unpaid bill: neither mends itself
                self.alerts.alert("backend_refused_us", backend=attempt.backend, model=attempt.model, status=attempt.status)
        session_id = await self._write(call, completion, recorder)
        self.meter.count(call)
        # The caller does not wait for the counters: until they have the call, its reservation counts, which is more.
        self._start(self._count(hold, call))
        return session_id

    async def _write(self, call: ModelCall, completion: Completion | None, recorder: CallRecorder | None) -> UUID | None:
        """Write the call's row and the answer together. If that fails the caller still gets the answer, and an alert tells the operator."""
        try:
            if completion is not None and recorder is not None:
                try:
                    return await recorder(call, completion)
                except StoreUnavailable:
                    raise
                except Exception:
                    # Any fault of the record: the caller still gets the answer. Raise an alert, and write the call's row alone.
                    log.exception("sample_not_recorded", call_id=str(call.id))
                    self.alerts.alert("sample_not_recorded", call_id=str(call.id))
            async with self.transactions.once() as tx:
                await self.calls.add(tx, call)
        except StoreUnavailable:
            # The counters still have the cost, until they are lost.
            self.alerts.alert("call_not_recorded", call_id=str(call.id), micro_usd=call.micro_usd)
        return call.session_id

    async def _count(self, hold: BudgetHold, call: ModelCall) -> None:
        # A task of its own: if the budget raises, `wait_settled` still waits until the money is counted.
        adding = self._start(self.spend.add(call.micro_usd, day=hold.day, call_id=hold.id))
        if self.agent_caps is not None and call.agent is not None and call.micro_usd:
            self._start(self.agent_caps.add(call.agent, call.micro_usd, day=hold.day, call_id=hold.id))
        await self.budgets.settle(hold, tokens=call.tokens, micro_usd=call.micro_usd)
        await adding

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task and hold a reference to it until it has ended: the event loop alone does not."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


LEASE_MARGIN_S = 15.0
"""How much longer a reservation lasts than the deadline and the wait for slots: the gateway needs that time to record the usage."""


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that passed kill switch, cap and budget."""

    ask: ModelRequest
    caller: Caller
    hold: BudgetHold
    links: Sequence[ChainLink]
    run: ChainRun
    rates: Mapping[str, TokenRate]
    prompt: int
    """Upper bound of the tokens of its prompt."""

    def call(self, **fields: Any) -> ModelCall:
        """The row of the call, with the fields that every outcome has."""
        return ModelCall(id=self.hold.id, day=self.hold.day, **caller_columns(self.caller), **fields)


def caller_columns(caller: Caller) -> dict[str, Any]:
    """The fields of a call's row that its caller decides."""
    return {
        "account_id": caller.account,
        "source": caller.source,
        "purpose": caller.purpose,
        "tier": caller.tier,
        "user_id": caller.user_id,
        "agent": caller.agent,
        "platform": caller.platform,
        "api_key_id": caller.api_key_id,
        "turn_id": caller.turn_id,
        "session_id": caller.session_id,
    }


def describe_call_error(error: BaseException) -> str:
    """The name of an error and its reason, if it has one. Few different values: no text of a vendor, no number."""
    name = type(error).__name__
    match error:
        case CallsPaused():
            return f"{name}: {error.reason}"
        case BudgetSpent():
            return f"{name}: {error.window}"
        case ChainFailed():
            return f"{name}: {'no model' if error.last is None else type(error.last).__name__}"
    return name
