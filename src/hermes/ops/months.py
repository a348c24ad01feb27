"""Keep the months in which calls and the journal are stored: make them ahead, drop those of old calls, and rewrite those of the journal
whose content was emptied. So both tables grow without holes, and old calls go without a statement for each row.

Works in transactions of its own, each short enough that a turn waits for it no longer than two seconds; what cannot be done now is done by
the next run. The one exception is the rewriting of a month: the turns of that month cannot be read meanwhile, and no other turn waits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta

import structlog

from hermes.ports.errors import StoreUnavailable
from hermes.ports.runtime import Months, Transactions

log = structlog.get_logger()

BATCH_SIZE = 1_000
MIN_CALLS_DAYS = 62
"""The budgets of a month, and those of the month before that an operator looks at, are counted from the rows of calls."""


@dataclass(frozen=True, slots=True)
class MonthKeeper:
    """Keeps the months of calls and of the journal."""

    transactions: Transactions
    months: Months
    journal_days: int
    """Days that the journal's content is kept; 0: for ever."""
    calls_days: int
    """Days that calls are kept; 0: for ever."""
    batch_size: int = BATCH_SIZE

    async def keep(self, now: datetime) -> None:
        """Do what is due. Raises StoreUnavailable, also when a lock was not given in time; what was done stays so."""
        async with self.transactions.begin() as tx:
            made = await self.months.make(tx, now)
        if made:
            log.info("months_made", months=list(made))
        if self.calls_days:
            await self._drop_calls(first_day(now - timedelta(days=max(self.calls_days, MIN_CALLS_DAYS))))
        if self.journal_days:
            await self._rewrite((now - timedelta(days=self.journal_days)).date())
        async with self.transactions.begin() as tx:
            await self.months.analyze(tx, now)

    async def _drop_calls(self, before: date) -> None:
        async with self.transactions.begin() as tx:
            dropped = await self.months.drop_calls(tx, before)
        deleted, count = 0, self.batch_size
        while count == self.batch_size:
            async with self.transactions.begin() as tx:
                count = await self.months.delete_calls(tx, before, limit=self.batch_size)
            deleted += count
        if dropped or deleted:
            log.info("calls_dropped", months=list(dropped), rows=deleted, before=before.isoformat())

    async def _rewrite(self, before: date) -> None:
        while True:
            try:
                async with self.transactions.begin() as tx:
                    rewritten = await self.months.rewrite_emptied(tx, before)
            except StoreUnavailable as error:
                # A backup reads the month: the next run rewrites it.
                log.info("month_not_rewritten", error=str(error))
                return
            if rewritten is None:
                return
            log.info("month_rewritten", month=rewritten)


def first_day(at: datetime) -> date:
    """The first day of the month, so that whole months go."""
    return at.date().replace(day=1)
