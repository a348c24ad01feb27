"""What API keys use, counted in Redis: money and tokens a day and a month, requests and tokens a minute, calls at once.

`budgets.lua` changes these counters, together with those of the user for whom a call is made. Days and months can be rebuilt from the rows
of calls. The last minute cannot: after a loss of Redis it begins anew, and of the calls under way only those of this process are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import partial
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.ports.credits import BudgetHold, BudgetWindow
from hermes.ports.key_limits import KeyLimits
from hermes.ports.key_use import KeyLimit, KeyQuotaSpent, KeyRateReached, KeyUsage
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Clock, Transactions
from hermes.stores.redis.counters import (
    GENERATION_KEY,
    RECENT_S,
    BudgetCounters,
    Rebuild,
    ScriptBatch,
    counter_ttl_s,
    key_keys,
    key_lease_member,
    midnight,
    next_day,
    next_month,
    to_ms,
    translate_redis_errors,
)

log = structlog.get_logger()

REACHED = {
    b"day_usd": KeyLimit.DAY_USD,
    b"month_usd": KeyLimit.MONTH_USD,
    b"day_tokens": KeyLimit.DAY_TOKENS,
    b"month_tokens": KeyLimit.MONTH_TOKENS,
    b"minute_requests": KeyLimit.MINUTE_REQUESTS,
    b"minute_tokens": KeyLimit.MINUTE_TOKENS,
    b"at_once": KeyLimit.AT_ONCE,
}
"""What a script returns for each limit."""
AT_ONCE_WAIT_S = 1.0
"""When to try again after too many calls at once: nobody knows when one of them ends."""


class KeyCounters:
    """The port KeyUse, and the counters of keys for RedisBudgets."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: ModelCalls,
        *,
        clock: Clock,
        batch: ScriptBatch | None = None,
        wait_s: float = 1.0,
    ) -> None:
        """`wait_s` is how long a call waits for counters that another process rebuilds."""
        self._counters = BudgetCounters(batch or ScriptBatch(redis), redis, wait_s)
        self._transactions, self._calls, self._clock = transactions, calls, clock
        self._open: dict[UUID, BudgetHold] = {}

    async def count_request(self, key_id: UUID, limits: KeyLimits) -> None:
        if limits.minute_requests is None:
            return
        now = self._now()
        with translate_redis_errors():
            args = (to_ms(now), limits.minute_requests)
            outcome, *wait_ms = await self._counters.run("count_request", [GENERATION_KEY, key_keys(key_id, now.date())[-1]], args)
        if outcome != b"counted":
            raise key_error(outcome, sum(wait_ms), now.date())

    async def check_quota(self, key_id: UUID, limits: KeyLimits) -> None:
        if not limits.has_quota:
            return
        used, day = await self.used(key_id), self._now().date()
        for limit, amount, most in (
            (KeyLimit.MONTH_USD, used.month_micro_usd, limits.month_micro_usd),
            (KeyLimit.MONTH_TOKENS, used.month_tokens, limits.month_tokens),
            (KeyLimit.DAY_USD, used.day_micro_usd, limits.day_micro_usd),
            (KeyLimit.DAY_TOKENS, used.day_tokens, limits.day_tokens),
        ):
            # Without any dollar a key may still use models that cost nothing.
            if most and amount >= most:
                raise quota_spent(limit, day)

    async def used(self, key_id: UUID) -> KeyUsage:
        now = self._now()
        keys, day = [GENERATION_KEY, *key_keys(key_id, now.date())], now.date()
        of, rebuild = self.rebuilds(key_id, day)[b"rebuild_key"]
        with translate_redis_errors():
            reply = await self._counters.run_or_rebuild("key_used", keys, (to_ms(now), day.day), of=of, rebuild=rebuild)
        usd_day, usd_month, tokens_day, tokens_month, requests, tokens, at_once = map(int, reply[1:])
        return KeyUsage(
            day_micro_usd=usd_day,
            month_micro_usd=usd_month,
            day_tokens=tokens_day,
            month_tokens=tokens_month,
            minute_requests=requests,
            minute_tokens=tokens,
            calls_at_once=at_once,
        )

    def remember(self, hold: BudgetHold) -> None:
        """Keep a hold, so that it can be reserved again if Redis loses it meanwhile."""
        self._open[hold.id] = hold

    def forget(self, hold: BudgetHold) -> None:
        self._open.pop(hold.id, None)

    def rebuilds(self, key_id: UUID, day: date) -> Mapping[bytes, tuple[str, Rebuild]]:
        """How to rebuild a key's month, by what the scripts return if it is gone."""
        return {b"rebuild_key": (key_keys(key_id, day)[0], partial(self._rebuild, key_id, day))}

    async def _rebuild(self, key_id: UUID, day: date, lock: str, token: str) -> None:
        now, since, until = self._now(), day.replace(day=1), next_month(day)
        async with self._transactions.begin() as tx:
            days = await self._calls.of_key(tx, key_id, since=since, until=until, recent_s=RECENT_S)
        mine = [
            (key_lease_member(hold, hold.key), to_ms(hold.expires_at))
            for hold in self._open.values()
            if hold.key is not None and (hold.key.key_id, hold.day.replace(day=1)) == (key_id, since)
        ]
        counted = {
            "tokens": str(sum(found.totals.tokens for found in days)),
            "usd": str(sum(found.totals.micro_usd for found in days)),
            "days": [[str(found.day.day), str(found.totals.tokens), str(found.totals.micro_usd)] for found in days],
            "settled": [call_id.hex for found in days for call_id in found.ids],
            "leases": [[lease, str(expires_ms)] for lease, expires_ms in mine],
        }
        args = [token, counter_ttl_s(until, now), to_ms(now), json.dumps(counted)]
        await self._counters.run("rebuild_key", [GENERATION_KEY, *key_keys(key_id, day), lock], args)
        log.info("key_counters_rebuilt", api_key_id=str(key_id), month=f"{since:%Y-%m}", days=len(days), holds=len(mine))

    def _now(self) -> datetime:
        return self._clock.now().astimezone(UTC)


def limits_json(limits: KeyLimits) -> str:
    """The limits as the script reads them."""
    amounts = {
        "day_usd": limits.day_micro_usd,
        "month_usd": limits.month_micro_usd,
        "day_tokens": limits.day_tokens,
        "month_tokens": limits.month_tokens,
        "minute_tokens": limits.minute_tokens,
        "at_once": limits.calls_at_once,
    }
    return json.dumps({name: str(amount) for name, amount in amounts.items() if amount is not None})


def key_error(outcome: bytes, wait_ms: int, day: date) -> KeyQuotaSpent | KeyRateReached:
    """The error for the limit that a script has named."""
    limit = REACHED[outcome]
    if limit.window is not None:
        return quota_spent(limit, day)
    if limit is KeyLimit.AT_ONCE:
        return KeyRateReached(limit, AT_ONCE_WAIT_S)
    return KeyRateReached(limit, None if wait_ms < 0 else wait_ms / 1000)


def quota_spent(limit: KeyLimit, day: date) -> KeyQuotaSpent:
    window = BudgetWindow.MONTH if limit.window is BudgetWindow.MONTH else BudgetWindow.DAY
    return KeyQuotaSpent(limit, window, midnight(next_month(day) if window is BudgetWindow.MONTH else next_day(day)))
