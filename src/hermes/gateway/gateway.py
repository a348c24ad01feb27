"""The one way to a model: it checks who may call, finds the model that answers, and records what the call cost.

    kill switch and caps  →  budgets of user and key  →  the cache  →  the chain, a slot for each attempt  →  its row  →  settle, count
             │                      │                                      │ no slot, no model
             └──────────────────────┴──────────────────────────────────────┴──▶  refused: a row without tokens and cost, written later

The gateway checks kill switch, caps and budgets once for the whole chain, never per attempt. Each attempt holds a slot of its own. The
gateway writes the row before it settles the budget and counts the money: `calls` is the truth from which both can be rebuilt. A row says
what the call was for, for which agent, platform and API key, how long it took, and of a call without a whole answer why. A refused call
waits for no row, and a flood of them is counted in a few rows (`refused_calls`).

Keeps no text. A caller that wants the answer in a message graph passes a CallRecorder."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import structlog

from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.answer_cache import may_cache
from hermes.gateway.call_records import CallRecorder, CallRecords, RecordPlace
from hermes.gateway.catalogue import ModelCatalogue, Tier
from hermes.gateway.chain import EVERY_PATIENCE, BackendPatience, CallTrace, ChainAnswer, ChainLink, ChainRun
from hermes.gateway.fleet import Adapter
from hermes.gateway.key_guard import KeyGuard, allowed_models
from hermes.gateway.model_plans import SETTINGS_CHAINS, ChosenChains, NameChat
from hermes.gateway.model_probe import PROBE, probe_caller
from hermes.gateway.prices import Prices, TokenRate, answer_tokens, prompt_tokens
from hermes.gateway.running_calls import RunningCalls
from hermes.gateway.shared_answer import SharedAnswer
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch, UnwellModels
from hermes.ports.backends import Backend, ChatMessage, Completion, CutShort, Delta, ModelRequest, Usage
from hermes.ports.credits import BudgetHold, Budgets, BudgetSpent, CallsPaused, GlobalSpend, SpendToday
from hermes.ports.errors import PortError
from hermes.ports.key_limits import NO_LIMITS, KeyClaim
from hermes.ports.key_use import KeyForbids, KeyQuotaSpent, KeyRateReached
from hermes.ports.models import (
    Answer,
    AnswerCache,
    AnswerKeeper,
    AnswerStarted,
    Caller,
    CallMeter,
    CallOutcome,
    CallSource,
    ChainFailed,
    ModelAddress,
    ModelCall,
    ModelCalls,
    NoAnswer,
    NoCapacity,
)
from hermes.ports.runtime import Alerts, Clock, Transactions
from hermes.ports.traces import NO_TRACER, Tracer
from hermes.time_ids import new_time_id

log = structlog.get_logger()
T = TypeVar("T")


def no_adapter(_: str) -> None:
    """No agent has an adapter of its own: all use the chains of their tiers."""


def no_plan(_: NameChat) -> ChosenChains:
    """No operator has set a plan: all chats use the chains of the settings."""
    return SETTINGS_CHAINS


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
    choose_chains: Callable[[NameChat], ChosenChains] = no_plan
    """The chains for a chat, by the plan of the models. Looked up once for each call."""
    deadline_s: float = 45.0
    cap_micro_usd: int | None = None
    """The platform's money for one UTC day; None for no limit."""
    tracer: Tracer = NO_TRACER
    agent_caps: AgentCaps | None = None
    """The money of agents; None: it is neither counted nor limited."""
    watch: ModelWatch | None = None
    """The breakers of models; None: a model that failed is asked again at once."""
    patience: Mapping[str, BackendPatience] = field(default_factory=dict)
    """How long the chain waits for the first token of each backend; a backend without an entry has the attempt's whole time."""
    lossy_streams: set[ModelAddress] = field(default_factory=set)
    """The models whose streams have lost token ids since this process began."""
    running: RunningCalls = field(default_factory=RunningCalls)
    """The calls under way: the kill switch ends them."""
    keys: KeyGuard | None = None
    """The limits of API keys; None: keys have none."""
    records: CallRecords = field(init=False, repr=False)

    def __post_init__(self) -> None:
        records = CallRecords(
            calls=self.calls,
            transactions=self.transactions,
            alerts=self.alerts,
            meter=self.meter,
            budgets=self.budgets,
            spend=self.spend,
            agent_caps=self.agent_caps,
        )
        object.__setattr__(self, "records", records)

    async def complete(
        self, ask: ModelRequest, caller: Caller, recorder: CallRecorder | None = None, place: RecordPlace | None = None
    ) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises CallsPaused, BudgetSpent, UnknownPrice, NoCapacity, ChainFailed, and StoreUnavailable when the budget cannot be reserved;
        then nothing was spent, or what was spent is counted."""
        return await self._answer(ask, caller, recorder, place)

    async def complete_and_keep(self, ask: ModelRequest, caller: Caller, keep: AnswerKeeper) -> Answer:
        """As `complete`; what `keep` writes is one with the row of the call. A copy from the cache is not kept: it cost nothing."""
        return await self._answer(ask, caller, keep=keep)

    async def _answer(
        self,
        ask: ModelRequest,
        caller: Caller,
        recorder: CallRecorder | None = None,
        place: RecordPlace | None = None,
        *,
        keep: AnswerKeeper | None = None,
    ) -> Answer:
        admitted = await self._admit(ask, caller)
        ask = admitted.ask
        may_use_cache = caller.may_use_cache and may_cache(ask)
        shared = SharedAnswer(self.cache, caller.user_id, ask, admitted.run.likely_link) if may_use_cache else None
        try:
            copied = await shared.find() if shared is not None else None
            answered = await self._complete(admitted.run) if copied is None else None
        except BaseException as error:
            if shared is not None:
                self.records.start(shared.give_up())
            await self._record_failure(admitted, error, recorder)
            raise
        if copied is not None:
            return await self._record_copy(admitted, *copied)
        assert answered is not None  # noqa: S101  # there is a copy, or a model was asked
        answer = await self._record_answer(admitted, answered, recorder, place, keep=keep)
        if shared is not None:
            await shared.keep(answered, answer.call_id)
        return answer

    async def stream(
        self, ask: ModelRequest, caller: Caller, recorder: CallRecorder | None = None, place: RecordPlace | None = None
    ) -> AsyncGenerator[AnswerStarted | Delta | Answer]:
        """Yield the model that answers, the deltas, and last of all the answer. Raises as `complete`, and CutShort after the first delta.

        A caller that stops early closes the stream (`aclosing`); the tokens produced so far are charged and recorded."""
        admitted, answered = await self._admit(ask, caller), None
        try:
            async with aclosing(self._stream(admitted.run)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChainAnswer):
                        answered = piece
                        break
                    yield AnswerStarted(admitted.hold.id, piece.answers_as) if isinstance(piece, ChainLink) else piece
            assert answered is not None  # noqa: S101  # a chain ends with its answer, or raises
        except BaseException as error:
            await self._record_failure(admitted, error, recorder)
            raise
        yield await self._record_answer(admitted, answered, recorder, place)

    async def _complete(self, run: ChainRun) -> ChainAnswer:
        with self.running.enter() as call:
            async with call.guard():
                return await run.complete()

    async def _stream(self, run: ChainRun) -> AsyncGenerator[ChainLink | Delta | ChainAnswer]:
        with self.running.enter() as call:
            async with aclosing(run.stream()) as pieces:
                while True:
                    async with call.guard():
                        piece = await anext(pieces, None)
                    if piece is None:
                        return
                    yield piece

    async def wait_settled(self) -> None:
        """Wait until everything that was paid is written down and counted. Call it before the stores are closed."""
        await self.records.wait_settled()

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
        chosen = self._chosen_chains(caller)
        names = caller.models or chosen.chains.get(caller.tier, tier.chain)
        limits = NO_LIMITS if self.keys is None else await self.keys.limits(caller.api_key_id)
        if adapter is not None:
            names = (adapter.model, *(name for name in names if name != adapter.model))
            ask = replace(ask, cwd=Path(adapter.cwd)) if adapter.cwd is not None else ask
        links = self._links(allowed_models(names, limits, self.catalogue.every_model))
        if not links and chosen.plan is not None:  # this process is set up differently, and an answer of the settings' chain beats none
            log.warning("model_plan_not_here", plan=chosen.plan, tier=caller.tier)
            chosen, links = SETTINGS_CHAINS, self._links(allowed_models(tier.chain, limits, self.catalogue.every_model))
        if not links:
            raise ChainFailed((), None)
        prompt, deadline_s = prompt_tokens(ask), caller.deadline_s or self.deadline_s
        today = self.clock.now().date()
        rates = {link.address: self.prices.rate(link.address, today, prompt) for link in links}  # unknown: refused before any call
        max_tokens = prompt + max(min(ask.max_tokens, link.max_tokens) for link in links)
        lease_s = deadline_s + self.slots.wait_s + LEASE_MARGIN_S
        claim = None
        if self.keys is not None and caller.api_key_id is not None:
            costs = (rates[link.address].max_cost(prompt, min(ask.max_tokens, link.max_tokens)) for link in links)
            claim = KeyClaim(key_id=caller.api_key_id, limits=limits, micro_usd=max(costs))
        hold, unwell = await self._reserve(caller, tier, links, tokens=max_tokens, lease_s=lease_s, claim=claim)

        def probe(link: ChainLink) -> None:
            self.records.start(self._probe(caller, link))

        def price(link: ChainLink, usage: Usage) -> int:
            return self.prices.rate(link.address, hold.day, usage.tokens_in).cost(usage)

        trace = None if self.tracer is NO_TRACER else CallTrace(self.tracer, caller, price)
        run = ChainRun(
            ask,
            links,
            deadline_s=deadline_s,
            slots=self.slots,
            user=str(caller.user_id),
            trace=trace,
            unwell=unwell,
            lossy_streams=self.lossy_streams,
            probe=probe,
        )
        return AdmittedCall(ask, caller, hold, links, run, rates, prompt, chosen.plan, limits.calls_at_once is not None)

    async def _probe(self, caller: Caller, link: ChainLink) -> None:
        """Find out whether a model answers again; the breaker learns it from the call."""
        with suppress(NoAnswer, PortError):
            await self.complete(PROBE, probe_caller(caller, link, self.deadline_s))

    def _chosen_chains(self, caller: Caller) -> ChosenChains:
        """The chains for the caller's chat. If the caller brings its models, only the plan that chose them."""
        if caller.models:
            return ChosenChains(caller.plan)
        return self.choose_chains(lambda: caller.chat or str(caller.session_id or caller.user_id))

    def _links(self, names: Sequence[str]) -> list[ChainLink]:
        """The links of a chain whose backends this process has."""
        known = self.catalogue.every_model  # a plan may name a model that only the settings of other processes have
        models = [(name, known[name]) for name in names if name in known]
        return [
            ChainLink(name, self.backends[model.backend], model.id, model.max_tokens, self.patience.get(model.backend, EVERY_PATIENCE))
            for name, model in models
            if model.backend in self.backends
        ]

    async def _look(self, links: Sequence[ChainLink]) -> UnwellModels:
        return UnwellModels() if self.watch is None else await self.watch.look([link.address for link in links])

    async def _reserve(
        self, caller: Caller, tier: Tier, links: Sequence[ChainLink], *, tokens: int, lease_s: float, claim: KeyClaim | None
    ) -> tuple[BudgetHold, UnwellModels]:
        """Check kill switch and caps; reserve the budgets of user and key, and read the breakers meanwhile. CallsPaused comes before
        BudgetSpent."""
        reserving = self.records.start(self._reserve_budgets(caller, tier, tokens=tokens, lease_s=lease_s, claim=claim))
        looking = self.records.start(self._look(links))
        try:
            await self._check_caps(caller)  # all are under way together
            unwell = await looking
            return await asyncio.shield(reserving), unwell
        except BaseException:
            self.records.start(self._give_back(reserving))  # it may still succeed, and no call will use it
            raise

    async def _reserve_budgets(self, caller: Caller, tier: Tier, *, tokens: int, lease_s: float, claim: KeyClaim | None) -> BudgetHold:
        """Reserve the budgets. A call of a turn waits for the rates of its key as long as it would for a slot: its message was accepted. A
        program at the door gets the error at once, with the time to wait."""
        limits: dict[str, Any] = {"day_limit": tier.day_tokens, "month_limit": tier.month_tokens, "lease_s": lease_s, "key": claim}
        has_waited = False
        give_up = time.monotonic() + (0.0 if caller.source is CallSource.COMPLETIONS else self.slots.wait_s)
        while True:
            try:
                return await self.budgets.reserve(caller.user_id, tokens=tokens, **limits)
            except (BudgetSpent, KeyQuotaSpent, KeyRateReached) as error:
                # Their callers may have their answers, and count as one call after the other.
                if not has_waited and await self.records.wait_counted(caller.user_id, caller.api_key_id):
                    has_waited = True
                    continue
                if not isinstance(error, KeyRateReached):
                    raise
                left_s = give_up - time.monotonic()
                if error.wait_s is None or left_s <= 0 or (error.wait_s > left_s and error.wait_s > RATE_LOOK_S):
                    raise
                await asyncio.sleep(min(left_s, error.wait_s, random.uniform(0.05, RATE_LOOK_S)))  # noqa: S311  # no secret

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
            id=new_time_id(),
            day=self.clock.now().astimezone(UTC).date(),
            model=self._requested_model(caller),
            outcome=CallOutcome.REFUSED,
            latency_ms=0,
            error=describe_call_error(error),
            attempts=() if run is None else run.attempts,
            waited_ms=None if run is None else run.waited_ms,
            **caller_columns(caller),
        )
        self.records.refuse(call)

    def _requested_model(self, caller: Caller) -> str:
        tier = self.catalogue.tiers.get(caller.tier)
        chain = self._chosen_chains(caller).chains.get(caller.tier, tier.chain if tier is not None else ())
        model = next((self.catalogue.every_model[name] for name in caller.models or chain if name in self.catalogue.every_model), None)
        return model.id if model is not None else ""

    # --- after the call

    async def _record_answer(
        self,
        admitted: AdmittedCall,
        answered: ChainAnswer,
        recorder: CallRecorder | None,
        place: RecordPlace | None = None,
        *,
        keep: AnswerKeeper | None = None,
    ) -> Answer:
        link, completion = answered.link, answered.completion
        rate = self.prices.rate(link.address, admitted.hold.day, completion.usage.tokens_in)
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
        answer = Answer(
            call.id,
            completion,
            link.backend.name,
            link.model,
            cost,
            call.rate,
            answered.attempts,
            answered.ms,
            session_id=call.session_id,
            without_tools=admitted.run.leaves_out_tools(link),
        )
        if keep is not None:
            recorder = self.records.keeping(keep, answer)
        if place is None or admitted.is_counted_first:
            session_id = await self.records.write(admitted.hold, call, completion, recorder)
        else:
            session_id = await self.records.write_later(admitted.hold, call, completion, recorder, place)
        return replace(answer, session_id=session_id)

    async def _record_copy(self, admitted: AdmittedCall, completion: Completion, sampled_by: UUID) -> Answer:
        """Record an answer from the cache: it took no slot and costs nothing."""
        link = admitted.run.likely_link
        saved = self.prices.rate(link.address, admitted.hold.day, completion.usage.tokens_in).cost(completion.usage)
        call = admitted.call(
            model=link.model,
            outcome=CallOutcome.ANSWERED,
            latency_ms=0,
            backend=link.backend.name,
            answered_by=completion.model,
            usage=completion.usage,
            cache_hit=True,
        )
        await self.records.write(admitted.hold, call)
        self.meter.count_saved(call, saved)
        return Answer(call.id, completion, link.backend.name, link.model, 0, {}, (), 0, copy_of=sampled_by, saved_micro_usd=saved)

    async def _record_failure(self, admitted: AdmittedCall, error: BaseException, recorder: CallRecorder | None) -> None:
        """Count and record a call that gave no whole answer: it cost nothing, or the tokens produced so far. These are recorded too."""
        run = admitted.run
        if isinstance(error, NoCapacity) or (isinstance(error, ChainFailed) and error.last is None):
            self._refuse(admitted.caller, error, run)
            await asyncio.shield(self.records.start(self.budgets.release(admitted.hold)))
            return
        link = run.called or admitted.links[0]
        outcome, usage, at = CallOutcome.FAILED, Usage(), admitted.links[0].address
        backend: str | None = None
        message: ChatMessage | None = None
        if isinstance(error, CutShort):
            outcome, usage, backend, message = CallOutcome.CUT_SHORT, error.usage, error.backend, error.partial
            at = ModelAddress(error.backend, error.model)
        elif run.partial:
            # The caller left, or the kill switch ended the call. The vendor bills the prompt and the tokens so far, and there is no count
            # but our own estimate.
            outcome, at, backend, message = CallOutcome.CANCELLED, link.address, link.backend.name, run.partial.message
            usage = Usage(tokens_in=admitted.prompt, tokens_out=answer_tokens(message, admitted.ask.max_tokens), is_estimated=True)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit | CallsPaused):
            # No token came yet, but a backend that got the request bills the prompt.
            outcome, at = CallOutcome.CANCELLED, link.address
            usage = Usage(tokens_in=0 if run.called is None else admitted.prompt, is_estimated=True)
        rate = admitted.rates.get(at)
        call = admitted.call(
            model=at.model,
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
            completion = Completion(
                message=message, finish_reason=outcome, usage=usage, model=link.answers_as, derived=("model",), request_digest=""
            )
        await self.records.write(admitted.hold, call, completion, recorder)


RATE_LOOK_S = 0.25
"""How often a call that waits for a rate of its key looks again."""
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
    rates: Mapping[ModelAddress, TokenRate]
    prompt: int
    """Upper bound of the tokens of its prompt."""
    plan: int | None = None
    """The model plan that chose its links."""
    is_counted_first: bool = False
    """Whether the key has a limit of calls at once: the call ends before its answer leaves, as the next one may come to any process."""

    def call(self, **fields: Any) -> ModelCall:
        """The row of the call, with the fields that every outcome has."""
        return ModelCall(id=self.hold.id, day=self.hold.day, plan=self.plan, **caller_columns(self.caller), **fields)


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
        case KeyQuotaSpent() | KeyRateReached():
            return f"{name}: {error.limit}"
        case KeyForbids():
            return f"{name}: {error.param}"
        case BudgetSpent():
            return f"{name}: {error.window}"
        case ChainFailed():
            return f"{name}: {'no model' if error.last is None else type(error.last).__name__}"
    return name
