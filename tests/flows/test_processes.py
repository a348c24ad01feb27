"""What a process writes about itself and the others, on the real stores: its row, that it is silent, and what its parent tells it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from hermes.app.processes import restart_news
from hermes.app.root import Hermes, open_hermes
from hermes.config import Secret, Settings, WorkSettings
from hermes.ports.processes import ProcessBeat, ProcessRecord, ProcessRestart, ProcessRole, ProcessState, RestartReason
from hermes.ports.users import UserState
from hermes.stores.postgres.database import connection_of
from hermes.testing.memory import MemoryAlerts
from hermes.turn import Envelope, MessageEvent, Platform

QUICK = WorkSettings(heartbeat_s=0.05, stalled_after_s=1.0, silent_after_s=0.5)


@asynccontextmanager
async def opened(database_url: str, redis_url: str, home: Path) -> AsyncIterator[tuple[Hermes, MemoryAlerts]]:
    alerts = MemoryAlerts()
    settings = Settings(home=home, database_url=Secret(database_url), redis_url=Secret(redis_url), work=QUICK)
    async with open_hermes(settings, adjust=lambda parts: replace(parts, alerts=alerts)) as hermes:
        yield hermes, alerts


async def own_row(hermes: Hermes) -> ProcessRecord | None:
    async with hermes.database.once() as tx:
        return next((row for row in await hermes.adapters.processes.all(tx) if row.id == hermes.process_id), None)


async def until_row(hermes: Hermes, is_so: Callable[[ProcessRecord], object]) -> ProcessRecord:
    async with asyncio.timeout(30):
        while True:
            row = await own_row(hermes)
            if row is not None and is_so(row):
                return row
            await asyncio.sleep(0.02)


async def events(hermes: Hermes) -> list[str]:
    async with hermes.database.once() as tx:
        return [event.type for event in await hermes.adapters.processes.events(tx)][::-1]


async def test_a_process_has_its_row_while_it_runs(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with opened(database_url, redis_url, tmp_path) as (hermes, alerts):
        async with hermes.process.beating(ProcessRole.SERVE):
            first = await until_row(hermes, lambda _: True)
            await until_row(hermes, lambda row: row.beat_at > first.beat_at)
        last = await own_row(hermes)
        assert last is not None
        assert (last.role, last.pid, last.state(1.0)) == (ProcessRole.SERVE, os.getpid(), ProcessState.STOPPED)
        assert (await events(hermes), alerts.alerts) == (["process_started", "process_stopped"], [])


async def test_a_worker_that_begins_no_turn_while_turns_wait_is_silent_until_one_ends(
    database_url: str, redis_url: str, tmp_path: Path
) -> None:
    async with opened(database_url, redis_url, tmp_path) as (hermes, alerts), hermes.process.beating(ProcessRole.WORKER):
        event = MessageEvent(platform=Platform.REST, sender_id="ann", text="hello")
        envelope = Envelope(event=event, account="shop", channel_id="ann", event_key="1")
        accepted = await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
        await until_row(hermes, lambda row: row.silent_at is not None)
        assert hermes.activity.is_silent
        assert [event for event, _ in alerts.alerts] == ["process_silent"]
        await hermes.turn(accepted.turn_id)
        await until_row(hermes, lambda row: row.silent_at is None and row.progress_at is not None)
        assert [event for event, _ in alerts.alerts] == ["process_silent"]
        await until_row(hermes, lambda _: bool(alerts.ended))
        assert [(event, facts["role"]) for event, facts in alerts.ended] == [("process_silent", "worker")]


async def test_the_age_of_the_oldest_turn_counts_turns_that_could_begin_now(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with opened(database_url, redis_url, tmp_path) as (hermes, _):

        async def oldest_s() -> float | None:
            async with hermes.database.once() as tx:
                return await hermes.work.oldest_turn_s(tx)

        async def change(query: bytes) -> None:
            async with hermes.database.once() as tx:
                await connection_of(tx).execute(query)

        assert await oldest_s() is None
        for number in (1, 2):
            event = MessageEvent(platform=Platform.REST, sender_id="ann", text="hello")
            envelope = Envelope(event=event, account="shop", channel_id="ann", event_key=str(number))
            await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
        await change(b"update inbox set received_at = now() - interval '1 hour' where event_key = '1'")
        assert 3_600 <= (await oldest_s() or 0) < 3_700
        await change(
            b"update procrastinate_jobs set scheduled_at = now() + interval '1 hour' where id = (select min(id) from procrastinate_jobs)"
        )
        assert (await oldest_s() or 0) < 60, "the first one is not due"
        await change(
            b"update procrastinate_jobs set scheduled_at = null, status = 'doing' where id = (select min(id) from procrastinate_jobs)"
        )
        assert await oldest_s() is None, "the second one waits for the first, which runs"


async def test_what_the_parent_tells_is_recorded_and_reported(database_url: str, redis_url: str, tmp_path: Path) -> None:
    async with opened(database_url, redis_url, tmp_path) as (hermes, alerts):
        gone = ProcessBeat(process_id=uuid4(), role=ProcessRole.WORKER, host="bali-1", pid=42, version="1.0")
        async with hermes.database.once() as tx:
            await hermes.adapters.processes.beat(tx, gone)
        restart = ProcessRestart(
            process_id=gone.process_id,
            role=gone.role,
            host=gone.host,
            pid=gone.pid,
            reason=RestartReason.DIED,
            code=-9,
            restarts=5,
            is_crash_loop=True,
        )
        news: list[Mapping[str, Any]] = [restart_news(restart)]

        def take() -> list[Mapping[str, Any]]:
            taken, news[:] = news[:], []
            return taken

        async with hermes.process.following(take), asyncio.timeout(30):
            while "process_crash_loop" not in await events(hermes):  # noqa: ASYNC110  # the database has no event for it
                await asyncio.sleep(0.02)
        facts = {"role": "worker", "host": "bali-1", "pid": 42, "code": -9, "restarts": 5}
        assert alerts.alerts == [("process_died", facts), ("process_crash_loop", facts)]
        assert await events(hermes) == ["process_started", "process_restarted", "process_crash_loop"]
