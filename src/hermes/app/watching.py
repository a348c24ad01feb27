"""What a running service does for its operator beside its work: it sends alerts, checks its models and its disk, and watches the queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.app.clock import SystemClock
from hermes.app.home import home_of
from hermes.app.root import Hermes
from hermes.ops.disk import DiskWatch
from hermes.router.chores import WATCH_CHORE, ChoreScheduler
from hermes.tasks import end_tasks, stop_if_cancelled

TICK_S = 5.0


@asynccontextmanager
async def watch_over(hermes: Hermes, *, does_chore: bool = False) -> AsyncIterator[None]:
    """Send alerts, check the models and the disk, for as long as the block lasts.

    With `does_chore` also do the chore `watch`. Workers do it with the other chores; the web process does it too, so that a queue without
    any worker is noticed. The lease of the chore leaves one look a minute."""
    disk = DiskWatch(home_of(hermes.settings), hermes.adapters.alerts, limit_percent=hermes.settings.watch.disk_percent)
    chores = [chore for chore in hermes.background_jobs.chores if chore.name == WATCH_CHORE] if does_chore else []
    scheduler = ChoreScheduler(hermes.database, hermes.adapters.rota, chores, holder=hermes.process_id)
    tasks = [
        asyncio.create_task(hermes.adapters.alerting.sender.run(), name="alert sender"),
        asyncio.create_task(hermes.model_health.run(), name="model health"),
        asyncio.create_task(disk.run(), name="disk watch"),
        asyncio.create_task(tick(scheduler), name="watch"),
    ]
    try:
        yield
    finally:
        await end_tasks(*tasks)
        await scheduler.aclose()


async def tick(scheduler: ChoreScheduler) -> None:
    """Begin the chores that are due, again and again, until cancelled."""
    while True:
        await scheduler.tick(SystemClock().now())
        stop_if_cancelled()
        await asyncio.sleep(TICK_S)
