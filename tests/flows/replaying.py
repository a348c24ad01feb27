"""A running Hermes whose models are fake vendors, with turns to be replayed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from hermes.config import BackendSettings, CreditSettings, NamedTables, Secret, TierSettings, WorkSettings
from hermes.console.replays import ReplayConsole
from hermes.ports.operators import Actor, Face, Operator, Role
from hermes.ports.replays import Replay
from hermes.stores.postgres.database import connection_of
from tests.fakes.vendors import ToolCall, Vendors, vendors
from tests.flows.service import Service, running, stopped

HAIKU, SONNET = "claude-haiku-4-5-20251001", "claude-sonnet-4-6"
SEARCH = ToolCall("venue_search", {"query": "cafe", "area": "Ubud"})
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Shop:
    """A service with its vendors, and the key of a customer."""

    service: Service
    vendors: Vendors
    key: Mapping[str, str]

    @property
    def console(self) -> ReplayConsole:
        return self.service.hermes.replays

    async def say(self, text: str, *, user: str = "ada") -> UUID:
        """Let a user write; return the turn, after its answer."""
        reply = await self.service.post("/v1/messages", {"text": text, "user": user}, self.key)
        assert reply.status == 200, reply.body
        return UUID(reply.body["turn_id"])

    async def ask(self, query: str) -> list[Any]:
        async with self.service.database.begin() as tx:
            return await (await connection_of(tx).execute(query.encode())).fetchall()

    async def until(self, query: str, rows: list[Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while await self.ask(query) != rows:  # noqa: ASYNC110  # the rows of another task ring no bell
                await asyncio.sleep(0.02)

    async def ended(self, replay_id: UUID) -> Replay:
        """The replay, when it has ended."""
        await self.until(f"select count(*) from replays where id = '{replay_id}' and state in ('waiting', 'running')", [(0,)])  # noqa: S608
        replay, _ = await self.console.get(actor(), replay_id)
        return replay


@asynccontextmanager
async def replaying(database_url: str, redis_url: str, *, more: Mapping[str, Any] | None = None, **web: Any) -> AsyncIterator[Shop]:
    async with vendors() as v:
        v.anthropic.models[:] = [HAIKU, SONNET]
        chosen = {
            "backends": NamedTables({"anthropic": BackendSettings(base_url=v.anthropic.url, api_key=Secret(v.anthropic.key))}),
            "tiers": NamedTables({"free": TierSettings(chain=("claude-haiku",), day_tokens=10_000_000)}),
            "credits": CreditSettings(signup_grant=1_000),
            "work": WorkSettings(drain_s=0.1, sweep_s=0.1, heartbeat_s=0.2, stalled_after_s=1.0),
            **(more or {}),
        }
        async with running(database_url, redis_url, echoes=False, more=chosen, answer_timeout_s=60.0, **web) as service:
            yield Shop(service, v, await service.key())


def actor(role: Role = Role.OWNER, accounts: frozenset[str] | None = None) -> Actor:
    operator = Operator(id=uuid4(), name=f"olga-{role}", role=role, accounts=accounts, created_at=datetime.now(UTC), created_by="test")
    return Actor(operator, Face.CLI)


@asynccontextmanager
async def working(shop: Shop) -> AsyncIterator[None]:
    """A worker in this process, until the block ends."""
    worker = asyncio.create_task(shop.service.hermes.run_worker())
    try:
        yield
    finally:
        await stopped(worker)


@contextmanager
def worker_process(shop: Shop) -> "Iterator[subprocess.Popen[bytes]]":
    """A worker in a process of its own, which may be killed."""
    settings = shop.service.hermes.settings
    assert settings.database_url is not None
    assert settings.redis_url is not None
    environ = {
        "HERMES_HOME": str(settings.home),
        "HERMES_DATABASE_URL": settings.database_url.reveal(),
        "HERMES_REDIS_URL": settings.redis_url.reveal(),
        "HERMES_BACKENDS_ANTHROPIC_BASE_URL": shop.vendors.anthropic.url,
        "HERMES_BACKENDS_ANTHROPIC_API_KEY": shop.vendors.anthropic.key,
        "HERMES_MEMORY_ASKS_MODELS": "false",
        "HERMES_WORK_SWEEP_S": "0.1",
        "HERMES_WORK_HEARTBEAT_S": "0.2",
        "HERMES_WORK_STALLED_AFTER_S": "1",
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
    command = [sys.executable, "-m", "hermes", "worker"]
    with subprocess.Popen(command, env={**kept, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
