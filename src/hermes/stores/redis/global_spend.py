"""The global spend of a day, counted in Redis, and the kill switch, recorded in SQL."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, date, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from redis.asyncio import Redis

from hermes.ports.credits import CallsPaused, KillSwitchRecord, PauseReason
from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import ModelCalls
from hermes.ports.runtime import Alerts, Clock, Transactions
from hermes.stores.postgres.kill_switch import PostgresKillSwitchRecords
from hermes.stores.redis import REDIS_ERRORS
from hermes.stores.redis.counters import (
    GENERATION_KEY,
    KILL_SWITCH_MICRO_USD,
    RECENT_S,
    BudgetCounters,
    Joined,
    ScriptBatch,
    check_amount,
    counter_ttl_s,
    global_keys,
    is_first_alert,
    midnight,
    next_day,
    translate_redis_errors,
)

log = structlog.get_logger()


class RedisGlobalSpend:
    """The port GlobalSpend. The kill switch record is in SQL, and is read at most every `poll_s`; a counter at KILL_SWITCH_MICRO_USD makes
    other processes read it at once."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: ModelCalls,
        *,
        records: PostgresKillSwitchRecords,
        alerts: Alerts,
        clock: Clock,
        batch: ScriptBatch | None = None,
        poll_s: float = 0.25,
        wait_s: float = 0.25,
    ) -> None:
        """`wait_s` is how long a call waits for a counter that another process rebuilds, before it goes on without the counter."""
        self._counters = BudgetCounters(batch or ScriptBatch(redis), redis, wait_s)
        self._transactions, self._calls, self._records = transactions, calls, records
        self._alerts, self._clock, self._poll_s = alerts, clock, poll_s
        self._record: KillSwitchRecord | None = None
        self._unsaved: KillSwitchRecord | None = None
        self._read_at: float | None = None
        self._reading = asyncio.Lock()
        self._changes = 0
        self._missed_days: set[date] = set()
        self._is_down = False

    async def admit(self, cap_micro_usd: int | None) -> None:
        if await self.kill_switch_record() is not None:
            raise CallsPaused(PauseReason.KILL_SWITCH, None)
        day = self._today()
        try:
            cap = 0 if cap_micro_usd is None else check_amount(cap_micro_usd)
            spent, *passed = await self._run_script("admit", day, [cap], joined=Joined.ALL)
        except (StoreUnavailable, *REDIS_ERRORS) as error:
            self._note_outage(error)
            return
        self._note_outage(None)
        for percent in passed[1::2]:
            await self._warn(day, percent, int(spent), cap_micro_usd)
        if int(spent) >= KILL_SWITCH_MICRO_USD:
            await self._read_record(not_before=time.monotonic())
            raise CallsPaused(PauseReason.KILL_SWITCH, None if self._record else midnight(next_day(day)))
        if cap_micro_usd is not None and int(spent) >= cap_micro_usd:
            raise CallsPaused(PauseReason.CAP, midnight(next_day(day)))

    async def add(self, micro_usd: int, *, day: date | None = None, call_id: UUID | None = None) -> None:
        today = self._today()
        args = [check_amount(micro_usd), call_id.hex if call_id else ""]
        try:
            await self._run_script("add", day or today, args, joined=Joined.KEYS)
        except (StoreUnavailable, *REDIS_ERRORS) as error:
            self._missed_days = {late for late in self._missed_days if late >= today - timedelta(days=1)} | {day or today}
            self._note_outage(error)

    async def spent_today(self) -> int:
        day = self._today()
        with translate_redis_errors():
            spent, *_ = await self._run_script("admit", day, [0], joined=Joined.ALL)
        if int(spent) < KILL_SWITCH_MICRO_USD:
            return int(spent)
        async with self._transactions.begin() as tx:  # the switch stands in the counter's place
            return (await self._calls.on_day(tx, day, recent_s=0)).totals.micro_usd

    async def kill_switch(self, reason: str, by: str) -> None:
        # Also if a record is known already: another process may have released it a moment ago.
        self._unsaved = KillSwitchRecord(self._clock.now(), by, reason)
        self._record = self._record or self._unsaved
        self._changes += 1
        self._alerts.alert("kill_switch_engaged", by=by, reason=reason)
        day = self._today()
        try:
            await self._counters.run("kill", global_keys(day)[:2], [KILL_SWITCH_MICRO_USD, self._kept_s(day)])
        except REDIS_ERRORS as error:
            log.warning("kill_switch_not_in_redis", error=type(error).__name__)  # the record in SQL is enough
        await self._save()

    async def release(self, by: str) -> None:
        async with self._transactions.begin() as tx:
            await self._records.release(tx, by)
        self._record = self._unsaved = None
        self._changes += 1
        self._alerts.alert("kill_switch_released", by=by)
        self._alerts.end("kill_switch_engaged")
        _, counter, state, *_ = global_keys(self._today())
        with translate_redis_errors():  # the lock too: a process that is rebuilding now may have read the record before
            await self._counters.run("delete_keys", [GENERATION_KEY, state, counter, f"{state}:rebuild"], [])

    async def kill_switch_record(self) -> KillSwitchRecord | None:
        due = time.monotonic() - self._poll_s
        # While one task reads, the others use the last value; they wait only for the very first one.
        if self._read_at is None or (self._read_at < due and not self._reading.locked()):
            await self._read_record(not_before=due)
        return self._record

    async def _read_record(self, *, not_before: float) -> None:
        """Read the record, after saving one that could not be saved before. If SQL cannot be reached, the known value stays; before the
        first value, raises StoreUnavailable."""
        async with self._reading:
            if self._read_at is not None and self._read_at >= not_before:
                return
            started, changes = time.monotonic(), self._changes
            try:
                async with asyncio.timeout(max(self._poll_s, 1.0)):
                    if self._unsaved is not None:
                        await self._save()
                    async with self._transactions.begin() as tx:
                        found = await self._records.engaged(tx)
            except (StoreUnavailable, TimeoutError) as error:
                if self._read_at is None and self._record is None:
                    raise StoreUnavailable("the database cannot say whether the kill switch is engaged") from error
                log.warning("kill_switch_not_read", error=type(error).__name__)
            else:
                if changes == self._changes:  # else this process used the switch after the record was read
                    if (found is None) != (self._record is None):
                        log.warning("kill_switch_seen", is_engaged=found is not None, by=found.by if found else None)
                    self._record = found
            self._read_at = started

    async def _save(self) -> None:
        if self._unsaved is not None:
            unsaved, changes = self._unsaved, self._changes
            async with self._transactions.begin() as tx:
                record = await self._records.engage(tx, unsaved.by, unsaved.reason)
            if changes == self._changes:
                self._record, self._unsaved = record, None

    async def _warn(self, day: date, percent: int, spent: int, cap: int | None) -> None:
        if await is_first_alert(self._transactions, self._calls, "platform", day.isoformat(), percent):
            facts = {"user_id": None, "window": "cap", "period": day.isoformat(), "percent": percent}
            self._alerts.alert("budget_threshold", **facts, spent_micro_usd=spent, cap_micro_usd=cap)

    async def _run_script(self, script: str, day: date, args: Sequence[Any], *, joined: Joined | None = None) -> list[Any]:
        """Run a script on a day's counter. If Redis does not have it, or missed an amount of this process, it is rebuilt first."""
        keys = global_keys(day)
        state = keys[2]
        if day in self._missed_days:
            await self._counters.run("delete_keys", [GENERATION_KEY, state], [])
            self._missed_days.discard(day)
        return await self._counters.run_or_rebuild(script, keys, args, of=state, rebuild=partial(self._rebuild, day), joined=joined)

    async def _rebuild(self, day: date, lock: str, token: str) -> None:
        async with self._transactions.begin() as tx:
            found = await self._calls.on_day(tx, day, recent_s=RECENT_S)
            record = await self._records.engaged(tx)
        micro_usd = KILL_SWITCH_MICRO_USD if record else found.totals.micro_usd
        ids = json.dumps([call_id.hex for call_id in found.ids])
        args = [token, self._kept_s(day), micro_usd, KILL_SWITCH_MICRO_USD, ids]
        await self._counters.run("rebuild_global", [*global_keys(day), lock], args)
        log.info("spend_rebuilt", day=day.isoformat(), micro_usd=micro_usd, calls=found.totals.calls)

    def _note_outage(self, error: Exception | None) -> None:
        """Log once that the cap is not enforced, and once that it is enforced again."""
        if error is not None and not self._is_down:
            log.warning("spend_not_seen", error=type(error).__name__)
        elif error is None and self._is_down:
            log.info("spend_seen_again")
        self._is_down = error is not None

    def _today(self) -> date:
        return self._clock.now().astimezone(UTC).date()

    def _kept_s(self, day: date) -> int:
        return counter_ttl_s(next_day(day), self._clock.now())
