"""Works replays off: two of a batch at a time, in all processes together. A claim is renewed while its replay runs; if the process dies,
the claim becomes stale, and another process goes on with what was stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from hermes.console.replay_run import DryRunner
from hermes.event_log import get_logger
from hermes.ports.errors import StoreUnavailable
from hermes.ports.replays import Replay, Replays
from hermes.ports.runtime import Transactions
from hermes.tasks import end_tasks, stop_if_cancelled

log = get_logger(__name__)

AT_ONCE = 2


class ReplayWorker:
    """Runs the replays that wait. One for each process; the caller closes it before the models and the stores."""

    def __init__(self, transactions: Transactions, replays: Replays, runner: DryRunner, *, beat_s: float, stale_s: float) -> None:
        """`stale_s` is how long a claim holds that its process does not renew."""
        self._transactions, self._replays, self._runner = transactions, replays, runner
        self._beat_s, self._stale_s = beat_s, stale_s
        self._sweeping: asyncio.Task[None] | None = None
        self._started: set[asyncio.Task[None]] = set()

    async def sweep(self) -> None:
        """Begin to work off what waits, in the background, unless this process does it already. One query."""
        if self._sweeping is not None and not self._sweeping.done():
            return
        async with self._transactions.once() as tx:
            has_waiting = await self._replays.has_waiting(tx, stale_s=self._stale_s)
        if has_waiting:
            self._sweeping = asyncio.create_task(self.work_off(), name="replays")

    def start(self, ids: Sequence[UUID]) -> None:
        """Run these replays in the background of this process, so that their operator does not wait for the next sweep of a worker."""
        task = asyncio.create_task(self.work_off(ids), name="replays of an operator")
        self._started.add(task)
        task.add_done_callback(self._started.discard)

    async def work_off(self, ids: Sequence[UUID] | None = None) -> None:
        """Run what waits until nothing is left that this process may run; with ids, only these. An outage of the store ends it: the next
        sweep goes on."""
        lanes = AT_ONCE if ids is None else max(1, min(len(ids), 2 * AT_ONCE))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(self._work(ids))
        except* StoreUnavailable:
            log.warning("replays_stopped", error=StoreUnavailable.__name__)

    async def aclose(self) -> None:
        """Stop; what runs here is given back, and another process goes on with it."""
        await end_tasks(*([self._sweeping] if self._sweeping is not None else []), *self._started)

    async def _work(self, ids: Sequence[UUID] | None) -> None:
        while True:
            async with self._transactions.begin() as tx:
                claimed = await self._replays.claim(tx, stale_s=self._stale_s, at_once=AT_ONCE, ids=ids)
            if claimed is None:
                return
            try:
                async with self._renewing(claimed):
                    await self._runner.run(claimed)
            except asyncio.CancelledError:
                await self._give_back(claimed)
                raise

    async def _give_back(self, claimed: Replay) -> None:
        with suppress(StoreUnavailable):
            async with self._transactions.begin() as tx:
                await self._replays.give_back(tx, claimed)

    @asynccontextmanager
    async def _renewing(self, claimed: Replay) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                await asyncio.sleep(self._beat_s)
                with suppress(StoreUnavailable):
                    async with self._transactions.begin() as tx:
                        await self._replays.renew(tx, claimed)
                stop_if_cancelled()

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            await end_tasks(renewing)
