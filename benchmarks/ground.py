"""The ground: acknowledging, answering, and where the time goes; message graphs and hot history in their stores.

Starts the stores in a folder of its own, and the web and a worker as `hermes up` would. The senders run beside them on the same machine.
Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import psycopg

from hermes.app.adapters import Adapters
from hermes.app.root import Hermes, open_hermes
from hermes.config import Settings, load
from hermes.graph import MessageGraph
from hermes.ops import logs
from hermes.ports.sessions import GraphEntry
from hermes.ports.users import UserState
from hermes.stores import embedded
from hermes.turn import Envelope, MessageEvent, Platform

USERS = 200
RATE = 200
ACK_P99_MS = 50.0
END_TO_END = 100.0
LOAD_MS = 150.0
MESSAGES = 10_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")

broken: list[str] = []


def main() -> int:
    """Run all parts and print their tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=15.0, help="how long each load runs")
    options.add_argument("--workers", type=int, default=1, help="worker processes")
    chosen = options.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
            "HERMES_HOME": f"{folder}/home",
            "HERMES_DATABASE_URL": stores.database_url,
            "HERMES_REDIS_URL": stores.redis_url,
            "HERMES_CREDITS_SIGNUP_GRANT": "1000000",
            "HERMES_INBOX_MAX_WAITING": "1000000",
            "HERMES_LOG_LEVEL": "warning",
            "HERMES_WEB_PORT": "8493",
        }
        settings = load(environ)
        logs.configure("json", "warning", sys.stderr)
        asyncio.run(loads(settings, environ, stores, chosen.seconds, chosen.workers))
        asyncio.run(stages(settings))
        asyncio.run(graphs(settings))
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if broken else 0


# --- the service under load


async def loads(settings: Settings, environ: dict[str, str], stores: embedded.StoreUrls, seconds: float, workers: int) -> None:
    async with open_hermes(settings) as hermes, hermes.database.begin() as tx:
        _, secret = await hermes.adapters.api_keys.create(tx, "bench", "bench")
    with processes(environ, ["serve", *["worker"] * workers]) as pids:
        url = f"http://127.0.0.1:{settings.web.port}"
        connector = aiohttp.TCPConnector(limit=500)
        async with aiohttp.ClientSession(url, connector=connector, headers={"Authorization": f"Bearer {secret}"}) as client:
            await until_ready(client)
            await send(client, 0, wait=True)  # the worker is up
            print(f"Under load: 1 web process, {workers} worker(s), PostgreSQL and Valkey, and the senders, all on this machine\n")
            print("| load | sent | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
            took = await at_rate(50, USERS / 50, lambda n: send(client, n, wait=False))
            row("acknowledge the first message of a new user, at 50/s", took)
            await until_drained(stores)
            took = await at_rate(RATE, seconds, lambda n: send(client, n % USERS, wait=False))
            row(f"acknowledge (stored, job deferred, committed) at {RATE}/s", took)
            promise(f"acknowledge p99 under {ACK_P99_MS:.0f} ms at {RATE}/s", percentile(took, 99) * 1e3 < ACK_P99_MS)
            await until_drained(stores)
            took = await at_rate(50, seconds, lambda n: send(client, n % USERS, wait=True))
            row("whole turn, from request to answer, at 50/s", took)
            await until_drained(stores)
            await throughput(client, stores, pids, seconds)


async def throughput(client: aiohttp.ClientSession, stores: embedded.StoreUrls, pids: dict[str, list[int]], seconds: float) -> None:
    count = round(seconds * END_TO_END)
    pids = {**pids, "postgres": postgres_pids(stores), "valkey": [valkey_pid(stores)], "senders": [os.getpid()]}
    before = {name: cpu_s(of) for name, of in pids.items()}
    began = time.perf_counter()
    gate = asyncio.Semaphore(64)

    async def one(number: int) -> None:
        async with gate:
            await send(client, number % USERS, wait=False)

    await asyncio.gather(*(one(number) for number in range(count)))
    accepted = time.perf_counter() - began
    await until_drained(stores)
    took = time.perf_counter() - began
    pids["postgres"] = postgres_pids(stores)
    print(f"\nAs fast as it goes: {count} messages over {USERS} conversations, accepted at {count / accepted:.0f}/s, ", end="")
    print(f"answered end to end at **{count / took:.0f} messages/s**\n")
    promise(f"{END_TO_END:.0f} messages/s end to end", count / took >= END_TO_END)
    print("| process | CPU ms per message |\n|---|---|")
    for name, of in pids.items():
        print(f"| {name} | {(cpu_s(of) - before[name]) / count * 1e3:.2f} |")
    print()


async def send(client: aiohttp.ClientSession, user: int, *, wait: bool) -> None:
    headers = {} if wait else {"Prefer": "respond-async"}
    async with client.post("/v1/messages", json={"text": f"hello from {user}", "user": f"u{user}"}, headers=headers) as response:
        assert response.status == (200 if wait else 202), await response.text()
        await response.read()


async def at_rate(rate: int, seconds: float, act: Callable[[int], Awaitable[None]]) -> list[float]:
    """Start one each 1/rate s, whether or not the ones before have ended; return how long each took, counted from when it was due."""
    took: list[float] = []
    began = time.perf_counter()

    async def one(number: int) -> None:
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await act(number)
        took.append(time.perf_counter() - due)

    await asyncio.gather(*(one(number) for number in range(round(rate * seconds))))
    return took


async def until_ready(client: aiohttp.ClientSession) -> None:
    for _ in range(400):
        try:
            async with client.get("/ready") as response:
                if response.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.05)
    raise SystemExit("the web did not come up")


async def until_drained(stores: embedded.StoreUrls) -> None:
    async with await psycopg.AsyncConnection.connect(stores.database_url, autocommit=True) as connection:
        while True:
            found = await (await connection.execute("select count(*) from inbox where state = 'waiting'")).fetchone()
            if found == (0,):
                return
            await asyncio.sleep(0.05)


@contextmanager
def processes(environ: dict[str, str], roles: list[str]) -> Iterator[dict[str, list[int]]]:
    """`hermes serve` and the like, each in a session of its own, as `hermes up` starts them."""
    command = [sys.executable, "-m", "hermes"]
    started = [(role, subprocess.Popen([*command, role], env=environ, start_new_session=True)) for role in roles]  # noqa: S603
    try:
        pids: dict[str, list[int]] = defaultdict(list)
        for role, process in started:
            pids[role].append(process.pid)
        yield dict(pids)
    finally:
        for _, process in started:
            process.send_signal(signal.SIGTERM)
        for _, process in started:
            process.wait(30)


def cpu_s(pids: list[int]) -> float:
    """Processor time of processes and of their children that have ended."""
    total = 0.0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:13])) * TICK_S
    return total


def postgres_pids(stores: embedded.StoreUrls) -> list[int]:
    with psycopg.connect(stores.database_url) as connection:
        return [row[0] for row in connection.execute("select pid from pg_stat_activity where pid <> pg_backend_pid()")]


def valkey_pid(stores: embedded.StoreUrls) -> int:
    return int((Path(stores.redis_url.removeprefix("unix://")).parents[1] / "valkey.pid").read_text(encoding="ascii"))


# --- where the time of one message goes


async def stages(settings: Settings) -> None:
    """One message after the other in one process, each port call timed."""
    spent: dict[str, list[float]] = defaultdict(list)

    def timed(parts: Adapters) -> Adapters:
        ports = [name for name in Adapters.__dataclass_fields__ if name not in {"models", "alerts"}]
        return replace(parts, **{name: Timed(getattr(parts, name), name, spent) for name in ports})

    async with open_hermes(settings, adjust=timed) as hermes:
        total: dict[str, list[float]] = defaultdict(list)
        for number in range(320):
            if number == 20:
                spent.clear(), total.clear()
            envelope = new_envelope(f"stage{number % 20}")
            began = time.perf_counter()
            receipt = await hermes.intake.accept(envelope, newcomer=UserState.ACTIVE)
            accepted = time.perf_counter()
            await hermes.turns.run(receipt.turn_id)
            total["accept"].append(accepted - began)
            total["turn"].append(time.perf_counter() - accepted)
        async with hermes.database.begin() as tx:
            await tx.execute("delete from procrastinate_jobs")  # type: ignore[attr-defined]
    print("One message alone, without HTTP and without the job queue's fetch and finish\n\n| part | p50 ms |\n|---|---|")
    for name, times in total.items():
        print(f"| **{name}, with its commits** | **{statistics.median(times) * 1e3:.2f}** |")
    for name, times in sorted(spent.items(), key=lambda item: -statistics.median(item[1])):
        print(f"| {name} | {statistics.median(times) * 1e3:.2f} |")
    print()


class Timed:
    """A port whose calls are timed."""

    def __init__(self, port: Any, name: str, spent: dict[str, list[float]]) -> None:
        self._port, self._name, self._spent = port, name, spent

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._port, method)

        async def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return await call(*arguments, **named)
            finally:
                self._spent[f"{self._name}.{method}"].append(time.perf_counter() - began)

        return timed if iscoroutinefunction(call) else call


# --- graphs and history


async def graphs(settings: Settings) -> None:
    async with open_hermes(settings) as hermes:
        parts, database = hermes.adapters, hermes.database
        receipt = await hermes.intake.accept(new_envelope("graph"), newcomer=UserState.ACTIVE)
        async with database.begin() as tx:
            session = await parts.sessions.current(tx, receipt.conversation_id, uuid4())
        head, appends = session.head, []
        for number in range(MESSAGES // 2):
            question = GraphEntry({"role": "user", "content": f"question {number} " + "words " * 20})
            answer = GraphEntry({"role": "assistant", "content": f"answer {number}"}, is_sampled=True)
            began = time.perf_counter()
            async with database.begin() as tx:
                head = (await parts.graphs.append(tx, session.id, head, [question, answer])).head
            appends.append(time.perf_counter() - began)

        async def load() -> MessageGraph:
            async with database.begin() as tx:
                return await parts.graphs.load(tx, session.id)

        async def edit() -> None:
            chat = await load()
            chat[1]["content"] = str(uuid4())
            stored = await current(hermes, receipt.conversation_id)
            saves.append(await clocked(lambda: save(chat, stored)))

        async def save(chat: MessageGraph, head: str) -> None:
            async with database.begin() as tx:
                await parts.graphs.save(tx, session.id, head, chat)

        loads = [await clocked(load) for _ in range(15)]
        assert len(await load()) == MESSAGES
        saves: list[float] = []
        for _ in range(5):
            await edit()

        async def read() -> None:
            await parts.histories.read("rest:channel:bench/graph", now)

        async with database.begin() as tx:
            now = await parts.sessions.get(tx, session.id)
        await hermes.redis.flushall()
        cold = [await clocked(read)]
        hot = [await clocked(read) for _ in range(200)]
    print(f"A graph of {MESSAGES} messages, sealed, in PostgreSQL\n\n| | n | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
    for name, times in [
        ("append a question and an answer", appends),
        ("load the whole graph", loads),
        ("save after an edit at message 1", saves),
        ("read the history, hot", hot),
        ("read the history, rebuilt from the graph", cold),
    ]:
        row(name, times)
    print()
    promise(f"load {MESSAGES} messages in {LOAD_MS:.0f} ms", statistics.median(loads) * 1e3 < LOAD_MS)


async def current(hermes: Hermes, conversation_id: Any) -> str:
    async with hermes.database.begin() as tx:
        return (await hermes.adapters.sessions.current(tx, conversation_id, uuid4())).head


def new_envelope(user: str) -> Envelope:
    event = MessageEvent(platform=Platform.REST, sender_id=user, text="a sunset bar in Canggu?")
    return Envelope(event=event, account="bench", channel_id=user, event_key=str(uuid4()))


async def clocked(act: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


def row(name: str, times: list[float]) -> None:
    cells = (statistics.median(times), percentile(times, 99), max(times))
    print(f"| {name} | {len(times)} | " + " | ".join(f"{cell * 1e3:.2f}" for cell in cells) + " |", flush=True)


def percentile(times: list[float], rank: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * rank // 100)]


def promise(what: str, is_kept: bool) -> None:  # noqa: FBT001
    if not is_kept:
        broken.append(what)


if __name__ == "__main__":
    sys.exit(main())
