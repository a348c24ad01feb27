"""Delete content that was kept long enough: messages and message graphs. Numbers, times and money stay.

Works in batches, each in a transaction of its own. A run that is cut off is continued by the next one: what was emptied is not found
again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from hermes.event_log import get_logger
from hermes.ports.runtime import Transaction, Transactions
from hermes.stores.postgres.database import execute, fetch_rows
from hermes.stores.postgres.queries import load_queries

log = get_logger(__name__)

SQL = load_queries("retention")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRetention:
    """Deletes old content. 0 days keep it for ever."""

    messages_days: int
    graphs_days: int
    idle_s: float
    """A session that was silent for less may still go on."""
    batch_size: int = 500
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def delete_old(self, transactions: Transactions, now: datetime) -> int:
        """Delete everything that is too old; return how many rows that were, with a message graph as one. Raises StoreUnavailable; what was
        deleted stays so."""
        total = 0
        for query, before in self._due(now):
            batches = self._delete_graphs if query == "delete_graphs" else partial(self._delete_rows, query)
            count = await self._repeat(transactions, batches, before)
            if count:
                log.info("content_deleted", what=query, rows=count, before=before.isoformat())
            total += count
        return total

    def _due(self, now: datetime) -> Iterator[tuple[str, datetime]]:
        if self.messages_days:
            before = now - timedelta(days=self.messages_days)
            yield from (("empty_messages", before), ("empty_answers", before))
        if self.graphs_days:
            yield "delete_graphs", now - max(timedelta(days=self.graphs_days), timedelta(seconds=self.idle_s))

    async def _repeat(self, transactions: Transactions, delete_batch: DeleteBatch, before: datetime) -> int:
        total, batch = 0, DeletedBatch(deleted=0, last=0, has_more=True)
        while batch.has_more:
            began = time.monotonic()
            async with transactions.begin() as tx:
                batch = await delete_batch(tx, before, batch.last)
            total += batch.deleted
            # After years without retention the first run is long. It leaves the turns at least half of the database's time.
            await self.pause(time.monotonic() - began if batch.has_more else 0.0)
        return total

    async def _delete_rows(self, query: str, tx: Transaction, before: datetime, _after: int) -> DeletedBatch:
        count = await execute(tx, SQL[query], {"before": before, "limit": self.batch_size})
        return DeletedBatch(count, 0, has_more=count == self.batch_size)

    async def _delete_graphs(self, tx: Transaction, before: datetime, after: int) -> DeletedBatch:
        values = {"before": before, "after": after, "limit": self.batch_size}
        [batch] = await fetch_rows(tx, DeletedBatch, SQL["delete_graphs"], values)
        return batch


class DeletedBatch(NamedTuple):
    """What one transaction deleted."""

    deleted: int
    last: int
    """The last session that it looked at, by its number."""
    has_more: bool


DeleteBatch = Callable[[Transaction, datetime, int], Awaitable[DeletedBatch]]
"""Deletes a batch of what is older than a time, after the session with a number."""
