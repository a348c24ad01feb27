"""The spend of agents on a day, counted in Redis; rebuilt from the rows of calls when Redis has lost it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.ports.credits import CallsPaused, PauseReason
from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Alerts, Clock, Transactions
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import (
    GENERATION_KEY,
    RECENT_S,
    BudgetCounters,
    ScriptBatch,
    agent_keys,
    check_amount,
    counter_ttl_s,
    is_first_alert,
    midnight,
    next_day,
    translate_redis_errors,
)

log = structlog.get_logger()

AGENT_FIELD = b"agent:"


class RedisAgentSpend:
    """The port AgentSpend."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: ModelCalls,
        *,
        alerts: Alerts,
        clock: Clock,
        batch: ScriptBatch | None = None,
        wait_s: float = 0.25,
    ) -> None:
        """`wait_s` is how long a call waits for counters that another process rebuilds, before it goes on without them."""
        self._counters = BudgetCounters(batch or ScriptBatch(redis), redis, wait_s)
        self._transactions, self._calls, self._alerts, self._clock = transactions, calls, alerts, clock
        self._missed_days: set[date] = set()
        self._is_down = False

    async def admit(self, agent: str, *, cap_micro_usd: int | None, fleet_cap_micro_usd: int | None) -> None:
        day = self._today()
        caps = [0 if cap is None else check_amount(cap) for cap in (cap_micro_usd, fleet_cap_micro_usd)]
        try:
            of_agent, of_fleet, *passed = await self._run_script("admit_agent", day, [agent, *caps])
        except (StoreUnavailable, *REDIS_ERRORS) as error:
            self._note_outage(error)
            return
        self._note_outage(None)
        for label, percent in zip(passed[::2], passed[1::2], strict=True):
            is_fleet = label.startswith(b"fleet:")
            spent, cap = (of_fleet, fleet_cap_micro_usd) if is_fleet else (of_agent, cap_micro_usd)
            await self._warn(day, None if is_fleet else agent, percent, spent_micro_usd=int(spent), cap_micro_usd=cap)
        if cap_micro_usd is not None and int(of_agent) >= cap_micro_usd:
            raise CallsPaused(PauseReason.AGENT_CAP, midnight(next_day(day)))
        if fleet_cap_micro_usd is not None and int(of_fleet) >= fleet_cap_micro_usd:
            raise CallsPaused(PauseReason.FLEET_CAP, midnight(next_day(day)))

    async def add(self, agent: str, micro_usd: int, *, day: date, call_id: UUID) -> None:
        try:
            await self._run_script("add_agent", day, [agent, check_amount(micro_usd), call_id.hex])
        except (StoreUnavailable, *REDIS_ERRORS) as error:
            yesterday = self._today() - timedelta(days=1)
            self._missed_days = {late for late in self._missed_days if late >= yesterday} | {day}
            self._note_outage(error)

    async def spent_today(self) -> Mapping[str, int]:
        with translate_redis_errors():
            fields = await self._run_script("spent_by_agents", self._today(), [])
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return {name.removeprefix(AGENT_FIELD).decode(): int(spent) for name, spent in pairs if name.startswith(AGENT_FIELD)}

    async def _warn(self, day: date, agent: str | None, percent: int, *, spent_micro_usd: int, cap_micro_usd: int | None) -> None:
        subject = "fleet" if agent is None else f"agent {agent}"
        if await is_first_alert(self._transactions, self._calls, f"{subject} {cap_micro_usd}", day.isoformat(), percent):
            facts = {"user_id": None, "window": "fleet" if agent is None else "agent", "period": day.isoformat(), "percent": percent}
            money = {"spent_micro_usd": spent_micro_usd, "cap_micro_usd": cap_micro_usd}
            self._alerts.alert("budget_threshold", **facts, agent=agent, **money)

    async def _run_script(self, script: str, day: date, args: Sequence[Any]) -> list[Any]:
        """Run a script on a day's counters. If Redis does not have them, or missed an amount of this process, they are rebuilt first."""
        keys = agent_keys(day)
        if day in self._missed_days:
            await self._counters.run("delete_keys", [GENERATION_KEY, keys[1]], [])
            self._missed_days.discard(day)
        return await self._counters.run_or_rebuild(script, keys, args, of=keys[1], rebuild=partial(self._rebuild, day))

    async def _rebuild(self, day: date, lock: str, token: str) -> None:
        async with self._transactions.begin() as tx:
            found = await self._calls.of_agents(tx, day, recent_s=RECENT_S)
        ttl_s = counter_ttl_s(next_day(day), self._clock.now())
        agents = json.dumps([[agent, str(micro_usd)] for agent, micro_usd in found.micro_usd.items()])
        ids = json.dumps([call_id.hex for call_id in found.ids])
        total = sum(found.micro_usd.values())
        await self._counters.run("rebuild_agents", [*agent_keys(day), lock], [token, ttl_s, total, agents, ids])
        log.info("agent_spend_rebuilt", day=day.isoformat(), micro_usd=total, agents=len(found.micro_usd))

    def _note_outage(self, error: Exception | None) -> None:
        """Log once that the caps are not enforced, and once that they are enforced again."""
        if error is not None and not self._is_down:
            log.warning("agent_spend_not_seen", error=type(error).__name__)
        elif error is None and self._is_down:
            log.info("agent_spend_seen_again")
        self._is_down = error is not None

    def _today(self) -> date:
        return self._clock.now().astimezone(UTC).date()
