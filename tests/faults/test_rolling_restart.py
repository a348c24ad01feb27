"""Two webs and two workers are stopped and started again, one after the other, while clients keep writing: every message that was accepted
is answered once. A client that tries again sees connections that were refused or cut off, and that its first try is still running.

With HERMES_TEST_OLDER_SOURCE=FOLDER (the `src` of an older version, and the database still without this version's migrations) the processes
begin with that version's code: then the same shows that an upgrade needs no stop."""

import asyncio
import itertools
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from hermes.app.master_keys import new_master_key
from tests.faults.house import GRANT, QUICK

OLDER_SOURCE = os.environ.get("HERMES_TEST_OLDER_SOURCE")
PATIENCE_S = 90.0
CLIENTS = 6
PAUSE_S = 0.02
"""Between two tries of a client."""


@dataclass
class Member:
    """One process of the house, which can be started again on its port."""

    role: str
    environ: dict[str, str]
    log: Path
    process: asyncio.subprocess.Process | None = None
    starts: int = 0

    async def start(self, source: str | None = None) -> None:
        """Start it, and wait until it is ready."""
        self.starts += 1
        environ = {**self.environ, "PYTHONPATH": source} if source else self.environ
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hermes",
                self.role,
                env=environ,
                cwd=self.log.parent,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        ready = "web_ready" if self.role == "serve" else "worker_ready"
        await until(lambda: self.log.read_text(encoding="utf-8").count(f'"{ready}"') == self.starts, f"{self.log.name}: {ready}")

    async def stop(self) -> None:
        """Tell it to stop, and wait until it has ended as it should."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await self.process.wait() == 0, self.log.read_text(encoding="utf-8")[-2000:]

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()


@dataclass
class Client:
    """Somebody who writes one message after the other, to whichever web answers, until told to stop."""

    name: str
    key: str
    urls: Iterator[str]
    answers: dict[str, str] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    """Everything but an answer, a connection that failed, and the news that the first try is still running."""
    lost_connections: int = 0

    async def write_until(self, enough: asyncio.Event) -> None:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for number in itertools.count():
                text = f"{self.name}-{number}"
                self.answers[text] = await self.say(session, text)
                if enough.is_set():
                    return

    async def say(self, session: aiohttp.ClientSession, text: str) -> str:
        """Send a message, again and again under one key, until it is answered."""
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": text}
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                async with session.post(
                    next(self.urls) + "/v1/messages", json={"text": text, "user": self.name}, headers=headers
                ) as response:
                    body = await response.json()
                    if response.status == 200:
                        return str(body["text"])
                    if response.status != 202 and body["error"]["code"] != "still_running":
                        self.troubles.append(f"{text}: {response.status} {body}")
            except aiohttp.ClientConnectionError:
                self.lost_connections += 1
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"{text} got no answer")


@dataclass
class RollingHouse:
    """The four processes."""

    database_url: str
    environ: dict[str, str]
    webs: list[Member]
    workers: list[Member]
    urls: list[str]

    async def count(self, query: str) -> int:
        async with await psycopg.AsyncConnection.connect(self.database_url, autocommit=True) as connection:
            [(found,)] = await (await connection.execute(query.encode())).fetchall()
        return int(found)


@pytest.fixture
async def house(empty_database_url: str, redis_url: str) -> AsyncIterator[RollingHouse]:
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder:
        script = Path(folder) / "echo.toml"
        script.write_text('otherwise = "{words}"', encoding="utf-8")
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
            **QUICK,
            "HERMES_WORK_STALLED_AFTER_S": "5.0",  # on a busy machine a start takes the processor from the others for a second
            "HERMES_DATABASE_URL": empty_database_url,
            "HERMES_REDIS_URL": redis_url,
            "HERMES_HOME": folder,
            "HERMES_MASTER_KEYS": new_master_key(),
            "HERMES_LOG_FORMAT": "json",
            "HERMES_LLM_SCRIPT": str(script),
        }
        ports = free_ports(2)
        webs = [Member("serve", {**environ, "HERMES_WEB_PORT": str(port)}, Path(folder) / f"web-{port}.log") for port in ports]
        workers = [Member("worker", environ, Path(folder) / f"worker-{number}.log") for number in range(2)]
        try:
            yield RollingHouse(empty_database_url, environ, webs, workers, [f"http://127.0.0.1:{port}" for port in ports])
        finally:
            for member in (*webs, *workers):
                member.kill()
                if member.process is not None:
                    await member.process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that are free now. All are open at once, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def until(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"not in time: {what}"
        await asyncio.sleep(0.02)


async def make_key(house: RollingHouse) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hermes",
        "keys",
        "create",
        "clients",
        "--json",
        env=house_source(house.environ),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    made: dict[str, Any] = json.loads(output)
    return str(made["secret"])


def house_source(environ: dict[str, str]) -> dict[str, str]:
    return {**environ, "PYTHONPATH": OLDER_SOURCE} if OLDER_SOURCE else environ


@asynccontextmanager
async def writing(house: RollingHouse, key: str) -> AsyncIterator[list[Client]]:
    """Clients that write as long as the block lasts, and then finish what they began."""
    enough = asyncio.Event()
    clients = [Client(f"client{number}", key, itertools.cycle(house.urls)) for number in range(CLIENTS)]
    tasks = [asyncio.create_task(client.write_until(enough)) for client in clients]
    try:
        yield clients
        enough.set()
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def one_more_answer_each(clients: list[Client]) -> None:
    before = [len(client.answers) for client in clients]
    await until(lambda: all(len(client.answers) > seen for client, seen in zip(clients, before, strict=True)), "all are answered")


@pytest.mark.slow
async def test_every_message_is_answered_once_while_all_processes_are_restarted(house: RollingHouse) -> None:
    key = await make_key(house)  # this also makes the schema, of the older version if there is one
    await asyncio.gather(*(member.start(OLDER_SOURCE) for member in (*house.webs, *house.workers)))
    async with writing(house, key) as clients:
        for member in (*house.workers, *house.webs):  # the order of docs/operate/upgrade.md
            await one_more_answer_each(clients)
            await member.stop()
            await member.start()
    answers = {text: answer for client in clients for text, answer in client.answers.items()}
    assert answers == {text: text for text in answers}, "each client got the answer to its own message"
    assert [trouble for client in clients for trouble in client.troubles] == []
    accepted = len(answers)
    for query, what in (
        ("select count(*) from inbox", "accepted"),
        ("select count(*) from inbox where state = 'done'", "ended"),
        ("select count(*) from interactions where meta ->> 'outcome' = 'answered'", "answered"),
        ("select count(*) from outbox where state = 'sent'", "sent once"),
        ("select count(*) from outbox", "never put twice"),
        ("select count(*) from credit_entries where kind = 'post'", "paid once"),
    ):
        assert (what, await house.count(query)) == (what, accepted)
    spent = await house.count("select sum(available) + sum(reserved) from credit_balances")
    assert spent == CLIENTS * GRANT - accepted
