"""The plan of the models: chains that an operator set in place of those of the settings, for all traffic, without a restart.

    settings' chains ── set, swap ──▶ plan 1, 10 % ── promote ──▶ plan 2, 100 % ── rollback ──▶ plan 3 = the chains before
                                       │ the other 90 % of the chats
                                       └▶ the plan before, or the settings

Plans are only added, so the history is whole, and every call names the plan that chose its models. The newest plan holds. Which chats are
in its share depends on the chat and the chains alone: a chat stays where it is, also while the share grows. Every process reads the newest
plan once a second; a call that has begun ends on the chain on which it began.

A plan names models of the settings. It changes neither budgets nor prices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import blake2b

import structlog

from hermes.gateway.catalogue import REPLAY_TIER, ModelCatalogue
from hermes.gateway.prices import Prices
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import PortError, StoreUnavailable, require_known
from hermes.ports.models import ModelPlan, ModelPlans
from hermes.ports.runtime import Clock, Transactions
from hermes.tasks import stop_if_cancelled

log = structlog.get_logger()

MAX_CHAIN = 20
ALL_CHATS = 100
ModelChains = Mapping[str, tuple[str, ...]]
"""By tier, the names of its models in the order in which they are tried."""
NameChat = Callable[[], str]
"""Returns what stays the same in a chat. Called only if a plan divides the chats: the name of a chat is made of its first messages."""
CheckModel = Callable[[str], Awaitable[Sequence[BackendFinding]]]
"""Checks the health of a model's backend, by the model's name."""


class PlanRefused(PortError):
    """The plan was refused, and nothing changed. The message says why."""


@dataclass(frozen=True, slots=True)
class ChosenChains:
    """The chains for one call, and the plan that chose them; without a plan, those of the settings."""

    plan: int | None = None
    chains: ModelChains = field(default_factory=dict)


SETTINGS_CHAINS = ChosenChains()


class ModelPlanner:
    """The plan as this process read it last. To choose is one lookup."""

    def __init__(
        self,
        catalogue: ModelCatalogue,
        backends: Mapping[str, object],
        prices: Prices,
        *,
        store: ModelPlans,
        transactions: Transactions,
        clock: Clock,
    ) -> None:
        self._catalogue, self._backends, self._prices = catalogue, backends, prices
        self._store, self._transactions, self._clock = store, transactions, clock
        self.newest: ModelPlan | None = None
        """None: no plan was ever set."""

    def choose(self, name_chat: NameChat) -> ChosenChains:
        """Return the chains for a chat."""
        plan = self.newest
        if plan is None:
            return SETTINGS_CHAINS
        if plan.percent == ALL_CHATS or place_of(name_chat(), plan.chains) < plan.percent:
            return ChosenChains(plan.version, plan.chains)
        return ChosenChains(plan.base, plan.base_chains)

    def chains(self) -> ModelChains:
        """The chains of all tiers, as most chats use them."""
        return {tier: self._stable.get(tier, known.chain) for tier, known in self._catalogue.tiers.items()}

    def used(self) -> Sequence[str]:
        """The models that any chat may use, each once."""
        plan = self.newest
        canary = () if plan is None else plan.chains.values()
        return list(dict.fromkeys(name for chain in (*self.chains().values(), *canary) for name in chain if name in self._catalogue.models))

    async def refresh(self) -> None:
        """Read the newest plan. While the store is unreachable, the plan that was read last stays in use."""
        try:
            async with asyncio.timeout(5.0), self._transactions.once() as tx:
                found = await self._store.newest(tx)
        except (StoreUnavailable, TimeoutError):
            return
        self._use(found[0] if found else None)

    async def follow(self, *, poll_s: float = 1.0) -> None:
        """Read the newest plan again and again, until cancelled."""
        while True:
            await self.refresh()
            stop_if_cancelled()
            await asyncio.sleep(poll_s)

    async def history(self, *, limit: int = 50) -> Sequence[ModelPlan]:
        """The plans, the newest first."""
        async with self._transactions.once() as tx:
            return await self._store.newest(tx, limit=limit)

    # --- changes

    async def set_chain(self, tier: str, chain: Sequence[str], *, percent: int, by: str, reason: str, check: CheckModel) -> ModelPlan:
        """Give a tier another chain; an empty one for the chain of the settings. Raises NotFound and PlanRefused."""
        await self.refresh()
        require_known(tier, self._tiers, "tier")
        chains = {name: models for name, models in self._stable.items() if name != tier}
        return await self._add({**chains, **({tier: tuple(chain)} if chain else {})}, percent, by, reason, check)

    async def swap(self, old: str, new: str, *, percent: int, by: str, reason: str, check: CheckModel) -> ModelPlan:
        """Put a model into the place of another one in every chain. Raises NotFound and PlanRefused."""
        await self.refresh()
        for name in (old, new):
            require_known(name, self._catalogue.models, "model")
        before = self.chains()
        changed = {tier: exchange(before[tier], old, new) for tier in self._tiers if old in before[tier]}
        if not changed:
            raise PlanRefused(f"no chain has the model {old}")
        return await self._add({**self._stable, **changed}, percent, by, reason, check)

    async def set_share(self, percent: int, *, by: str, reason: str) -> ModelPlan:
        """Give the newest plan another share of the chats; 100 ends its trial. Raises PlanRefused."""
        await self.refresh()
        plan = self.newest
        if plan is None or plan.percent == ALL_CHATS:
            raise PlanRefused("no plan is on trial")
        if plan.percent == check_percent(percent):
            raise PlanRefused(f"plan {plan.version} has {percent} % of the chats already")
        return await self._store_plan(plan.chains, percent, plan.base, plan.base_chains, by=by, reason=reason)

    async def roll_back(self, *, by: str, reason: str) -> ModelPlan:
        """End a trial, or else return to the chains before the newest plan. Raises PlanRefused."""
        await self.refresh()
        plan = self.newest
        if plan is None:
            raise PlanRefused("there is no plan: the chains are those of the settings")
        base = plan.base if plan.percent < ALL_CHATS else plan.version
        base_chains = plan.base_chains if plan.percent < ALL_CHATS else plan.chains
        return await self._store_plan(plan.base_chains, ALL_CHATS, base, base_chains, by=by, reason=reason)

    @property
    def _tiers(self) -> Sequence[str]:
        return [tier for tier in self._catalogue.tiers if tier != REPLAY_TIER]

    @property
    def _stable(self) -> ModelChains:
        """The chains that most chats use: not those of a plan on trial."""
        plan = self.newest
        return {} if plan is None else plan.chains if plan.percent == ALL_CHATS else plan.base_chains

    async def _add(self, chains: ModelChains, percent: int, by: str, reason: str, check: CheckModel) -> ModelPlan:
        check_percent(percent)
        known = {tier: tier_.chain for tier, tier_ in self._catalogue.tiers.items()}
        chains = {tier: chain for tier, chain in chains.items() if chain != known.get(tier)}
        before, today = self.chains(), self._clock.now().date()
        if {**known, **chains} == before:
            raise PlanRefused("the chains are like that already")
        for tier, chain in chains.items():
            self._check_chain(tier, chain, today)
        fresh = dict.fromkeys(name for tier, chain in {**known, **chains}.items() for name in chain if name not in before[tier])
        for name, findings in zip(fresh, await asyncio.gather(*map(check, fresh)), strict=True):
            fault = next((finding.message for finding in findings if finding.level is FindingLevel.ERROR), None)
            if fault is not None:
                raise PlanRefused(f"model {name}: {fault}")
        plan = self.newest
        base = plan.base if plan is not None and plan.percent < ALL_CHATS else plan.version if plan is not None else None
        return await self._store_plan(chains, percent, base, self._stable, by=by, reason=reason)

    def _check_chain(self, tier: str, chain: Sequence[str], today: date) -> None:
        if len(chain) > MAX_CHAIN or len({*chain}) != len(chain):
            raise PlanRefused(f"tier {tier}: a chain has at most {MAX_CHAIN} models, each once")
        for name in chain:
            model = self._catalogue.models[require_known(name, self._catalogue.models, "model")]
            if model.backend not in self._backends:
                raise PlanRefused(f"model {name}: its backend {model.backend} is not set up here")
            if self._prices.price(model.address, today) is None:
                raise PlanRefused(f"model {name}: there is no price for {model.id}; add [[models.{name}.prices]]")

    async def _store_plan(
        self, chains: ModelChains, percent: int, base: int | None, base_chains: ModelChains, *, by: str, reason: str
    ) -> ModelPlan:
        version = 1 if self.newest is None else self.newest.version + 1
        plan = ModelPlan(version, chains, percent, base, base_chains, by, reason, self._clock.now())
        async with self._transactions.once() as tx:
            is_stored = await self._store.add(tx, plan)
        if not is_stored:
            raise PlanRefused(f"another plan {version} came first, and stands")
        self._use(plan)
        return plan

    def _use(self, plan: ModelPlan | None) -> None:
        known = self.newest
        if plan is None or (known is not None and known.version >= plan.version):
            return  # read before this process changed it
        self.newest = plan
        log.info("model_plan_used", version=plan.version, percent=plan.percent)


def exchange(chain: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(new if name == old else name for name in chain))


def place_of(chat: str, chains: ModelChains) -> int:
    """Where a chat stands from 0 to 99: in the share of a plan if that is below its percent. Another one for other chains, so that not the
    same chats try every plan."""
    plan = ";".join(f"{tier}={','.join(chain)}" for tier, chain in sorted(chains.items()))
    digest = blake2b(f"{plan}\n{chat}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) % ALL_CHATS


def check_percent(percent: int) -> int:
    if not 1 <= percent <= ALL_CHATS:
        raise PlanRefused(f"a share is 1 to 100 %, not {percent}")
    return percent
