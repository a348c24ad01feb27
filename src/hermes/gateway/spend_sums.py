"""The chores that sum up calls and tools by the hour. Every step is one hour in one transaction, so the first sums of a large table are
many short steps, and a process that is stopped in between goes on where it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from hermes.ports.runtime import Transactions
from hermes.ports.spending import SpendSums, SumSource, SumWindow

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ORDER = (SumSource.TOOLS, SumSource.CALLS)
"""Tools first: what they cost is a part of what the calls cost, and never more, also while calls are recorded meanwhile."""


@dataclass(frozen=True, slots=True)
class HourSummer:
    """Makes sums by the hour. May be cut off, repeated, and run by two processes at once."""

    transactions: Transactions
    sums: SpendSums

    async def sum_recent(self, _: datetime | None = None) -> None:
        """Make the sums of the hours that may have new rows: the last two, and more after a long transaction or a pause."""
        for source in ORDER:
            async with self.transactions.once() as tx:
                window = await self.sums.window(tx, source)
            if window is not None:
                await self._sum(source, window)

    async def sum_yesterday(self, now: datetime) -> None:
        """Make the sums of the UTC day before `now` again, also for rows that an import or a restore has put there since."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for source in ORDER:
            async with self.transactions.once() as tx:
                window = await self.sums.window(tx, source)
            if window is not None:
                await self._sum(source, SumWindow(min(window.since, midnight - DAY), window.open_since))

    async def _sum(self, source: SumSource, window: SumWindow) -> None:
        hour = await self._next_hour(source, window.since)
        while hour is not None:
            following = await self._next_hour(source, hour + HOUR)
            # Until the last hour is summed, the mark is not beyond the hours that still have to be.
            summed_to = window.open_since if following is None else min(hour + HOUR, window.open_since)
            async with self.transactions.begin() as tx:
                await self.sums.sum_hour(tx, source, hour, summed_to=summed_to)
            hour = following

    async def _next_hour(self, source: SumSource, since: datetime) -> datetime | None:
        async with self.transactions.once() as tx:
            return await self.sums.next_hour(tx, source, since)
