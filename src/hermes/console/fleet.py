"""The agents as an operator sees them: adapter, spend of today, cap, history; and how they swap an adapter, roll back, or set a cap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from hermes.console.access import ConsoleAccess, Subject
from hermes.ports.backends import BackendFinding, FindingLevel
from hermes.ports.errors import NotFound, PortError, require_known
from hermes.ports.operators import Actor, Operator, Role
from hermes.ports.runtime import Transactions
from hermes.ports.users import Agent, Agents, FleetEvent, FleetEventKind

MAX_CAP_MICRO_USD = 999_998 * 1_000_000
"""Below the amount that stands for the kill switch."""


class SwapRefused(PortError):
    """A swap was refused or rolled back. The message says why, and where the agent points now."""


class AdapterSwitch(Protocol):
    """The adapters of the settings, and the way to another one: health check, swap, canary, rollback."""

    @property
    def adapters(self) -> Sequence[str]:
        """The adapters that an agent can have, by name."""
        ...

    def chain_of(self, agent: Agent) -> Sequence[str]:
        """The adapters that answer for an agent: its own, or the chain of its tier."""
        ...

    async def check(self, adapter: str) -> Sequence[BackendFinding]:
        """Check the health of an adapter; never raises."""
        ...

    async def swap(self, agent: str, adapter: str | None, *, by: str) -> bool:
        """Give an agent another adapter, None for the chain of its tier; False if it had it already. Raises SwapRefused."""
        ...

    async def set_cap(self, agent: str, daily_micro_usd: int | None) -> Agent:
        """Limit what an agent may spend in a UTC day; None: no limit."""
        ...


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent with what it cost today, and its history's last move."""

    agent: Agent
    chain: Sequence[str]
    spent_micro_usd: int
    rolls_back_to: str | None = None
    """The adapter before the last swap; means something only if `can_roll_back`."""
    can_roll_back: bool = False


@dataclass(frozen=True, slots=True)
class FleetBoard:
    """Reads the agents, and acts on them."""

    transactions: Transactions
    access: ConsoleAccess
    agents: Agents
    switch: AdapterSwitch
    now: Callable[[], datetime]
    cap_micro_usd: int | None
    """The cap of all agents together."""

    async def list(self, operator: Operator) -> Sequence[AgentView]:
        """Return the agents, by name. An operator of some accounts sees the agents that answer on those alone: what another
        agent spends is the money of other accounts too."""
        async with self.transactions.once() as tx:
            agents = await self.agents.list(tx)
            spent = await self.agents.spend(tx, self.now().date())
            events = await self.agents.events(tx, limit=200)
        return [self._view(agent, spent.get(agent.name, 0), events) for agent in agents if is_agent_seen(operator, agent)]

    def _view(self, agent: Agent, spent: int, events: Sequence[FleetEvent]) -> AgentView:
        moved = next((event for event in events if event.agent == agent.name and event.kind is FleetEventKind.ADAPTER_SWAPPED), None)
        can_roll_back = moved is not None and moved.new == agent.adapter and moved.old != agent.adapter
        return AgentView(agent, self.switch.chain_of(agent), spent, moved.old if moved else None, can_roll_back)

    async def events(self, operator: Operator, *, agent: str | None = None, limit: int = 50) -> Sequence[FleetEvent]:
        """Return the history of one agent or of all that the operator sees, the newest first."""
        async with self.transactions.once() as tx:
            seen = {each.name for each in await self.agents.list(tx) if is_agent_seen(operator, each)}
            return [event for event in await self.agents.events(tx, agent, limit=limit) if event.agent in seen]

    async def check(self, adapters: Sequence[str]) -> dict[str, Sequence[BackendFinding]]:
        """Check the health of these adapters, one after the other."""
        return {adapter: await self.switch.check(adapter) for adapter in sorted(set(adapters))}

    async def swap(self, actor: Actor, name: str, adapter: str | None) -> bool:
        """Give an agent another adapter, after a health check and with a canary call; False if it had it already.

        Raises NotFound, SwapRefused if the old adapter is in place again, and AccessRefused."""
        agent = await self._get(name)
        if adapter is not None:
            require_known(adapter, self.switch.adapters, "adapter")
        facts = {"from": agent.adapter, "to": adapter}
        await self.access.permit(actor, Role.OPERATOR, "fleet.swap", Subject(kind="agent", id=agent.name), facts=facts)
        return await self.switch.swap(agent.name, adapter, by=actor.operator.name)

    async def set_cap(self, actor: Actor, name: str, daily_micro_usd: int | None) -> Agent:
        """Limit what an agent may spend in a UTC day; None: no limit. Raises NotFound and AccessRefused."""
        agent = await self._get(name)
        if daily_micro_usd is not None and not 0 <= daily_micro_usd <= MAX_CAP_MICRO_USD:
            raise NotFound(f"a cap is an amount from $0 to ${MAX_CAP_MICRO_USD // 1_000_000:,}")
        facts = {"from_micro_usd": agent.daily_micro_usd, "to_micro_usd": daily_micro_usd}
        await self.access.permit(actor, Role.OWNER, "fleet.cap", Subject(kind="agent", id=agent.name), facts=facts)
        return await self.switch.set_cap(agent.name, daily_micro_usd)

    async def _get(self, name: str) -> Agent:
        async with self.transactions.once() as tx:
            found = {agent.name: agent for agent in await self.agents.list(tx)}
        return found[require_known(name, found, "agent")]


def is_agent_seen(operator: Operator, agent: Agent) -> bool:
    return operator.accounts is None or (bool(agent.accounts) and all(operator.sees(account) for account in agent.accounts))


def worst_level(findings: Sequence[BackendFinding]) -> FindingLevel:
    """The worst level of a health check; `info` if it found nothing."""
    order = list(FindingLevel)
    return max((finding.level for finding in findings), key=order.index, default=FindingLevel.INFO)
