"""The agents that answer on accounts, on PostgreSQL: their adapters, their spend caps, and the history of their swaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, AgentChanged, FleetEvent, FleetEventKind, SwapReason, Tone
from hermes.stores.postgres.database import execute, fetch_row, fetch_rows, fetch_value
from hermes.stores.postgres.queries import load_queries

AGENTS = load_queries("agents")


class AgentDaySpend(NamedTuple):
    """What the calls for an agent cost."""

    agent: str
    micro_usd: int


class PostgresAgents:
    """The port Agents. A transaction that changes an agent's adapter holds the agent's row until its end."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        columns = {name: getattr(agent, name) for name in ("name", "tone", "role", "tier", "adapter", "cwd", "daily_micro_usd")}
        agent_id: UUID | None = await fetch_value(tx, AGENTS["add"], columns)
        if agent_id is not None:
            for account in agent.accounts:
                await execute(tx, AGENTS["answer_on"], {"account": account, "agent_id": agent_id})
        return await self.get(tx, agent.name), agent_id is not None

    async def get(self, tx: Transaction, name: str) -> Agent:
        agent = await fetch_row(tx, read_agent, AGENTS["get"], {"name": name})
        if agent is None:
            raise NotFound(f"there is no agent {name}")
        return agent

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        return await fetch_rows(tx, read_agent, AGENTS["list"])

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        before = await self._lock(tx, name)
        if await execute(tx, AGENTS["is_noted"], {"id": because.id}):  # an earlier call committed, but its caller never got the answer
            return replace(await self.get(tx, name), adapter=adapter, cwd=cwd, epoch=expected_epoch + 1)
        if before.epoch != expected_epoch:
            raise AgentChanged
        await execute(tx, AGENTS["point"], {"agent_id": before.id, "adapter": adapter, "cwd": cwd})
        event = event_columns(because) | {"agent_id": before.id, "old": before.adapter, "new": adapter, "epoch": before.epoch + 1}
        await execute(tx, AGENTS["note"], event)
        return await self.get(tx, name)

    async def set_cap(self, tx: Transaction, name: str, daily_micro_usd: int | None) -> Agent:
        if daily_micro_usd is not None and daily_micro_usd < 0:
            raise ValueError(f"a cap is not below zero, got {daily_micro_usd}")
        await execute(tx, AGENTS["set_cap"], {"name": name, "daily_micro_usd": daily_micro_usd})
        return await self.get(tx, name)

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        agent = await self._lock(tx, name)
        event = event_columns(because) | {"agent_id": agent.id, "old": agent.adapter, "new": adapter, "epoch": agent.epoch}
        await execute(tx, AGENTS["note"], event)

    async def spend(self, tx: Transaction, day: date) -> Mapping[str, int]:
        return dict(await fetch_rows(tx, AgentDaySpend, AGENTS["spend"], {"day": day}))

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        query = AGENTS["events" if name is None else "events_of"]
        return await fetch_rows(tx, read_event, query, {"name": name, "limit": limit})

    async def _lock(self, tx: Transaction, name: str) -> LockedAgent:
        """Lock an agent's row, so that the history has its events in the order in which they happened."""
        agent = await fetch_row(tx, LockedAgent, AGENTS["lock"], {"name": name})
        if agent is None:
            raise NotFound(f"there is no agent {name}")
        return agent


class LockedAgent(NamedTuple):
    """An agent's row before its pointer moves."""

    id: UUID
    adapter: str | None
    epoch: int


def read_agent(*, tone: str, accounts: Sequence[str], **columns: Any) -> Agent:
    return Agent(tone=Tone(tone), accounts=tuple(accounts), **columns)


def event_columns(because: SwapReason) -> dict[str, Any]:
    checks = Jsonb([{name: make_storable(value) for name, value in asdict(check).items()} for check in because.checks])
    return {
        "id": because.id,
        "kind": because.kind,
        "reason": make_storable(because.reason),
        "by": make_storable(because.by),
        "checks": checks,
    }


def make_storable(text: str) -> str:
    """The text without the characters that PostgreSQL refuses: a reason may hold any text of a vendor."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def read_event(*, kind: str, checks: Sequence[Mapping[str, Any]], **columns: Any) -> FleetEvent:
    found = tuple(BackendFinding(**{**check, "level": FindingLevel(check["level"])}) for check in checks)
    return FleetEvent(kind=FleetEventKind(kind), checks=found, **columns)
