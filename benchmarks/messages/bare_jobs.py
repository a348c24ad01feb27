"""The job queue by itself: jobs that do nothing, each deferred, fetched, run under a lock and ended. No message can be faster."""

from __future__ import annotations

import asyncio
import time

import procrastinate
from procrastinate.worker import Worker
from psycopg_pool import AsyncConnectionPool

from hermes.stores.postgres.database import configure_connection

LOCKS = 400


async def bare_jobs_per_s(database_url: str, count: int, *, at_once: int) -> float:
    """Defer jobs, so many at once, while a worker of this process runs them; return how many were ended in a second."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    done, left = asyncio.Event(), count

    @app.task(name="nothing", queue="bare")
    async def nothing() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    pool = AsyncConnectionPool(database_url, min_size=2, max_size=8, open=False, configure=configure_connection)
    async with pool, app.open_async(pool):
        worker = Worker(app, queues=["bare"], concurrency=at_once, install_signal_handlers=False, delete_jobs="successful")
        working = asyncio.create_task(worker.run())  # type: ignore[no-untyped-call]
        gate = asyncio.Semaphore(at_once)

        async def one(number: int) -> None:
            async with gate:
                await nothing.configure(lock=f"bare:{number % LOCKS}").defer_async()

        began = time.perf_counter()
        await asyncio.gather(*(one(number) for number in range(count)))
        async with asyncio.timeout(120):
            await done.wait()
        took_s = time.perf_counter() - began
        worker.stop()  # type: ignore[no-untyped-call]
        await working
    return count / took_s
