"""REST messages of many users, as `hermes up` runs them: one web process, one worker, the stores, and the senders beside them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg
from channels.senders import Lines
from gateway.load import shown
from gateway.machine import cpu_s
from gateway.targets import store_pids
from ground import percentile, processes
from ground import row as times_row

from hermes.app.root import open_hermes
from hermes.config import load
from hermes.stores import embedded
from messages.bare_jobs import bare_jobs_per_s, stock_jobs_per_s
from messages.statements import Statements, logged

USERS, AT_ONCE, QUIET, ALONE = 400, 32, 200, 300
IDLE_S = 20.0
"""Two of the longest pauses between what the processes do anyway."""
HELD_RATE = 100
SHARE_OF_BARE, STATEMENTS, COMMITS, CPU_MS, ALONE_MS, HELD_MS = 0.4, 12, 5, 12.0, 12.0, 150.0
TEXT = "that sounds like a plan, let us talk about it tomorrow"

Promise = tuple[str, bool]


class Senders:
    """A program with an API key that sends the messages of all users."""

    def __init__(self, port: int, secret: str) -> None:
        self._lines, self._port, self._secret = Lines(port), port, secret
        self.unanswered = 0
        """Messages that were accepted, and whose answer did not come in the time that a request waits."""

    async def send(self, user: int) -> None:
        """Send a message and wait for its answer."""
        body = json.dumps({"text": TEXT, "user": f"u{user}"}).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nAuthorization: Bearer {self._secret}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        answer = await self._lines.post(head.encode() + body)
        if answer.startswith(b"HTTP/1.1 202"):
            self.unanswered += 1
        elif not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"a message was not answered: {shown(answer)}")

    async def clocked(self, user: int) -> float:
        began = time.perf_counter()
        await self.send(user)
        return time.perf_counter() - began

    async def at_once(self, count: int) -> float:
        """Send messages, so many at once; return the seconds until all were answered."""
        numbers, began = iter(range(count)), time.perf_counter()

        async def sender() -> None:
            for number in numbers:
                await self.send(number % USERS)

        await asyncio.gather(*(sender() for _ in range(AT_ONCE)))
        return time.perf_counter() - began

    async def at_rate(self, rate: float, seconds: float) -> list[float]:
        """Send one each 1/rate s, whatever became of those before; return how long each took, counted from when it was due."""
        took: list[float] = []
        began = time.perf_counter()

        async def one(number: int) -> None:
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            await self.send(number % USERS)
            took.append(time.perf_counter() - due)

        await asyncio.gather(*(one(number) for number in range(round(rate * seconds))))
        return took


async def whole_path(environ: dict[str, str], stores: embedded.StoreUrls, seconds: float, *, held_s: float) -> list[Promise]:
    """Measure and print; return what was promised and whether it holds."""
    settings = load(environ)
    async with open_hermes(settings) as hermes, hermes.database.begin() as tx:
        _, secret = await hermes.adapters.api_keys.create(tx, "bench", "messages")
    home, promises = Path(environ["HERMES_HOME"]), list[Promise]()
    jobs = round(250 * seconds)
    fresh = await bare_jobs_per_s(stores.database_url, jobs, at_once=AT_ONCE)
    stock = await stock_jobs_per_s(stores.database_url, jobs, at_once=AT_ONCE)
    with processes(environ, ["serve", "worker"]) as pids:
        senders = Senders(settings.web.port, secret)
        await until_up(senders)
        await senders.at_once(USERS)  # newcomers are met before the clock runs
        await until_quiet(stores)
        alone = [await senders.clocked(number % USERS) for number in range(ALONE)]
        quiet = await statements_of_a_message(senders, stores, home)
        before, count = cpu_of(pids, home), round(50 * seconds)
        took_s = await senders.at_once(count)
        await until_quiet(stores)
        spent = {name: (used - before[name]) / count * 1e3 for name, used in cpu_of(pids, home).items()}
        held = await senders.at_rate(HELD_RATE, held_s) if held_s else []
    bare = await bare_jobs_per_s(stores.database_url, jobs, at_once=AT_ONCE)
    rate, cpu_ms = count / took_s, sum(spent[name] for name in ("web", "worker", "stores"))
    print(f"REST messages of {USERS} users: 1 web process, 1 worker, the stores and the senders on this machine\n")
    print("| | n | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
    times_row("one message alone, request to answer", alone)
    if held:
        times_row(f"at {HELD_RATE}/s for {held_s:g} s", held)
        promises.append((f"{HELD_RATE} messages/s held, p99 under {HELD_MS:.0f} ms", percentile(held, 99) * 1e3 < HELD_MS))
    print(f"\n{AT_ONCE} at once: **{rate:.0f} messages/s**; bare jobs of the queue afterwards {bare:.0f}/s, share **{rate / bare:.2f}**")
    print(f"Bare jobs in an empty database {fresh:.0f}/s, share {rate / fresh:.2f};", end=" ")
    print(f"on Procrastinate's own schema {stock:.0f}/s, share {rate / stock:.2f}")
    print(f"Processor time for a message: {cpu_ms:.1f} ms; " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in spent.items()))
    print(f"Statements for an ordinary message: **{quiet[0]:.1f}**, in {quiet[1]:.2f} transactions that write\n")
    if senders.unanswered:
        print(f"**{senders.unanswered} messages were not answered in time**\n")
    return [
        *promises,
        ("every message is answered while its request waits", senders.unanswered == 0),
        (f"messages/s at least {SHARE_OF_BARE} of bare jobs/s", rate / bare >= SHARE_OF_BARE),
        (f"one message alone within {ALONE_MS:.0f} ms", statistics.median(alone) * 1e3 <= ALONE_MS),
        (f"at most {STATEMENTS} statements for a message", quiet[0] <= STATEMENTS),
        (f"at most {COMMITS} commits for a message", quiet[1] <= COMMITS),
        (f"at most {CPU_MS:.0f} ms of processor time for a message", cpu_ms <= CPU_MS),
    ]


async def until_up(senders: Senders) -> None:
    for _ in range(200):
        try:
            await senders.send(0)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            return
    raise SystemExit("the web did not come up")


async def until_quiet(stores: embedded.StoreUrls) -> None:
    """Wait until every turn and every job has ended, also those that follow an answer."""
    query = "select exists (select from inbox where state = 'waiting') or exists (select from procrastinate_jobs where status <> 'failed')"
    async with await psycopg.AsyncConnection.connect(stores.database_url, autocommit=True) as connection:
        while await (await connection.execute(query)).fetchone() != (False,):  # noqa: ASYNC110  # the processes of Hermes set no event
            await asyncio.sleep(0.1)


async def statements_of_a_message(senders: Senders, stores: embedded.StoreUrls, home: Path) -> tuple[float, float]:
    """Statements and writing transactions of one message, without those that the processes run anyway."""
    log = home / "stores" / "postgres.log"

    async def talk() -> None:
        for number in range(QUIET):
            await senders.send(number)
        await asyncio.sleep(2.0)  # what follows an answer

    idle = await logged(stores.database_url, log, lambda: asyncio.sleep(IDLE_S))
    busy = await logged(stores.database_url, log, talk)
    if os.environ.get("SHOW_STATEMENTS"):
        show(idle, busy)
    share = busy.seconds / idle.seconds
    print(f"Idle: {idle.count / idle.seconds:.1f} statements and {idle.writes / idle.seconds:.1f} writing transactions a second\n")
    return (busy.count - idle.count * share) / QUIET, (busy.writes - idle.writes * share) / QUIET


def show(idle: Statements, busy: Statements) -> None:
    for name, found, by in (("idle, a second", idle, idle.seconds), ("a message", busy, QUIET)):
        print(f"--- {name}")
        for text, count in found.texts.most_common(60):
            print(f"{count / by:7.2f}  {text[:150]}")


def cpu_of(pids: Mapping[str, list[int]], home: Path) -> dict[str, float]:
    """Processor seconds so far."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    spent = {name: cpu_s(of) for name, of in {"web": pids["serve"], "worker": pids["worker"], "stores": store_pids(home)}.items()}
    return {**spent, "senders": own.ru_utime + own.ru_stime}
