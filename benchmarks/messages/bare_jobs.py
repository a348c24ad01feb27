"""The job queue by itself: jobs that do nothing, each deferred, fetched, run under a lock and ended. No message can be faster.

On the same server: in Hermes' database, whose migrations took Procrastinate's diary of jobs away (two rows for each job), before and after
the messages; and in a database of its own with Procrastinate's schema as it comes. The first few thousand jobs of a database run two to
three times as fast as later ones: ended jobs leave dead rows behind, over which each fetch passes until vacuum comes by. Messages meet the
same rows, so they are compared with the jobs that come after them."""

from __future__ import annotations

import asyncio
import time

import procrastinate
import psycopg
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


async def stock_jobs_per_s(database_url: str, count: int, *, at_once: int) -> float:
    """As `bare_jobs_per_s`, on Procrastinate's own schema."""
    name = "bare_jobs"
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        await connection.execute(f"drop database if exists {name}")
        await connection.execute(f"create database {name}")
    try:
        url = psycopg.conninfo.make_conninfo(database_url, dbname=name)
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
        return await bare_jobs_per_s(url, count, at_once=at_once)
    finally:
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(f"drop database {name} with (force)")
