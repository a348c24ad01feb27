"""A user's budgets in Redis: tokens a day and a month, reserved before a call and settled after it. `calls` in SQL can rebuild them.

What the call's API key may spend is reserved and settled in the same scripts: `key_counters` knows the counters of keys."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.ports.credits import BudgetHold, BudgetSpent, BudgetUsage, BudgetWindow
from hermes.ports.errors import StoreUnavailable
from hermes.ports.key_limits import KeyClaim
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Alerts, Clock, Transactions
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import (
    KEEP_DAYS,
    BudgetCounters,
    ScriptBatch,
    check_amount,
    counter_ttl_s,
    is_first_alert,
    key_keys,
    key_lease_member,
    lease_member,
    midnight,
    next_day,
    next_month,
    settled_key,
    to_ms,
    translate_redis_errors,
    user_keys,
)
from hermes.stores.redis.key_counters import KeyCounters, key_error, limits_json
from hermes.tasks import end_tasks, stop_if_cancelled
from hermes.time_ids import new_time_id

log = structlog.get_logger()


class BudgetCharge(NamedTuple):
    """The tokens and the cost that settle a hold, and when the call was recorded."""

    hold: BudgetHold
    tokens: int
    micro_usd: int
    recorded_at: datetime


class RedisBudgets:
    """The port Budgets. `redis` returns bytes, has short timeouts and does not retry by itself. Call `aclose` before the client's own."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: ModelCalls,
        *,
        alerts: Alerts,
        clock: Clock,
        batch: ScriptBatch | None = None,
        keys: KeyCounters | None = None,
        wait_s: float = 1.0,
        owed_max: int = 10_000,
        max_pause_s: float = 5.0,
    ) -> None:
        """`wait_s` is how long `reserve` tries while Redis does not answer, and how long a call waits for counters that another process
        rebuilds; `keys` are this process's counters of API keys; `owed_max` is how many charges this process keeps at most while Redis is
        away."""
        batch = batch or ScriptBatch(redis)
        self._counters, self._wait_s = BudgetCounters(batch, redis, wait_s), wait_s
        self.keys = keys or KeyCounters(redis, transactions, calls, clock=clock, batch=batch, wait_s=wait_s)
        self._transactions, self._calls, self._alerts, self._clock = transactions, calls, alerts, clock
        self._owed_max, self._max_pause_s = owed_max, max_pause_s
        self._open: dict[UUID, BudgetHold] = {}
        self._owed: dict[UUID, BudgetCharge] = {}
        self._replayer: asyncio.Task[None] | None = None

    async def reserve(
        self, user_id: UUID, *, day_limit: int, month_limit: int, tokens: int, lease_s: float, key: KeyClaim | None = None
    ) -> BudgetHold:
        now = self._clock.now().astimezone(UTC)
        hold = BudgetHold(
            id=new_time_id(),
            user_id=user_id,
            day=now.date(),
            tokens=check_amount(tokens, least=1),
            day_limit=check_amount(day_limit),
            month_limit=check_amount(month_limit),
            reserved_at=now,
            expires_at=now + timedelta(seconds=lease_s),
            key=key,
        )
        limits = (tokens, day_limit, month_limit)
        times = (to_ms(hold.expires_at), counter_ttl_s(next_month(hold.day), now))
        args = (to_ms(now), hold.day.day, lease_member(hold), *limits, *times, *reserve_args(hold))
        try:
            outcome, wait_ms, tries = await self._try_to_reserve(hold, args)
        except (StoreUnavailable, asyncio.CancelledError):
            self._give_up(hold)
            raise
        if outcome != b"reserved" and tries > 1:
            self._give_up(hold)
        if outcome == b"month":
            raise BudgetSpent(BudgetWindow.MONTH, midnight(next_month(hold.day)))
        if outcome == b"day":
            raise BudgetSpent(BudgetWindow.DAY, midnight(next_day(hold.day)))
        if outcome != b"reserved" and key is not None:
            raise key_error(outcome, wait_ms, hold.day)
        self._remember(hold, now)
        return hold

    async def settle(self, hold: BudgetHold, *, tokens: int, micro_usd: int) -> None:
        charge = BudgetCharge(hold, check_amount(tokens), check_amount(micro_usd), self._clock.now())
        self._forget(hold)
        try:
            await self._charge(charge)
        except StoreUnavailable as error:
            log.warning("charge_kept_for_later", hold_id=str(hold.id), tokens=tokens, micro_usd=micro_usd, error=str(error))
            self._owe(charge)
        except asyncio.CancelledError:
            self._owe(charge)  # a cancelled caller has still used the tokens
            raise

    async def release(self, hold: BudgetHold) -> None:
        self._forget(hold)
        members = [lease_member(hold), *([] if hold.key is None else [key_lease_member(hold, hold.key)])]
        try:
            await self._counters.run("release", keys_of(hold), members)
        except REDIS_ERRORS as error:
            log.warning("hold_not_released", hold_id=str(hold.id), expires_at=hold.expires_at.isoformat(), error=type(error).__name__)

    async def used(self, user_id: UUID) -> BudgetUsage:
        now = self._clock.now().astimezone(UTC)
        with translate_redis_errors():
            keys = [*user_keys(user_id, now.date()), settled_key(user_id, now.date())]
            _, *numbers = await self._counters.run_or_rebuild(
                "used", keys, (to_ms(now), now.day), of=keys[1], rebuild=partial(self._rebuild, user_id, now.date())
            )
        day_tokens, day_held, day_micro_usd, month_tokens, month_held = map(int, numbers)
        return BudgetUsage(
            day_tokens=day_tokens, day_held=day_held, day_micro_usd=day_micro_usd, month_tokens=month_tokens, month_held=month_held
        )

    @property
    def owed(self) -> int:
        """How many charges wait in this process until Redis is back."""
        return len(self._owed)

    async def aclose(self) -> None:
        """Stop sending charges. Charges that are still owed are only in SQL then."""
        if self._replayer is not None:
            replayer, self._replayer = self._replayer, None
            await end_tasks(replayer)

    async def _try_to_reserve(self, hold: BudgetHold, args: Sequence[Any]) -> tuple[bytes, int, int]:
        """Try to reserve until Redis answers or `wait_s` have passed; return its answer, the ms to wait where it names them, and the number
        of tries. Raises StoreUnavailable.

        Tries at least twice: on a busy machine the time may pass while this process does not run. All tries together reserve once."""
        give_up_at = time.monotonic() + self._wait_s
        with translate_redis_errors():
            for tries in itertools.count(1):
                try:
                    outcome, *wait_ms = await self._run_script("reserve", hold, args)
                except REDIS_ERRORS:
                    if tries > 1 and time.monotonic() >= give_up_at:
                        raise
                    await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311  # no secret
                else:
                    return outcome, sum(wait_ms), tries
        raise AssertionError

    def _give_up(self, hold: BudgetHold) -> None:
        """Settle a hold with zero as soon as Redis can be reached: a late try would otherwise reserve tokens for its whole lease."""
        self._owe(BudgetCharge(hold, 0, 0, self._clock.now()))

    def _remember(self, hold: BudgetHold, now: datetime) -> None:
        """Keep a hold until its lease ends, so that it can be reserved again if Redis loses it meanwhile."""
        self._open[hold.id] = hold
        if hold.key is not None:
            self.keys.remember(hold)
        for oldest in tuple(itertools.islice(self._open.values(), 2)):  # two out for one in: holds of dead callers do not pile up
            if oldest.expires_at <= now:
                self._forget(oldest)

    def _forget(self, hold: BudgetHold) -> None:
        self._open.pop(hold.id, None)
        self.keys.forget(hold)

    async def _charge(self, charge: BudgetCharge) -> None:
        hold, tokens, micro_usd, recorded_at = charge
        now = self._clock.now().astimezone(UTC)
        if hold.day + timedelta(days=KEEP_DAYS) <= now.date():
            log.warning("charge_dropped", hold_id=str(hold.id), tokens=tokens, day=hold.day.isoformat())
            return  # Redis no longer knows whether it was settled before
        args: tuple[Any, ...] = (
            *(hold.day.day, hold.id.hex, lease_member(hold), tokens, micro_usd, hold.day_limit, hold.month_limit),
            counter_ttl_s(next_day(hold.day), now),
        )
        if hold.key is not None:
            args += (key_lease_member(hold, hold.key), to_ms(now), to_ms(recorded_at))
        with translate_redis_errors():
            _, *passed = await self._run_script("settle", hold, args)
        for label, percent in zip(passed[::2], passed[1::2], strict=True):
            await self._warn(hold, BudgetWindow.MONTH if label == b"month" else BudgetWindow.DAY, percent)

    async def _warn(self, hold: BudgetHold, window: BudgetWindow, percent: int) -> None:
        period = f"{hold.day:%Y-%m}" if window is BudgetWindow.MONTH else hold.day.isoformat()
        limit = hold.month_limit if window is BudgetWindow.MONTH else hold.day_limit
        if await is_first_alert(self._transactions, self._calls, str(hold.user_id), period, percent):
            facts = {"user_id": str(hold.user_id), "window": str(window), "period": period, "percent": percent, "limit_tokens": limit}
            self._alerts.alert("budget_threshold", **facts)

    async def _run_script(self, script: str, hold: BudgetHold, args: Sequence[Any]) -> list[Any]:
        """Run a script on the months of a user and of the key. If Redis does not have one of them, it is rebuilt first."""
        keys = keys_of(hold)
        more = {} if hold.key is None else self.keys.rebuilds(hold.key.key_id, hold.day)
        rebuild = partial(self._rebuild, hold.user_id, hold.day)
        return await self._counters.run_or_rebuild(script, keys, args, of=keys[1], rebuild=rebuild, more=more)

    async def _rebuild(self, user_id: UUID, day: date, lock: str, token: str) -> None:
        now = self._clock.now()
        since, until = day.replace(day=1), next_month(day)
        ids_since = now.astimezone(UTC).date() - timedelta(days=KEEP_DAYS)
        async with self._transactions.begin() as tx:
            days = await self._calls.by_day(tx, user_id, since=since, until=until, ids_since=ids_since)
        recent = [found for found in days if found.day >= ids_since]
        # Calls that are running have no row yet, and only their own process knows them; those of other processes count when they settle.
        mine = [hold for hold in self._open.values() if (hold.user_id, hold.day.replace(day=1)) == (user_id, since)]
        counted = {
            "used": str(sum(found.totals.tokens for found in days)),
            "days": [[str(found.day.day), str(found.totals.tokens), str(found.totals.micro_usd)] for found in days],
            "settled": [[call_id.hex for call_id in found.ids] for found in recent],
            "leases": [[lease_member(hold), str(to_ms(hold.expires_at))] for hold in mine],
        }
        keys = [*user_keys(user_id, day), lock, *(settled_key(user_id, found.day) for found in recent)]
        ttls = (counter_ttl_s(until, now), (KEEP_DAYS + 1) * 86_400)
        await self._counters.run("rebuild_user", keys, [token, *ttls, json.dumps(counted)])
        log.info("budget_rebuilt", user_id=str(user_id), month=f"{since:%Y-%m}", days=len(days), holds=len(mine))

    def _owe(self, charge: BudgetCharge) -> None:
        if not charge.tokens and len(self._owed) >= self._owed_max // 2:
            return  # its lease ends by itself, and the places are for charges
        if len(self._owed) >= self._owed_max:
            dropped = self._owed.pop(next(iter(self._owed)))
            log.warning("charge_dropped", hold_id=str(dropped.hold.id), tokens=dropped.tokens, owed=len(self._owed))
        self._owed[charge.hold.id] = charge
        if self._replayer is None or self._replayer.done():
            self._replayer = asyncio.create_task(self._replay(), name="budgets")

    async def _replay(self) -> None:
        """Send the owed charges, oldest first, until none is left."""
        failures = 0
        while self._owed:
            charge = next(iter(self._owed.values()))
            try:
                await self._charge(charge)
            except StoreUnavailable:
                failures += 1
                # Full jitter: when Redis is back, every process has charges to send.
                await asyncio.sleep(random.uniform(0, min(self._max_pause_s, 0.05 * 2 ** min(failures, 10))))  # noqa: S311  # no secret
            else:
                failures = 0
                self._owed.pop(charge.hold.id, None)
            stop_if_cancelled()


def keys_of(hold: BudgetHold) -> list[str]:
    """The keys of Redis that a hold changes."""
    of_user = [*user_keys(hold.user_id, hold.day), settled_key(hold.user_id, hold.day)]
    return of_user if hold.key is None else [*of_user, *key_keys(hold.key.key_id, hold.day)]


def reserve_args(hold: BudgetHold) -> tuple[Any, ...]:
    """What the script needs besides to reserve of an API key."""
    if hold.key is None:
        return ()
    return key_lease_member(hold, hold.key), check_amount(hold.key.micro_usd), limits_json(hold.key.limits)
