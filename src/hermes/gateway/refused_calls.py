"""The rows of calls that were refused: written behind the callers' backs, and few of them however many calls are refused.

A kill switch or a spent cap refuses every call, and programs repeat refused calls at once. So each process writes a row of its own for the
first `burst` refused calls and then for one a second. The calls beyond that are counted in groups that have everything equal but user and
turn; each minute has one row for each group, with the number of calls (`calls.times`). Knows nothing of why a call is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import replace

import structlog

from hermes.ports.errors import StoreUnavailable
from hermes.ports.models import ModelCall, ModelCalls
from hermes.ports.runtime import Transactions
from hermes.time_ids import new_time_id

log = structlog.get_logger()

MAX_GROUPS = 500
"""Groups of one minute. A refused call that would begin another one is left out, and the log says how many were."""


class RefusedCalls:
    """Takes refused calls, and writes them later. Not thread-safe: one event loop."""

    def __init__(self, *, burst: int = 60, rows_per_s: float = 1.0, group_s: float = 60.0) -> None:
        self._burst, self._rows_per_s, self._group_s = burst, rows_per_s, group_s
        self._tokens, self._refilled_at = float(burst), time.monotonic()
        self._rows: list[ModelCall] = []
        self._groups: dict[Hashable, ModelCall] = {}
        self._groups_began, self._left_out = 0.0, 0
        self._is_due = asyncio.Event()
        self._is_writing = False

    def add(self, call: ModelCall) -> bool:
        """Take a call. True if the caller has to start `write` now: it does not run yet."""
        if self._may_write_row():
            self._rows.append(call)
            self._is_due.set()
        else:
            self._count(call)
        is_first, self._is_writing = not self._is_writing, True
        return is_first

    def write_now(self) -> None:
        """Let `write` write the groups of this minute without waiting for its end."""
        self._groups_began = float("-inf")
        self._is_due.set()

    async def write(self, calls: ModelCalls, transactions: Transactions) -> None:
        """Write what was taken, and what is taken meanwhile, until nothing is left. Never raises StoreUnavailable: the rows are lost then,
        and the log says how many. No money is in them."""
        try:
            while self._rows or self._groups:
                self._is_due.clear()
                rows, self._rows = self._rows, []
                if self._groups and time.monotonic() >= self._groups_began + self._group_s:
                    rows, self._groups = [*rows, *self._groups.values()], {}
                await self._write_rows(rows, calls, transactions)
                if self._groups and not self._is_due.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(max(0.0, self._groups_began + self._group_s - time.monotonic())):
                            await self._is_due.wait()
        finally:
            self._is_writing = False

    async def _write_rows(self, rows: list[ModelCall], calls: ModelCalls, transactions: Transactions) -> None:
        try:
            for row in rows:
                async with transactions.once() as tx:
                    await calls.add(tx, row)
        except StoreUnavailable as error:
            log.warning("refused_calls_not_recorded", calls=sum(row.times for row in rows), error=type(error).__name__)
        if self._left_out:
            log.warning("refused_calls_left_out", calls=self._left_out)
            self._left_out = 0

    def _may_write_row(self) -> bool:
        now = time.monotonic()
        self._tokens = min(float(self._burst), self._tokens + (now - self._refilled_at) * self._rows_per_s)
        self._refilled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _count(self, call: ModelCall) -> None:
        key = (call.day, call.account_id, call.tier, call.source, call.purpose, call.agent, call.platform, call.api_key_id, call.error)
        known = self._groups.get(key)
        if known is not None:
            self._groups[key] = replace(known, times=known.times + call.times)
        elif len(self._groups) >= MAX_GROUPS:
            self._left_out += call.times
        else:
            if not self._groups:
                self._groups_began = time.monotonic()
            self._groups[key] = replace(call, id=new_time_id(), user_id=None, turn_id=None, session_id=None, attempts=(), waited_ms=None)
