"""Agents, their adapters and the fleet's history on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from psycopg.types.json import Jsonb

from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import NotFound
from hermes.ports.runtime import Transaction
from hermes.ports.users import Agent, AgentChanged, FleetEvent, FleetEventKind, SwapReason, Tone
from hermes.stores.postgres.database import connection_of
from hermes.stores.postgres.queries import load_queries

SQL = load_queries("agents")


class PostgresAgents:
    """The port Agents. A transaction that changes an agent's adapter holds the agent's row until its end."""

    async def add(self, tx: Transaction, agent: Agent) -> tuple[Agent, bool]:
        made = await fetch_rows(tx, "add", {name: getattr(agent, name) for name in ("name", "tone", "role", "tier", "adapter", "cwd")})
        for [agent_id] in made:
            for account in agent.accounts:
                await connection_of(tx).execute(SQL["answer_on"], {"account": account, "agent_id": agent_id})
        return await self.get(tx, agent.name), bool(made)

    async def get(self, tx: Transaction, name: str) -> Agent:
        found = await fetch_rows(tx, "get", {"name": name})
        if not found:
            raise NotFound(f"there is no agent {name}")
        return as_agent(found[0])

    async def list(self, tx: Transaction) -> Sequence[Agent]:
        return [as_agent(row) for row in await fetch_rows(tx, "list", {})]

    async def point(
        self, tx: Transaction, name: str, *, adapter: str | None, cwd: str | None, expected_epoch: int, because: SwapReason
    ) -> Agent:
        agent_id, old, epoch = await self._lock(tx, name)
        if await fetch_rows(tx, "is_noted", {"id": because.id}):  # an earlier call committed, but its caller never got the answer
            return replace(await self.get(tx, name), adapter=adapter, cwd=cwd, epoch=expected_epoch + 1)
        if epoch != expected_epoch:
            raise AgentChanged
        await connection_of(tx).execute(SQL["point"], {"agent_id": agent_id, "adapter": adapter, "cwd": cwd})
        event = as_row(because) | {"agent_id": agent_id, "old": old, "new": adapter, "epoch": epoch + 1}
        await connection_of(tx).execute(SQL["note"], event)
        return await self.get(tx, name)

    async def note(self, tx: Transaction, name: str, *, adapter: str | None, because: SwapReason) -> None:
        agent_id, old, epoch = await self._lock(tx, name)
        await connection_of(tx).execute(SQL["note"], as_row(because) | {"agent_id": agent_id, "old": old, "new": adapter, "epoch": epoch})

    async def events(self, tx: Transaction, name: str | None = None, *, limit: int = 50) -> Sequence[FleetEvent]:
        found = await fetch_rows(tx, "events" if name is None else "events_of", {"name": name, "limit": limit})
        return [as_event(row) for row in found]

    async def _lock(self, tx: Transaction, name: str) -> tuple[Any, str | None, int]:
        """Lock an agent's row; return its id, adapter and epoch. So the history has its events in the order in which they happened."""
        found = await fetch_rows(tx, "lock", {"name": name})
        if not found:
            raise NotFound(f"there is no agent {name}")
        agent_id, adapter, epoch = found[0]
        return agent_id, adapter, epoch


async def fetch_rows(tx: Transaction, query: str, values: dict[str, Any]) -> list[Any]:
    return await (await connection_of(tx).execute(SQL[query], values)).fetchall()


def as_agent(row: Any) -> Agent:
    """Read a row of the agent columns, in the order in which every query here selects them."""
    name, tone, role, tier, adapter, cwd, epoch, accounts = row
    return Agent(name=name, tone=Tone(tone), role=role, tier=tier, adapter=adapter, cwd=cwd, epoch=epoch, accounts=tuple(accounts))


def as_row(because: SwapReason) -> dict[str, Any]:
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


def as_event(row: Any) -> FleetEvent:
    event_id, agent, kind, old, new, reason, by, checks, epoch, at = row
    found = tuple(BackendFinding(check["code"], FindingLevel(check["level"]), check["message"], check["hint"]) for check in checks)
    kind = FleetEventKind(kind)
    return FleetEvent(id=event_id, agent=agent, kind=kind, old=old, new=new, reason=reason, by=by, checks=found, epoch=epoch, at=at)
