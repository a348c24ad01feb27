"""Chores: work that one of all processes does at fixed intervals. If one chore fails, the others go on.

Time is cut into slots, and a chore is done once in each of them. The process that ticks first leases the chore and does it in the
background; if that process dies, its lease runs out and another process takes the chore. Every chore may be cut off and repeated without
harm, so nothing here has to be exactly once. Each transaction of a chore first checks the lease, so that a process that was paused and
wakes up writes nothing after another one took over. Does not know what the chores do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from hermes.event_log import get_logger
from hermes.ports.errors import LeaseLost, NotFound, StoreUnavailable
from hermes.ports.runtime import ChoreLease, Chores, Transaction, Transactions
from hermes.tasks import end_tasks, stop_if_cancelled

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ChoreRun:
    """What a chore is given when it is done."""

    now: datetime
    """The time of the tick that began it."""
    transactions: Transactions
    """For everything that the chore writes: every transaction raises LeaseLost if another process has taken the chore over."""


ChoreAction = Callable[[ChoreRun], Awaitable[object]]
"""Does a chore; returns what to tell an operator who asked for it, for instance how many users it was for."""

HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
MONDAY_S = 4 * DAY_S
"""Seconds from the beginning of Unix time, which was a Thursday, to the first Monday."""
RECHECK_S = 15.0
"""How soon to look again at a chore that is done for its slot, or that another process is doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreSchedule:
    """When a piece of work recurs."""

    name: str
    every_s: float
    begins_s: float = 0.0
    """When slot 0 begins: seconds after 1970-01-01, 00:00 UTC."""
    counts: str = ""
    """What the number counts that its action returns, in the singular: `user`. Empty: it returns none."""

    def slot(self, now: datetime) -> int:
        """The number of the slot that a time lies in."""
        return int((now.timestamp() - self.begins_s) // self.every_s)

    def next(self, now: datetime) -> datetime:
        """When the next slot begins."""
        return datetime.fromtimestamp(self.begins_s + (self.slot(now) + 1) * self.every_s, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore(ChoreSchedule):
    """A piece of work that recurs."""

    do: ChoreAction


WATCH_CHORE = "watch"
CHORE_SCHEDULES = (
    ChoreSchedule(name="reminders", every_s=10.0, counts="message"),
    ChoreSchedule(name="offers", every_s=60.0, counts="offer"),
    ChoreSchedule(name="light_dreams", every_s=DAY_S, begins_s=3 * HOUR_S, counts="user"),
    ChoreSchedule(name="deep_dreams", every_s=WEEK_S, begins_s=MONDAY_S + 4 * HOUR_S, counts="user"),
    ChoreSchedule(name="re_embedding", every_s=HOUR_S, counts="fact"),
    ChoreSchedule(name="journal_retention", every_s=HOUR_S, counts="entry"),
    ChoreSchedule(name="retention", every_s=DAY_S, begins_s=2 * HOUR_S, counts="row"),
    ChoreSchedule(name="vault", every_s=60.0, counts="key"),
    ChoreSchedule(name="spend_sums", every_s=60.0),
    ChoreSchedule(name="spend_sums_of_yesterday", every_s=DAY_S, begins_s=600.0),
    ChoreSchedule(name=WATCH_CHORE, every_s=60.0),
)
"""The chores of Hermes. Dreams run at night, UTC: light ones every day at three, deep ones on Mondays at four."""


def scheduled_chores(actions: Mapping[str, ChoreAction]) -> tuple[Chore, ...]:
    """Return the chores that these actions do, by name. Raises KeyError if a chore of the schedule has none."""
    return tuple(
        Chore(name=each.name, every_s=each.every_s, begins_s=each.begins_s, counts=each.counts, do=actions[each.name])
        for each in CHORE_SCHEDULES
    )


class ChoreBusy(Exception):
    """Another process is doing this chore now."""


class ChoreScheduler:
    """Does chores. One for each process; the caller ticks it every few seconds, and closes it before the stores."""

    def __init__(
        self,
        transactions: Transactions,
        leases: Chores,
        chores: Sequence[Chore],
        *,
        lease_s: float = 60.0,
        pause_s: float = 60.0,
        holder: UUID | None = None,
    ) -> None:
        """`lease_s` is how long a process keeps a chore that it no longer renews. `pause_s` is the wait after a failure; it is never longer
        than the chore's interval. `holder` is the id of this process."""
        self._transactions, self._leases, self._chores = transactions, leases, tuple(chores)
        self._lease_s, self._pause_s, self._holder = lease_s, pause_s, holder
        self._running: dict[str, asyncio.Task[None]] = {}
        self._look_again_at: dict[str, datetime] = {}

    async def tick(self, now: datetime) -> None:
        """Begin the chores that are due and that no process is doing. Takes a database query for each; the chores run in the background.
        Does not raise StoreUnavailable."""
        for chore in self._chores:
            running = self._running.get(chore.name)
            if (running is not None and not running.done()) or now < self._look_again_at.get(chore.name, now):
                continue
            try:
                async with self._transactions.begin() as tx:
                    lease = await self._leases.take(tx, chore.name, chore.slot(now), lease_s=self._lease_s, holder=self._holder)
            except StoreUnavailable as error:
                log.warning("clock_stopped", chore=chore.name, error=type(error).__name__)
                return
            if lease is None:
                self._look_again_at[chore.name] = min(now + timedelta(seconds=RECHECK_S), chore.next(now))
                continue
            self._running[chore.name] = asyncio.create_task(self._run(chore, lease, now), name=f"chore {chore.name}")

    async def run_now(self, name: str, now: datetime) -> object:
        """Do a chore at once, also if it was done in this slot already; return what its action returned. If this process dies meanwhile,
        another one does the chore. Raises NotFound, ChoreBusy, LeaseLost if another process took over, and the chore's own errors."""
        chore = next((chore for chore in self._chores if chore.name == name), None)
        if chore is None:
            raise NotFound(f"there is no chore {name!r}; there are: {', '.join(sorted(chore.name for chore in self._chores))}")
        async with self._transactions.begin() as tx:
            lease = await self._leases.take(tx, chore.name, chore.slot(now), lease_s=self._lease_s, holder=self._holder, even_if_done=True)
        if lease is None:
            raise ChoreBusy
        return await self._do(chore, lease, now)

    async def idle(self) -> None:
        """Wait until the chores that run here have ended. For tests, and for callers that need their results."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def aclose(self) -> None:
        """Stop the chores that run here, and leave them to other processes."""
        await end_tasks(*self._running.values())

    async def _run(self, chore: Chore, lease: ChoreLease, now: datetime) -> None:
        try:
            await self._do(chore, lease, now)
        except LeaseLost:
            log.warning("chore_taken_over", chore=chore.name)
        except Exception as error:  # noqa: BLE001  # a chore may fail in any way; the log says so, and it is tried again
            log.warning("chore_failed", chore=chore.name, error=type(error).__name__)

    async def _do(self, chore: Chore, lease: ChoreLease, now: datetime) -> object:
        """Do a chore under its lease, and end or give back the lease."""
        running = asyncio.current_task()
        assert running is not None  # noqa: S101  # this is one
        lost = asyncio.Event()
        renewing = asyncio.create_task(self._renew(lease, running, lost))
        try:
            result = await chore.do(ChoreRun(now, FencedTransactions(self._transactions, self._leases, lease)))
        except asyncio.CancelledError:
            if lost.is_set() and not running.uncancel():
                raise LeaseLost from None
            await self._give_back(lease, 0.0)
            raise
        except Exception as error:
            await self._give_back(lease, min(self._pause_s, chore.every_s), failed=type(error).__name__)
            raise
        else:
            await self._end(lease)
            return result
        finally:
            await end_tasks(renewing)

    async def _renew(self, lease: ChoreLease, running: asyncio.Task[object], lost: asyncio.Event) -> None:
        """Renew the lease. Cancel the chore if another process has taken it over, because this one did not renew in time: its next
        transaction would raise LeaseLost, but until then it could still wait for a model."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(StoreUnavailable):
                async with self._transactions.begin() as tx:
                    is_ours = await self._leases.keep(tx, lease, lease_s=self._lease_s)
                if not is_ours:
                    lost.set()
                    running.cancel()
                    return
            stop_if_cancelled()

    async def _end(self, lease: ChoreLease) -> None:
        with suppress(StoreUnavailable):  # then it is done again, which does no harm
            async with self._transactions.begin() as tx:
                await self._leases.end(tx, lease)

    async def _give_back(self, lease: ChoreLease, pause_s: float, failed: str | None = None) -> None:
        with suppress(StoreUnavailable):  # then the lease runs out by itself
            async with self._transactions.begin() as tx:
                await self._leases.give_back(tx, lease, pause_s=pause_s, failed=failed)


@dataclass(frozen=True, slots=True)
class FencedTransactions:
    """The port Transactions for a chore: every transaction first checks that the lease is still this process's own.

    Costs one statement a transaction, which chores can afford: no user waits for them."""

    transactions: Transactions
    leases: Chores
    lease: ChoreLease

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        """Open a transaction under the lease. Raises LeaseLost, and as `Transactions.begin`."""
        async with self.transactions.begin() as tx:
            await self.leases.fence(tx, self.lease)
            yield tx

    def once(self) -> AbstractAsyncContextManager[Transaction]:
        """As `begin`: a single statement needs a transaction too, or the lease could be lost between the check and the write."""
        return self.begin()
