"""The one way to a model: who may, what for, who answers, what it cost.

    latch and cap  →  the user's budget  →  the cache  →  a slot  →  the chain  →  the call's row  →  settled, and counted

Admission is once around the whole chain, never per attempt. The row is written before the budget is settled and the money counted:
`calls` is the truth that both can be rebuilt from. Keeps no text; who wants the answer recorded does that with the message graph."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog

from hermes.gateway import chain
from hermes.gateway.cache import cache_key, decode, encode, may_cache, may_keep
from hermes.gateway.catalogue import Catalogue
from hermes.gateway.chain import Answered, ChainFailed, Link, most_tokens
from hermes.gateway.prices import Prices, Rate
from hermes.gateway.slots import Slots
from hermes.ports.alerts import Alerts
from hermes.ports.backends import Ask, Backend, Completion, CutShort, Delta, Unauthorized, Usage
from hermes.ports.budgets import Budgets, Hold, Spend
from hermes.ports.cache import Cache
from hermes.ports.calls import Attempt, Call, CallOutcome, Calls, Source
from hermes.ports.clock import Clock
from hermes.ports.errors import StoreUnavailable
from hermes.ports.meter import Meter
from hermes.ports.transactions import Transactions

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who wants an answer, and who pays."""

    user_id: UUID
    account: str
    tier: str
    source: Source
    turn_id: UUID | None = None
    session_id: UUID | None = None
    takes_copies: bool = True
    """Whether an earlier answer will do. Not where samples must be independent: the door, and batches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said, what it cost, and how it came about."""

    call_id: UUID
    completion: Completion
    backend: str
    model: str
    """What was asked for, of those that could answer."""
    micro_usd: int
    rate: Mapping[str, Any]
    attempts: Sequence[Attempt]
    latency_ms: int
    copy_of: UUID | None = None
    """The call that sampled it, where it came out of the cache; it cost nothing then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Every model call passes here."""

    catalogue: Catalogue
    prices: Prices
    backends: Mapping[str, Backend]
    """By name, as the catalogue's models name them. Looked up at each call, so that one may be exchanged between two calls."""
    slots: Slots
    budgets: Budgets
    spend: Spend
    cache: Cache
    calls: Calls
    transactions: Transactions
    alerts: Alerts
    meter: Meter
    clock: Clock
    deadline_s: float = 45.0
    cap_micro_usd: int | None = None
    """The platform's money for one UTC day; None for no limit."""

    async def complete(self, ask: Ask, caller: Caller) -> Answer:
        """Return the answer of the first model of the tier's chain that gives one.

        Raises Paused, BudgetSpent, UnknownPrice, NoCapacity, ChainFailed, and StoreUnavailable when the budget cannot be asked; then
        nothing was spent, or what was spent is counted."""
        ticket = await self._admit(ask, caller)
        try:
            copied = await self._copied(ask, ticket, caller)
            if copied is not None:
                return copied
            async with self.slots.hold(str(caller.user_id)):
                answered = await chain.complete(ask, ticket.links, deadline_s=self.deadline_s)
        except BaseException as error:
            await self._failed(ticket, caller, error)
            raise
        answer = await self._paid(ticket, caller, answered)
        if caller.takes_copies and may_cache(ask) and may_keep(answer.completion):
            # Under the model that answered, which need not be the first of the chain.
            await self.cache.put(caller.user_id, cache_key(ask, answered.link), encode(answer.completion, answer.call_id))
        return answer

    async def stream(self, ask: Ask, caller: Caller) -> AsyncGenerator[Delta | Answer]:
        """Yield the deltas, and last of all the answer. Raises as `complete` does, and CutShort after the first delta.

        Whoever leaves early pays for what was said: close it (`aclosing`)."""
        ticket = await self._admit(ask, caller)
        said = 0
        try:
            async with (
                self.slots.hold(str(caller.user_id)),
                aclosing(chain.stream(ask, ticket.links, deadline_s=self.deadline_s)) as pieces,
            ):
                async for piece in pieces:
                    if isinstance(piece, Answered):
                        yield await self._paid(ticket, caller, piece)
                        return
                    said += len(getattr(piece, "text", "") or getattr(piece, "arguments", ""))
                    yield piece
        except BaseException as error:
            await self._failed(ticket, caller, error, said)
            raise

    async def _admit(self, ask: Ask, caller: Caller) -> Ticket:
        await self.spend.admit(self.cap_micro_usd)
        tier = self.catalogue.tier(caller.tier)
        links = self.links(tier.chain)
        if not links:
            raise ChainFailed((), None)
        prompt = most_tokens(ask)
        today = self.clock.now().date()
        rates = {link.model: self.prices.rate(link.model, today, prompt) for link in links}  # unknown: refused before anything is asked
        most = prompt + max(min(ask.max_tokens, link.max_tokens) for link in links)
        hold = await self.budgets.reserve(
            caller.user_id,
            day_limit=tier.day_tokens,
            month_limit=tier.month_tokens,
            tokens=most,
            lease_s=self.deadline_s + LEASE_BEYOND_S,
        )
        return Ticket(hold, links, rates, prompt)

    def links(self, names: Sequence[str]) -> list[Link]:
        """The links of a chain whose backends are there."""
        models = [(name, self.catalogue.models[name]) for name in names]
        return [
            Link(name, self.backends[model.backend], model.id, model.max_tokens) for name, model in models if model.backend in self.backends
        ]

    async def _copied(self, ask: Ask, ticket: Ticket, caller: Caller) -> Answer | None:
        """An answer that was given to the same question before, if there is one: it takes no slot and costs nothing."""
        link = ticket.links[0]
        if not caller.takes_copies or not may_cache(ask):
            return None
        kept = await self.cache.get(caller.user_id, cache_key(ask, link))
        if kept is None:
            return None
        completion, sampled_by = decode(kept)
        call = Call(
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

    async def _paid(self, ticket: Ticket, caller: Caller, answered: Answered) -> Answer:
        link, completion = answered.link, answered.completion
        rate = self.prices.rate(link.model, ticket.hold.day, completion.usage.tokens_in)
        cost = rate.cost(completion.usage)
        call = Call(
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
        await self._record(ticket.hold, call)
        self._alert(answered.attempts)
        return Answer(call.id, completion, link.backend.name, link.model, cost, call.rate, answered.attempts, answered.ms)

    async def _failed(self, ticket: Ticket, caller: Caller, error: BaseException, said: int = 0) -> None:
        """Count what a call cost that gave no answer: nothing, or what had been said until then."""
        attempts = error.attempts if isinstance(error, ChainFailed) else ()
        outcome, usage, model = CallOutcome.FAILED, Usage(), ticket.links[0].model
        backend: str | None = None
        if isinstance(error, CutShort):
            outcome, usage, model, backend = CallOutcome.CUT_SHORT, error.usage, error.model, error.backend
        elif said:  # its reader left: the vendor bills the prompt and what was said, and we have no count but our own
            outcome, usage = CallOutcome.CANCELLED, Usage(tokens_in=ticket.prompt, tokens_out=said // 3 + 1, is_estimated=True)
        elif isinstance(error, asyncio.CancelledError | GeneratorExit):
            outcome = CallOutcome.CANCELLED
        rate = ticket.rates.get(model)
        call = Call(
            **self._who(ticket, caller),
            model=model,
            outcome=outcome,
            latency_ms=0,
            backend=backend,
            attempts=attempts,
            usage=usage,
            micro_usd=rate.cost(usage) if rate else 0,
            rate=rate.to_dict() if rate else {},
        )
        await asyncio.shield(self._record(ticket.hold, call))
        self._alert(attempts)

    async def _record(self, hold: Hold, call: Call) -> None:
        try:
            async with self.transactions.begin() as tx:
                await self.calls.add(tx, call)
        except StoreUnavailable:
            # The answer is worth more than its row. The counters still know it, until they are lost; a person should know that.
            self.alerts.alert("call_not_recorded", call_id=str(call.id), micro_usd=call.micro_usd)
        self.meter.count(call)
        await self.budgets.settle(hold, tokens=call.tokens, micro_usd=call.micro_usd)
        await self.spend.add(call.micro_usd, day=hold.day, call_id=hold.id)

    def _who(self, ticket: Ticket, caller: Caller) -> dict[str, Any]:
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

    def _alert(self, attempts: Sequence[Attempt]) -> None:
        """A wrong key or an unpaid bill does not mend itself."""
        for attempt in attempts:
            if attempt.outcome == Unauthorized.__name__:
                self.alerts.alert("backend_refused_us", backend=attempt.backend, model=attempt.model, status=attempt.status)


LEASE_BEYOND_S = 30.0
"""How long a reservation outlives the deadline: waiting for a slot, and writing down what was used."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """A call that was let in."""

    hold: Hold
    links: Sequence[Link]
    rates: Mapping[str, Rate]
    prompt: int
    """The most tokens that its prompt may have."""
