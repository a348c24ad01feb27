"""What is done by the clock: each chore at its interval, by one of all processes, and whatever becomes of one, the others go on.

Time is cut into slots, and a chore is done once in each of them. Whoever ticks first takes it and does it in the background; a process that
dies leaves a lease behind that runs out, and then another one takes the chore. Every chore may be cut off and repeated without harm, so
nothing here has to be exactly once. Knows nothing of what the chores are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from hermes.ports.chores import ChoreLease, Chores
from hermes.ports.errors import StoreUnavailable
from hermes.ports.transactions import Transactions
from hermes.tasks import end_tasks, stop_if_cancelled

log = structlog.get_logger()

ChoreAction = Callable[[datetime], Awaitable[object]]
"""Does a chore, as of a time."""

HOUR_S, DAY_S, WEEK_S = 3_600.0, 86_400.0, 604_800.0
MONDAY_S = 4 * DAY_S
"""From the beginning of Unix time, which was a Thursday, to the first Monday."""
RECHECK_S = 15.0
"""How soon to look again at a chore that was done in its slot, or that somebody is at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Something to do now and then."""

    name: str
    every_s: float
    do: ChoreAction
    begins_s: float = 0.0
    """Where its slots begin: seconds after 1970-01-01, 00:00 UTC."""

    def slot(self, now: datetime) -> int:
        """The number of the slot that a time lies in."""
        return int((now.timestamp() - self.begins_s) // self.every_s)

    def next(self, now: datetime) -> datetime:
        """When the next slot begins."""
        return datetime.fromtimestamp(self.begins_s + (self.slot(now) + 1) * self.every_s, UTC)


def default_chores(
    *, remind: ChoreAction, dream_lightly: ChoreAction, dream_deeply: ChoreAction, re_embed: ChoreAction, remind_every_s: float = 10.0
) -> tuple[Chore, ...]:
    """What Hermes does by the clock. Dreams are for the night, UTC: light ones every day at three, deep ones on Mondays at four."""
    return (
        Chore(name="reminders", every_s=remind_every_s, do=remind),
        Chore(name="light_dreams", every_s=DAY_S, do=dream_lightly, begins_s=3 * HOUR_S),
        Chore(name="deep_dreams", every_s=WEEK_S, do=dream_deeply, begins_s=MONDAY_S + 4 * HOUR_S),
        Chore(name="re_embedding", every_s=HOUR_S, do=re_embed),
    )


class ChoreScheduler:
    """Does chores. One for each process; `tick` it now and then, and close it before the stores."""

    def __init__(
        self, transactions: Transactions, rota: Chores, chores: Sequence[Chore], *, lease_s: float = 60.0, pause_s: float = 60.0
    ) -> None:
        """`lease_s` is how long a chore is believed to be in the hands of a process that gives no sign of life, `pause_s` how long a chore
        that failed is left alone, if that is not longer than its interval."""
        self._transactions, self._rota, self._chores = transactions, rota, tuple(chores)
        self._lease_s, self._pause_s = lease_s, pause_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._look_at: dict[str, datetime] = {}

    async def tick(self, now: datetime) -> None:
        """Begin what is due and nobody does. Takes as long as a look into the database; the chores run beside it. Never raises for a store
        that is away."""
        for chore in self._chores:
            running = self._running.get(chore.name)
            if (running is not None and not running.done()) or now < self._look_at.get(chore.name, now):
                continue
            try:
                async with self._transactions.begin() as tx:
                    duty = await self._rota.take(tx, chore.name, chore.slot(now), lease_s=self._lease_s)
            except StoreUnavailable as error:
                log.warning("clock_stopped", chore=chore.name, error=type(error).__name__)
                return
            if duty is None:
                self._look_at[chore.name] = min(now + timedelta(seconds=RECHECK_S), chore.next(now))
                continue
            self._running[chore.name] = asyncio.create_task(self._run(chore, duty, now), name=f"chore {chore.name}")

    async def idle(self) -> None:
        """Wait until nothing is being done any more. For tests, and for whoever wants to see the end of it."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def aclose(self) -> None:
        """Stop whatever is being done here, and leave it to others."""
        await end_tasks(*self._running.values())

    async def _run(self, chore: Chore, duty: ChoreLease, now: datetime) -> None:
        doing = asyncio.current_task()
        assert doing is not None  # noqa: S101  # this is one
        keeping = asyncio.create_task(self._keep(duty, doing))
        try:
            await chore.do(now)
        except asyncio.CancelledError:
            await self._give_back(duty, 0.0)
            raise
        except Exception as error:  # noqa: BLE001  # a chore may fail in any way; it is said here, and tried again
            log.warning("chore_failed", chore=chore.name, error=type(error).__name__)
            await self._give_back(duty, min(self._pause_s, chore.every_s))
        else:
            await self._end(duty)
        finally:
            await end_tasks(keeping)

    async def _keep(self, duty: ChoreLease, doing: asyncio.Task[None]) -> None:
        """Give signs of life. Whoever was away for so long that another one took the chore stops."""
        while True:
            await asyncio.sleep(self._lease_s / 3)
            with suppress(StoreUnavailable):
                async with self._transactions.begin() as tx:
                    is_ours = await self._rota.keep(tx, duty, lease_s=self._lease_s)
                if not is_ours:
                    log.warning("chore_taken_over", chore=duty.chore)
                    doing.cancel()
                    return
            stop_if_cancelled()

    async def _end(self, duty: ChoreLease) -> None:
        with suppress(StoreUnavailable):  # then it is done again, which does no harm
            async with self._transactions.begin() as tx:
                await self._rota.end(tx, duty)

    async def _give_back(self, duty: ChoreLease, pause_s: float) -> None:
        with suppress(StoreUnavailable):  # then the lease runs out by itself
            async with self._transactions.begin() as tx:
                await self._rota.give_back(tx, duty, pause_s=pause_s)
