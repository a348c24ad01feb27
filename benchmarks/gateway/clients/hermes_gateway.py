"""Hermes: the gateway, put together as the composition root does, on the stores that the aim names.

    stores = "all"      budgets and spend in Valkey, the call's row in PostgreSQL: what every call of the product does
    stores = "redis"    budgets and spend in Valkey; no row is written
    stores = "none"     nothing is stored anywhere: admission, slots, the chain, prices and metrics only

What is not stored goes to parts that do nothing and say so in their names. The cache is off, as it is for chat completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.asking import MAX_TOKENS, MODEL, messages
from gateway.calls import Aim, Client
from hermes.backends import PLAIN, HttpClient, OpenAICompatibleBackend
from hermes.gateway.catalogue import ModelCatalogue, ModelSpec, Tier
from hermes.gateway.chain import ATTEMPT_SHARE
from hermes.gateway.gateway import Gateway
from hermes.gateway.prices import Price, Prices, TokenRate
from hermes.gateway.slots import Slots
from hermes.ops.metrics import Metrics
from hermes.ports.backends import ModelRequest, TextDelta
from hermes.ports.credits import BudgetHold, BudgetUsage
from hermes.ports.key_limits import KeyClaim
from hermes.ports.models import Caller, CallSource
from hermes.ports.users import UserState
from hermes.stores.postgres.database import open_database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.migrate import migrate
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.counters import ScriptBatch
from hermes.stores.redis.global_spend import RedisGlobalSpend
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform

TIER = "bench"
DAY_TOKENS = 1_000_000_000
PRICES = Prices(Price(f"{MODEL}-{name}", date(2026, 1, 1), TokenRate.usd(1.0, 5.0)) for name in ("primary", "second"))
CATALOGUE = ModelCatalogue(
    tiers={TIER: Tier(("primary", "second"), DAY_TOKENS)},
    models={name: ModelSpec(name, f"{MODEL}-{name}", MAX_TOKENS) for name in ("primary", "second")},
)


class HermesGateway:
    """The port Client."""

    def __init__(self, gateway: Gateway, caller: Caller) -> None:
        self._gateway, self._caller = gateway, caller

    async def ask(self, number: int) -> str:
        answer = await self._gateway.complete(ModelRequest(messages=messages(number), max_tokens=MAX_TOKENS), self._caller)
        return str(answer.completion.message["content"])

    async def stream(self, number: int) -> AsyncIterator[str]:
        async for piece in self._gateway.stream(ModelRequest(messages=messages(number), max_tokens=MAX_TOKENS), self._caller):
            if isinstance(piece, TextDelta):
                yield piece.text


@asynccontextmanager
async def opened(aim: Aim) -> AsyncIterator[Client]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))  # errors only
    async with AsyncExitStack() as stack:
        parts, user_id = await stored(stack, aim)
        client = HttpClient()
        stack.push_async_callback(client.aclose)
        gateway = Gateway(
            catalogue=CATALOGUE,
            prices=PRICES,
            backends={
                name: OpenAICompatibleBackend(client, url, "none", name, PLAIN)
                for name, url in (("primary", aim.primary_url), ("second", aim.second_url))
            },
            slots=Slots(45),  # 30 of them for one backend
            cache=NoCache(),
            alerts=Silent(),
            meter=Metrics(),
            clock=Wall(),
            cap_micro_usd=10**15,
            **parts,
            # The peers' time-out is for one attempt, ours is a deadline for the whole chain: such that the first attempt has as long.
            **({} if aim.timeout_s is None else {"deadline_s": aim.timeout_s / ATTEMPT_SHARE}),
        )
        stack.push_async_callback(gateway.wait_settled)
        yield HermesGateway(
            gateway, Caller(user_id=user_id, account="bench", tier=TIER, source=CallSource.COMPLETIONS, may_use_cache=False)
        )


async def stored(stack: AsyncExitStack, aim: Aim) -> tuple[dict[str, Any], UUID]:
    """The parts that remember something, and the user whom they know."""
    unstored = {"calls": UnrecordedCalls(), "transactions": NoTransactions(), "budgets": UncountedBudgets(), "spend": UncountedSpend()}
    if aim.options["stores"] == "none":
        return unstored, uuid4()
    await migrate(aim.options["database_url"])
    database = await stack.enter_async_context(open_database(aim.options["database_url"]))
    redis = Redis.from_url(aim.options["redis_url"], socket_timeout=2.0, socket_connect_timeout=2.0, retry=Retry(NoBackoff(), 0))
    stack.push_async_callback(redis.aclose)
    calls, alerts, clock = PostgresModelCalls(), Silent(), Wall()
    async with database.begin() as tx:
        people = PostgresUsers(Keyring(MasterKeys.parse([new_master_key()])))
        user, _ = await people.find_or_create(tx, "bench", Platform.REST, str(uuid4()), state=UserState.ACTIVE)
    batch = ScriptBatch(redis)
    budgets = RedisBudgets(redis, database, calls, alerts=alerts, clock=clock, batch=batch)
    stack.push_async_callback(budgets.aclose)
    spend = RedisGlobalSpend(redis, database, calls, records=PostgresKillSwitchRecords(), alerts=alerts, clock=clock, batch=batch)
    counted = {"budgets": budgets, "spend": spend}
    recorded = {"calls": calls, "transactions": database} if aim.options["stores"] == "all" else {}
    return {**unstored, **counted, **recorded}, user.id


class Wall:
    """The time of day."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class Silent:
    """Alerts for nobody."""

    def alert(self, event: str, **facts: object) -> None:
        pass


class NoCache:
    """A cache in which nothing is ever found."""

    async def get(self, user_id: UUID, key: str) -> bytes | None:  # noqa: ARG002  # the port's signature
        return None

    async def put(self, user_id: UUID, key: str, value: bytes) -> None:
        pass


class UncountedBudgets:
    """Everybody may spend everything, and nobody counts."""

    async def reserve(
        self, user_id: UUID, *, day_limit: int, month_limit: int, tokens: int, lease_s: float, key: KeyClaim | None = None
    ) -> BudgetHold:
        now = datetime.now(UTC)
        return BudgetHold(
            id=uuid4(),
            user_id=user_id,
            day=now.date(),
            tokens=tokens,
            day_limit=day_limit,
            month_limit=month_limit,
            reserved_at=now,
            expires_at=now + timedelta(seconds=lease_s),
            key=key,
        )

    async def settle(self, hold: BudgetHold, *, tokens: int, micro_usd: int) -> None:
        pass

    async def release(self, hold: BudgetHold) -> None:
        pass

    async def used(self, user_id: UUID) -> BudgetUsage:
        raise NotImplementedError


class UncountedSpend:
    """No cap, no kill switch, no sum."""

    async def admit(self, cap_micro_usd: int | None) -> None:
        pass

    async def add(self, micro_usd: int, *, day: date | None = None, call_id: UUID | None = None) -> None:
        pass


class UnrecordedCalls:
    """Calls of which no row is written."""

    async def add(self, tx: object, call: object) -> bool:  # noqa: ARG002  # the port's signature
        return True


class NoTransactions:
    """Transactions on nothing."""

    def begin(self) -> Any:
        return nullcontext()

    def once(self) -> Any:
        return nullcontext()
