"""A gateway on real stores and real HTTP, with everything around it, for the tests of the gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from hermes.backends import AnthropicBackend, HttpClient, OllamaBackend
from hermes.gateway.agent_caps import AgentCaps
from hermes.gateway.catalogue import DEFAULT_CATALOGUE
from hermes.gateway.chain import BackendPatience
from hermes.gateway.gateway import Gateway
from hermes.gateway.prices import LIST_PRICES, Prices
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch
from hermes.ops.metrics import Metrics
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Caller, CallSource
from hermes.ports.users import User, UserState
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.postgres.model_calls import PostgresModelCalls
from hermes.stores.postgres.users import PostgresUsers
from hermes.stores.redis.agent_spend import RedisAgentSpend
from hermes.stores.redis.budgets import RedisBudgets
from hermes.stores.redis.caches import RedisAnswerCache
from hermes.stores.redis.global_spend import RedisGlobalSpend
from hermes.stores.redis.model_breakers import RedisModelBreakers
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform
from tests.fakes.vendors import Vendors, vendors

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
HELLO = ModelRequest(messages=({"role": "user", "content": "hello"},), max_tokens=500)


class Noon:
    def now(self) -> datetime:
        return NOON


class Bell:
    def __init__(self) -> None:
        self.rung: list[str] = []
        self.facts: list[dict[str, object]] = []

    def alert(self, event: str, **facts: object) -> None:
        self.rung.append(event)
        self.facts.append(facts)

    def end(self, event: str, **facts: object) -> None:
        """No test here asks."""


@dataclass
class House:
    """A gateway with everything around it."""

    gateway: Gateway
    vendors: Vendors
    database: Database
    budgets: RedisBudgets
    spend: RedisGlobalSpend
    bell: Bell
    user: User
    metrics: Metrics
    caps: dict[str, int]

    def caller(self, tier: str = "venue-growth", *, may_use_cache: bool = False, **more: Any) -> Caller:
        return Caller(user_id=self.user.id, account="shop", tier=tier, source=CallSource.ROUTER, may_use_cache=may_use_cache, **more)

    async def ask(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, after everything is written down."""
        await self.gateway.wait_settled()
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()

    async def rows(self) -> list[tuple[object, ...]]:
        query = "select outcome, backend, model, tokens_in, tokens_out, micro_usd, is_estimated from calls order by created_at"
        async with self.database.begin() as tx:
            return await (await connection_of(tx).execute(query)).fetchall()

    async def day(self) -> tuple[int, int, int]:
        """What the user has used today: tokens, tokens held, micro-dollars."""
        await self.gateway.wait_settled()
        used = await self.budgets.used(self.user.id)
        return used.day_tokens, used.day_held, used.day_micro_usd


@asynccontextmanager
async def open_house(database: Database, redis_url: str) -> AsyncIterator[House]:
    """A gateway of one process, at noon. The caps of agents are those of `House.caps`."""
    bell, calls, clock = Bell(), PostgresModelCalls(), Noon()
    keyring = Keyring(MasterKeys.parse([new_master_key()]))
    async with database.begin() as tx:
        user, _ = await PostgresUsers(keyring).find_or_create(tx, "shop", Platform.REST, "alice", state=UserState.ACTIVE)
    async with Redis.from_url(redis_url) as redis, vendors() as v:
        client = HttpClient()
        budgets = RedisBudgets(redis, database, calls, alerts=bell, clock=clock)
        spend = RedisGlobalSpend(redis, database, calls, records=PostgresKillSwitchRecords(), alerts=bell, clock=clock)
        v.anthropic.models[:] = ["claude-haiku-4-5-20251001", "claude-sonnet-4-6"]
        v.ollama.models[:] = ["llama3.2"]
        backends = {
            "anthropic": AnthropicBackend(client, v.anthropic.key, v.anthropic.url, models=DEFAULT_CATALOGUE.capabilities_of("anthropic")),
            "ollama": OllamaBackend(client, v.ollama.url, models=DEFAULT_CATALOGUE.capabilities_of("ollama")),
        }
        caps: dict[str, int] = {}
        agent_spend = RedisAgentSpend(redis, database, calls, alerts=bell, clock=clock)
        metrics, slots = Metrics(), Slots(4, wait_s=0.5)
        metrics.watch_slots(lambda: slots.used, lambda: slots.waiting)
        gateway = Gateway(
            catalogue=DEFAULT_CATALOGUE,
            prices=Prices(LIST_PRICES),
            backends=backends,
            slots=slots,
            budgets=budgets,
            spend=spend,
            cache=RedisAnswerCache(redis, database, keyring),
            calls=calls,
            transactions=database,
            alerts=bell,
            meter=metrics,
            clock=clock,
            deadline_s=5.0,
            cap_micro_usd=1_000_000,
            agent_caps=AgentCaps(agent_spend, lambda: caps),
            watch=ModelWatch(RedisModelBreakers(redis, clock), bell),
            patience={"anthropic": BackendPatience(1.0, is_same_streamed=True), "ollama": BackendPatience(2.0, is_same_streamed=True)},
        )
        try:
            yield House(gateway, v, database, budgets, spend, bell, user, metrics, caps)
        finally:
            await gateway.wait_settled()
            await budgets.aclose()
            await client.aclose()
