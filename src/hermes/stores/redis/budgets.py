"""Budgets and spend in Redis: counters that one script each changes, and that `calls` in SQL can rebuild at any time.

The scripts stand in `budgets.lua`, with the keys they use. They touch several keys at once, so this needs one server, not a cluster; and
one that evicts nothing would be best, although an evicted counter is only rebuilt. Time comes from the clock that is passed in: the
server's own plays no part but for the expiry of keys, long after they are needed."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib import resources
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import structlog
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from hermes.ports.alerts import Alerts
from hermes.ports.budgets import BudgetSpent, Hold, Latch, Latches, Paused, PauseReason, Used, Window
from hermes.ports.calls import Calls
from hermes.ports.clock import Clock
from hermes.ports.errors import StoreUnavailable
from hermes.ports.transactions import Transactions

log = structlog.get_logger()

GENERATION = "hermes:budgets:generation"
CEILING_MICRO_USD = 999_999 * 1_000_000
"""What the kill switch sets the platform's counter to."""

KEEP_DAYS = 3
"""How long counters outlive their window, and settled holds their day: a charge that comes later than that is only in SQL."""
RECENT_S = 300.0
"""The calls whose money may still be on its way to the counter when that is rebuilt."""
LOCK_MS = 5_000
AT_ONCE = 16
"""How many scripts a process has under way; more of them wait. A client whose connections are all in use would say that Redis is away."""
UNREACHABLE = (RedisError, OSError, TimeoutError)


class Charge(NamedTuple):
    """What a hold is settled with."""

    hold: Hold
    tokens: int
    micro_usd: int


class RedisBudgets:
    """The port Budgets. `redis` gives bytes, has short timeouts and repeats nothing by itself. `aclose` belongs before the client's own."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: Calls,
        *,
        alerts: Alerts,
        clock: Clock,
        wait_s: float = 1.0,
        owed_max: int = 10_000,
        longest_pause_s: float = 5.0,
    ) -> None:
        """`wait_s` is how long a call waits for counters that another process rebuilds; `owed_max` how many charges are kept at most."""
        self._counters = Counters(redis, wait_s)
        self._transactions, self._calls, self._alerts, self._clock = transactions, calls, alerts, clock
        self._owed_max, self._longest_pause_s = owed_max, longest_pause_s
        self._open: dict[UUID, Hold] = {}
        self._owed: dict[UUID, Charge] = {}
        self._replayer: asyncio.Task[None] | None = None

    async def reserve(self, user_id: UUID, *, day_limit: int, month_limit: int, tokens: int, lease_s: float) -> Hold:
        now = self._clock.now().astimezone(UTC)
        hold = Hold(
            id=uuid4(),
            user_id=user_id,
            day=now.date(),
            tokens=whole(tokens, least=1),
            day_limit=whole(day_limit),
            month_limit=whole(month_limit),
            expires_at=now + timedelta(seconds=lease_s),
        )
        limits = (tokens, day_limit, month_limit)
        args = (in_ms(now), hold.day.day, lease_of(hold), *limits, in_ms(hold.expires_at), kept_s(next_month(hold.day), now))
        with reachable():
            [outcome] = await self._counted("reserve", user_id, hold.day, args)
        if outcome == b"month":
            raise BudgetSpent(Window.MONTH, midnight(next_month(hold.day)))
        if outcome == b"day":
            raise BudgetSpent(Window.DAY, midnight(next_day(hold.day)))
        self._remember(hold, now)
        return hold

    async def settle(self, hold: Hold, *, tokens: int, micro_usd: int) -> None:
        charge = Charge(hold, whole(tokens), whole(micro_usd))
        self._open.pop(hold.id, None)
        try:
            await self._charge(charge)
        except StoreUnavailable as error:
            log.warning("charge_kept_for_later", hold_id=str(hold.id), tokens=tokens, micro_usd=micro_usd, error=str(error))
            self._owe(charge)
        except asyncio.CancelledError:
            self._owe(charge)  # who is cancelled has still used what was used
            raise

    async def release(self, hold: Hold) -> None:
        self._open.pop(hold.id, None)
        try:
            await self._counters.run("release", user_keys(hold.user_id, hold.day), [lease_of(hold)])
        except UNREACHABLE as error:
            log.warning("hold_not_released", hold_id=str(hold.id), expires_at=hold.expires_at.isoformat(), error=type(error).__name__)

    async def used(self, user_id: UUID) -> Used:
        now = self._clock.now().astimezone(UTC)
        with reachable():
            _, *numbers = await self._counted("used", user_id, now.date(), (in_ms(now), now.day))
        day_tokens, day_held, day_micro_usd, month_tokens, month_held = map(int, numbers)
        return Used(day_tokens=day_tokens, day_held=day_held, day_micro_usd=day_micro_usd, month_tokens=month_tokens, month_held=month_held)

    @property
    def owed(self) -> int:
        """How many charges wait in this process until Redis is back."""
        return len(self._owed)

    async def aclose(self) -> None:
        """Stop sending charges. What is still owed stays in SQL alone."""
        if self._replayer is not None:
            self._replayer.cancel()
            await asyncio.gather(self._replayer, return_exceptions=True)
            self._replayer = None

    def _remember(self, hold: Hold, now: datetime) -> None:
        """Keep a hold as long as its lease, so that it can be reserved again if Redis loses it meanwhile."""
        self._open[hold.id] = hold
        for oldest in tuple(itertools.islice(self._open.values(), 2)):  # two out for one in: those of callers that died do not pile up
            if oldest.expires_at <= now:
                del self._open[oldest.id]

    async def _charge(self, charge: Charge) -> None:
        hold, tokens, micro_usd = charge
        now = self._clock.now().astimezone(UTC)
        if hold.day + timedelta(days=KEEP_DAYS) <= now.date():
            log.warning("charge_dropped", hold_id=str(hold.id), tokens=tokens, day=hold.day.isoformat())
            return  # nobody knows any more whether it was settled before
        args = (
            *(hold.day.day, hold.id.hex, lease_of(hold), tokens, micro_usd, hold.day_limit, hold.month_limit),
            kept_s(next_day(hold.day), now),
        )
        with reachable():
            _, *passed = await self._counted("settle", hold.user_id, hold.day, args)
        for label, percent in zip(passed[::2], passed[1::2], strict=True):
            await self._warn(hold, Window.MONTH if label == b"month" else Window.DAY, percent)

    async def _warn(self, hold: Hold, window: Window, percent: int) -> None:
        period = f"{hold.day:%Y-%m}" if window is Window.MONTH else hold.day.isoformat()
        limit = hold.month_limit if window is Window.MONTH else hold.day_limit
        if await is_first(self._transactions, self._calls, str(hold.user_id), period, percent):
            facts = {"user_id": str(hold.user_id), "window": str(window), "period": period, "percent": percent, "limit_tokens": limit}
            self._alerts.alert("budget_threshold", **facts)

    async def _counted(self, script: str, user_id: UUID, day: date, args: Sequence[Any]) -> list[Any]:
        """Run a script on a user's month, which is rebuilt first where Redis does not have it."""
        keys = [*user_keys(user_id, day), settled_key(user_id, day)]
        return await self._counters.counted(script, keys, args, of=keys[1], rebuild=partial(self._rebuild, user_id, day))

    async def _rebuild(self, user_id: UUID, day: date, lock: str, token: str) -> None:
        now = self._clock.now()
        since, until = day.replace(day=1), next_month(day)
        ids_since = now.astimezone(UTC).date() - timedelta(days=KEEP_DAYS)
        async with self._transactions.begin() as tx:
            days = await self._calls.by_day(tx, user_id, since=since, until=until, ids_since=ids_since)
        recent = [found for found in days if found.day >= ids_since]
        # Calls that are under way have no row yet, and only their own process knows of them; those of others count when they settle.
        mine = [hold for hold in self._open.values() if (hold.user_id, hold.day.replace(day=1)) == (user_id, since)]
        counted = {
            "used": str(sum(found.spent.tokens for found in days)),
            "days": [[str(found.day.day), str(found.spent.tokens), str(found.spent.micro_usd)] for found in days],
            "settled": [[call_id.hex for call_id in found.ids] for found in recent],
            "leases": [[lease_of(hold), str(in_ms(hold.expires_at))] for hold in mine],
        }
        keys = [*user_keys(user_id, day), lock, *(settled_key(user_id, found.day) for found in recent)]
        ttls = (kept_s(until, now), (KEEP_DAYS + 1) * 86_400)
        await self._counters.run("rebuild_user", keys, [token, *ttls, json.dumps(counted)])
        log.info("budget_rebuilt", user_id=str(user_id), month=f"{since:%Y-%m}", days=len(days), holds=len(mine))

    def _owe(self, charge: Charge) -> None:
        if len(self._owed) >= self._owed_max:
            dropped = self._owed.pop(next(iter(self._owed)))
            log.warning("charge_dropped", hold_id=str(dropped.hold.id), tokens=dropped.tokens, owed=len(self._owed))
        self._owed[charge.hold.id] = charge
        if self._replayer is None or self._replayer.done():
            self._replayer = asyncio.create_task(self._replay(), name="budgets")

    async def _replay(self) -> None:
        """Send what is owed, oldest first, until nothing is."""
        failures = 0
        while self._owed:
            charge = next(iter(self._owed.values()))
            try:
                await self._charge(charge)
            except StoreUnavailable:
                failures += 1
                # Full jitter: when Redis is back, every process has something to send.
                await asyncio.sleep(random.uniform(0, min(self._longest_pause_s, 0.05 * 2 ** min(failures, 10))))  # noqa: S311  # no secret
            else:
                failures = 0
                self._owed.pop(charge.hold.id, None)


class RedisSpend:
    """The port Spend. The latch is in SQL, read again at most every `poll_s`; the counter at its ceiling makes others look at once."""

    def __init__(
        self,
        redis: Redis,
        transactions: Transactions,
        calls: Calls,
        *,
        latches: Latches,
        alerts: Alerts,
        clock: Clock,
        poll_s: float = 1.0,
        wait_s: float = 0.25,
    ) -> None:
        """`wait_s` is how long a call waits for a counter that another process rebuilds, before it goes on without."""
        self._counters = Counters(redis, wait_s)
        self._transactions, self._calls, self._latches = transactions, calls, latches
        self._alerts, self._clock, self._poll_s = alerts, clock, poll_s
        self._latch: Latch | None = None
        self._unsaved: Latch | None = None
        self._looked_at: float | None = None
        self._looking = asyncio.Lock()
        self._changes = 0
        self._behind: set[date] = set()
        self._is_blind = False

    async def admit(self, cap_micro_usd: int | None) -> None:
        if await self.latched() is not None:
            raise Paused(PauseReason.KILL_SWITCH, None)
        day = self._today()
        try:
            spent, *passed = await self._counted("admit", day, [0 if cap_micro_usd is None else whole(cap_micro_usd)])
        except (StoreUnavailable, *UNREACHABLE) as error:
            self._see(error)
            return
        self._see(None)
        for percent in passed[1::2]:
            await self._warn(day, percent, int(spent), cap_micro_usd)
        if int(spent) >= CEILING_MICRO_USD:
            await self._look(not_before=time.monotonic())
            raise Paused(PauseReason.KILL_SWITCH, None if self._latch else midnight(next_day(day)))
        if cap_micro_usd is not None and int(spent) >= cap_micro_usd:
            raise Paused(PauseReason.CAP, midnight(next_day(day)))

    async def add(self, micro_usd: int, *, day: date | None = None, call_id: UUID | None = None) -> None:
        today = self._today()
        args = [whole(micro_usd), call_id.hex if call_id else ""]
        try:
            await self._counted("add", day or today, args)
        except (StoreUnavailable, *UNREACHABLE) as error:
            self._behind = {late for late in self._behind if late >= today - timedelta(days=1)} | {day or today}
            self._see(error)

    async def kill_switch(self, reason: str, by: str) -> None:
        # Also where a latch is known already: it may have been released a moment ago, elsewhere.
        self._unsaved = Latch(self._clock.now(), by, reason)
        self._latch = self._latch or self._unsaved
        self._changes += 1
        log.warning("kill_switch_engaged", by=by, reason=reason)
        day = self._today()
        try:
            await self._counters.run("kill", global_keys(day)[:2], [CEILING_MICRO_USD, self._kept_s(day)])
        except UNREACHABLE as error:
            log.warning("kill_switch_not_in_redis", error=type(error).__name__)  # the latch holds without it
        await self._save()

    async def release(self, by: str) -> None:
        async with self._transactions.begin() as tx:
            await self._latches.release(tx, by)
        self._latch = self._unsaved = None
        self._changes += 1
        log.warning("kill_switch_released", by=by)
        _, counter, state, *_ = global_keys(self._today())
        with reachable():  # the lock, too: who is rebuilding right now may have read the latch before
            await self._counters.run("forget", [GENERATION, state, counter, f"{state}:rebuild"], [])

    async def latched(self) -> Latch | None:
        due = time.monotonic() - self._poll_s
        # While one looks, the others go by what was seen last; only the very first answer has to be waited for.
        if self._looked_at is None or (self._looked_at < due and not self._looking.locked()):
            await self._look(not_before=due)
        return self._latch

    async def _look(self, *, not_before: float) -> None:
        """Read the latch, or save the one that could not be saved. Without SQL, what is known stands; before anything is known, raises."""
        async with self._looking:
            if self._looked_at is not None and self._looked_at >= not_before:
                return
            started, changes = time.monotonic(), self._changes
            try:
                async with asyncio.timeout(max(self._poll_s, 1.0)):
                    if self._unsaved is not None:
                        await self._save()
                    async with self._transactions.begin() as tx:
                        found = await self._latches.engaged(tx)
            except (StoreUnavailable, TimeoutError) as error:
                if self._looked_at is None and self._latch is None:
                    raise StoreUnavailable("nobody can say whether the kill switch is engaged") from error
                log.warning("kill_switch_not_read", error=type(error).__name__)
            else:
                if changes == self._changes:  # else the switch was used here after that was read
                    if (found is None) != (self._latch is None):
                        log.warning("kill_switch_seen", is_engaged=found is not None, by=found.by if found else None)
                    self._latch = found
            self._looked_at = started

    async def _save(self) -> None:
        if self._unsaved is not None:
            unsaved, changes = self._unsaved, self._changes
            async with self._transactions.begin() as tx:
                latch = await self._latches.engage(tx, unsaved.by, unsaved.reason)
            if changes == self._changes:
                self._latch, self._unsaved = latch, None

    async def _warn(self, day: date, percent: int, spent: int, cap: int | None) -> None:
        if await is_first(self._transactions, self._calls, "platform", day.isoformat(), percent):
            facts = {"user_id": None, "window": "cap", "period": day.isoformat(), "percent": percent}
            self._alerts.alert("budget_threshold", **facts, spent_micro_usd=spent, cap_micro_usd=cap)

    async def _counted(self, script: str, day: date, args: Sequence[Any]) -> list[Any]:
        """Run a script on a day's counter, which is rebuilt first where Redis does not have it, or missed an amount of this process."""
        keys = global_keys(day)
        state = keys[2]
        if day in self._behind:
            await self._counters.run("forget", [GENERATION, state], [])
            self._behind.discard(day)
        return await self._counters.counted(script, keys, args, of=state, rebuild=partial(self._rebuild, day))

    async def _rebuild(self, day: date, lock: str, token: str) -> None:
        async with self._transactions.begin() as tx:
            found = await self._calls.on_day(tx, day, recent_s=RECENT_S)
            latch = await self._latches.engaged(tx)
        micro_usd = CEILING_MICRO_USD if latch else found.spent.micro_usd
        ids = json.dumps([call_id.hex for call_id in found.ids])
        args = [token, self._kept_s(day), micro_usd, CEILING_MICRO_USD, ids]
        await self._counters.run("rebuild_global", [*global_keys(day), lock], args)
        log.info("spend_rebuilt", day=day.isoformat(), micro_usd=micro_usd, calls=found.spent.calls)

    def _see(self, error: Exception | None) -> None:
        """Say once that the cap is not enforced, and once that it is again."""
        if error is not None and not self._is_blind:
            log.warning("spend_not_seen", error=type(error).__name__)
        elif error is None and self._is_blind:
            log.info("spend_seen_again")
        self._is_blind = error is not None

    def _today(self) -> date:
        return self._clock.now().astimezone(UTC).date()

    def _kept_s(self, day: date) -> int:
        return kept_s(next_day(day), self._clock.now())


class Counters:
    """The scripts, and the way to run one whose counters may be gone."""

    def __init__(self, redis: Redis, wait_s: float) -> None:
        self._scripts: dict[str, AsyncScript] = {name: redis.register_script(text) for name, text in SCRIPTS.items()}
        self._wait_s = wait_s
        self._lines = asyncio.Semaphore(AT_ONCE)

    async def run(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """Run a script. Raises one of UNREACHABLE."""
        async with asyncio.timeout(self._wait_s):
            await self._lines.acquire()
        try:
            return await self._scripts[name](keys=keys, args=args)
        finally:
            self._lines.release()

    async def counted(
        self, name: str, keys: Sequence[str], args: Sequence[Any], *, of: str, rebuild: Callable[[str, str], Awaitable[None]]
    ) -> list[Any]:
        """Run a script that says `rebuild` when its counters (the hash `of`) are gone; then one process does, and all others wait for it.

        Raises StoreUnavailable when that takes too long."""
        give_up, lock = time.monotonic() + self._wait_s, f"{of}:rebuild"
        while (reply := await self.run(name, keys, args))[0] == b"rebuild":
            if time.monotonic() > give_up:
                raise StoreUnavailable("the counters are being rebuilt; try again")
            token = uuid4().hex
            turn = await self.run("lock", [GENERATION, of, lock], [token, LOCK_MS])
            if turn == b"yours":
                try:
                    await rebuild(lock, token)
                except BaseException:
                    with suppress(*UNREACHABLE):
                        await self.run("unlock", [GENERATION, lock], [token])  # whoever waits may be luckier
                    raise
            elif turn == b"busy":
                await asyncio.sleep(random.uniform(0.002, 0.01))  # noqa: S311  # no secret
        return list(reply)


async def is_first(transactions: Transactions, calls: Calls, subject: str, period: str, percent: int) -> bool:
    """Whether a person was not told of this threshold before, as SQL remembers it: the flag in Redis may have been lost.

    Rather twice than never: True where SQL cannot say."""
    try:
        async with transactions.begin() as tx:
            return await calls.alerted(tx, subject, period, percent)
    except StoreUnavailable:
        return True


def load(text: str) -> dict[str, str]:
    """Cut a file of scripts at its `-- name:` lines; what stands before the first one goes in front of each."""
    shared, *parts = re.split(r"^-- name: ([a-z_]+)$", text, flags=re.MULTILINE)
    return {name: shared + body for name, body in zip(parts[::2], parts[1::2], strict=True)}


SCRIPTS = load((resources.files(__package__) / "budgets.lua").read_text(encoding="utf-8"))


def user_keys(user_id: UUID, day: date) -> list[str]:
    month = f"hermes:budgets:{user_id}:{day:%Y-%m}"
    return [GENERATION, month, f"{month}:leases"]


def settled_key(user_id: UUID, day: date) -> str:
    return f"hermes:budgets:{user_id}:{day.isoformat()}:settled"


def global_keys(day: date) -> list[str]:
    state = f"hermes:budgets:global:{day.isoformat()}"
    return [GENERATION, f"agnt:global_spend:{day.isoformat()}", state, f"{state}:counted"]


def lease_of(hold: Hold) -> str:
    return f"{hold.id.hex}:{hold.day.day}:{hold.tokens}"


def next_day(day: date) -> date:
    return day + timedelta(days=1)


def next_month(day: date) -> date:
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def midnight(day: date) -> datetime:
    """When a day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def in_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def kept_s(end: date, now: datetime) -> int:
    """How long to keep what belongs to a window that ends with this day. From now on, for the server may go by another clock."""
    return max(1, round((midnight(end) - now).total_seconds())) + KEEP_DAYS * 86_400


def whole(amount: object, *, least: int = 0) -> int:
    if not isinstance(amount, int) or amount < least:
        raise ValueError(f"expected a whole number from {least} up, got {amount!r}")
    return amount


@contextmanager
def reachable() -> Iterator[None]:
    """Attribute a lost connection to the store."""
    try:
        yield
    except UNREACHABLE as error:
        raise StoreUnavailable(f"Redis cannot be used: {type(error).__name__}") from error
