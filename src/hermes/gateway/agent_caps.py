"""The spend caps of agents: how much each may spend in a UTC day, and how much all of them together. Does not know how spend is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from hermes.ports.credits import AgentSpend, DaySpend, GlobalSpend, SpendToday


@dataclass(frozen=True, slots=True)
class AgentCaps:
    """The caps of this process's settings and of the agents as it read them last."""

    spend: AgentSpend
    caps: Callable[[], Mapping[str, int]]
    """The agents that have a cap, in micro-dollars by name."""
    fleet_micro_usd: int | None = None
    """For all agents together; None for no limit."""

    def has_cap(self, agent: str) -> bool:
        """Whether `admit` has anything to check: without a cap no store is asked."""
        return self.fleet_micro_usd is not None or agent in self.caps()

    async def admit(self, agent: str) -> None:
        """Raise CallsPaused if the agent or the fleet has spent its cap."""
        await self.spend.admit(agent, cap_micro_usd=self.caps().get(agent), fleet_cap_micro_usd=self.fleet_micro_usd)

    async def add(self, agent: str, micro_usd: int, *, day: date, call_id: UUID) -> None:
        """Count what a call for the agent cost."""
        await self.spend.add(agent, micro_usd, day=day, call_id=call_id)

    async def spent_today(self, platform: GlobalSpend, platform_cap: int | None) -> SpendToday:
        """Read all of today's spend at once. Raises StoreUnavailable."""
        of_platform, of_agents = await asyncio.gather(platform.spent_today(), self.spend.spent_today())
        caps = self.caps()
        agents = {name: DaySpend(of_agents.get(name, 0), caps.get(name)) for name in sorted({*of_agents, *caps})}
        return SpendToday(DaySpend(of_platform, platform_cap), DaySpend(sum(of_agents.values()), self.fleet_micro_usd), agents)
