"""The models with place, price, health and speed, from the settings and the stores: for `hermes models`, the API and the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from redis.asyncio import Redis

from hermes.app.catalogue import backends_of, catalogue_from, prices_from, reason_missing
from hermes.app.clock import SystemClock
from hermes.config import Settings
from hermes.console.models import ModelState, ModelStatus, places_of, usd_per_million
from hermes.gateway.catalogue import ModelCatalogue
from hermes.gateway.model_breaker import WELL, ModelBreaker
from hermes.gateway.model_plans import ModelChains
from hermes.ports.models import WHOLE_BACKEND, ModelAddress
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.model_loads import read_failures, read_loads
from hermes.stores.postgres.model_plans import PostgresModelPlans
from hermes.stores.redis.model_breakers import RedisModelBreakers


async def list_models(settings: Settings, transactions: Transactions, redis: Redis) -> list[ModelStatus]:
    """Return the models that a chain uses or the settings name, those of chains first."""
    catalogue, prices, now = catalogue_from(settings), prices_from(settings), datetime.now(UTC)
    async with transactions.begin() as tx:
        plans = await PostgresModelPlans().newest(tx)
        loads, failures = await read_loads(tx, now.date()), await read_failures(tx, now.date())
    chains = chains_in_use(catalogue, plans[0].chains if plans else {}, plans[0].base_chains if plans else {})
    places, backends = places_of(chains), backends_of(settings)
    names = [name for name in dict.fromkeys([*places, *settings.models]) if name in catalogue.models]
    addresses = [catalogue.models[name].address for name in names]
    whole = [ModelAddress(backend, WHOLE_BACKEND) for backend in dict.fromkeys(address.backend for address in addresses)]
    states = await RedisModelBreakers(redis, SystemClock()).read([*addresses, *whole])
    found = []
    for name in names:
        spec = catalogue.models[name]
        price, load = prices.price(spec.address, now.date()), loads.get(spec.address)
        is_set_up = spec.backend in backends and not reason_missing(spec.backend, backends)
        state, breaker = state_of(states, spec.address, now.timestamp())
        found.append(
            ModelStatus(
                name=name,
                backend=spec.backend,
                model=spec.id,
                places=places.get(name, ()),
                usd_in=usd_per_million(price.rate.tokens_in if price else None),
                usd_out=usd_per_million(price.rate.tokens_out if price else None),
                state=state if is_set_up else ModelState.NOT_SET_UP,
                since=time_or_none(breaker.since),
                next_probe_at=time_or_none(breaker.open_until),
                error=breaker.error,
                answers_today=load.answers if load else 0,
                failures_today=failures.get(name, 0),
                p50_ms=round(load.p50_ms) if load and load.p50_ms is not None else None,
                tokens_per_s=round(load.tokens_per_s, 1) if load and load.tokens_per_s is not None else None,
                recent_answers=load.recent_answers if load else 0,
            )
        )
    return found


def chains_in_use(catalogue: ModelCatalogue, plan: ModelChains, base: ModelChains) -> ModelChains:
    """The chains of the tiers, with those of a plan on trial after them."""
    settings = {tier: known.chain for tier, known in catalogue.tiers.items()}
    return {tier: tuple(dict.fromkeys([*plan.get(tier, chain), *base.get(tier, ())])) for tier, chain in settings.items()}


def state_of(states: Mapping[ModelAddress, ModelBreaker], model: ModelAddress, now: float) -> tuple[ModelState, ModelBreaker]:
    """The state of a model by its own breaker or that of its backend, whichever keeps it from being asked."""
    both: Sequence[ModelBreaker] = [states.get(ModelAddress(model.backend, WHOLE_BACKEND), WELL), states.get(model, WELL)]
    breaker = next((breaker for breaker in both if breaker.open_until is not None), both[1])
    if breaker == WELL:
        return ModelState.OK, breaker
    if breaker.open_until is None:
        return ModelState.FAILING, breaker
    return (ModelState.OPEN if now < breaker.open_until else ModelState.PROBING), breaker


def time_or_none(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
