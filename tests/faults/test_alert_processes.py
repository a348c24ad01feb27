"""Alerts across processes that race, die and sleep: one row, one message for each destination, and none lost."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes.stores.postgres.database import Database
from tests.fakes.alert_receivers import AlertReceivers, open_receivers

ROOT = Path(__file__).parents[2]


@dataclass
class AlertingProcess:
    """A process that obeys; see alerting_process.py."""

    process: asyncio.subprocess.Process

    async def hear(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return (await self.process.stdout.readline()).decode().strip()

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{command}\n".encode())

    async def do(self, command: str) -> str:
        self.tell(command)
        return await self.hear()


Start = Callable[[], Awaitable[AlertingProcess]]


@pytest.fixture
async def receivers() -> AsyncIterator[AlertReceivers]:
    async with open_receivers() as receivers:
        yield receivers
        assert receivers.refused == []


@asynccontextmanager
async def started(database_url: str, receivers_url: str) -> AsyncIterator[AlertingProcess]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.faults.alerting_process", database_url, receivers_url),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        made = AlertingProcess(process)
        assert await made.hear() == "ready"
        yield made
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
async def start(database_url: str, receivers: AlertReceivers) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:
        yield lambda: stack.enter_async_context(started(database_url, receivers.url))


async def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    async with database.pool.connection() as connection:
        return await (await connection.execute(query.encode())).fetchall()


async def send_until_arrived(process: AlertingProcess, receivers: AlertReceivers, count: int) -> None:
    """Let a process look for due messages until so many have arrived at both receivers."""
    async with asyncio.timeout(30):
        while min(len(receivers.arrived["slack"]), len(receivers.arrived["webhook"])) < count:
            await process.do("send")
            await asyncio.sleep(0.05)


async def test_three_workers_that_raise_one_alert_make_one_row_and_one_message_for_each_destination(
    start: Start, receivers: AlertReceivers, database: Database
) -> None:
    workers = await asyncio.gather(*(start() for _ in range(3)))
    assert await asyncio.gather(*(worker.do("raise breaker_opened") for worker in workers)) == ["raised"] * 3
    for _ in range(3):
        await asyncio.gather(*(worker.do("send") for worker in workers))
    assert await rows(database, "select event, subject, times, ended_at from alerts") == [("breaker_opened", "telegram bali", 3, None)]
    assert (len(receivers.arrived["slack"]), len(receivers.arrived["webhook"])) == (1, 1)
    assert (await asyncio.gather(*(worker.do("raise breaker_opened") for worker in workers))) == ["raised"] * 3
    assert await asyncio.gather(*(worker.do("send") for worker in workers)) == ["0"] * 3, "once in a window"


async def test_a_sender_that_is_killed_between_claim_and_send_is_replaced_and_nothing_is_lost(
    start: Start, receivers: AlertReceivers, database: Database
) -> None:
    doomed, heir = await asyncio.gather(start(), start())
    await doomed.do("raise breaker_opened")
    doomed.tell("hang")
    assert await doomed.do("send") == "sending"
    doomed.process.kill()
    await send_until_arrived(heir, receivers, 1)
    assert await heir.do("send") == "0"
    assert (len(receivers.arrived["slack"]), len(receivers.arrived["webhook"])) == (1, 1)
    assert sorted(await rows(database, "select destination, tries, messages from alert_sends")) == [("ops", 1, 1), ("slack", 2, 1)]


async def test_a_sender_that_slept_after_its_claim_sends_nothing_when_it_wakes(
    start: Start, receivers: AlertReceivers, database: Database
) -> None:
    sleeper, heir = await asyncio.gather(start(), start())
    await sleeper.do("raise breaker_opened")
    sleeper.tell("stop")
    sleeper.tell("send")
    async with asyncio.timeout(20):
        while not await rows(database, "select from alert_sends where tries = 1"):  # noqa: ASYNC110  # the stopped process says nothing
            await asyncio.sleep(0.02)
    await send_until_arrived(heir, receivers, 1)
    os.kill(sleeper.process.pid, signal.SIGCONT)
    assert await sleeper.hear() == "0"
    assert (len(receivers.arrived["slack"]), len(receivers.arrived["webhook"])) == (1, 1)
