"""Empty the journal of turns that ended long ago: what models were asked and answered, and what tools brought. The facts stay: names,
numbers, times, so that every turn can still be told, and no content is kept longer than it is of use.

Works in batches, each in a transaction of its own. A run that is cut off is continued by the next one, because emptied entries leave the
list of those that have content."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from hermes.ports.runtime import Transactions
from hermes.ports.sessions import Journal

log = structlog.get_logger()

BATCH_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class JournalRetention:
    """Empties old content of the journal."""

    transactions: Transactions
    journal: Journal
    keep_days: int
    """Days that the content of a turn is kept after its end; 0 keeps it for ever."""
    batch_size: int = BATCH_SIZE
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def empty_old(self, now: datetime) -> int:
        """Empty everything that is too old; return how many entries were emptied. Raises StoreUnavailable; what was emptied stays so."""
        if not self.keep_days:
            return 0
        ended_before, after_id, emptied, has_more = now - timedelta(days=self.keep_days), 0, 0, True
        while has_more:
            began = time.monotonic()
            async with self.transactions.once() as tx:
                batch = await self.journal.empty(tx, ended_before=ended_before, after_id=after_id, limit=self.batch_size)
            after_id, has_more, emptied = batch.last_id, batch.has_more, emptied + batch.emptied
            # After years without retention the first run is long. It leaves the turns at least half of the database's time.
            await self.pause(time.monotonic() - began if has_more else 0.0)
        if emptied:
            log.info("journal_emptied", entries=emptied, ended_before=ended_before.isoformat())
        return emptied
