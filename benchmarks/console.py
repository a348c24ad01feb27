"""The console over a million turns: how long each page takes, how large it is, and what a watcher costs the turns.

    load       a million turns, a third more calls, 20,000 users, and one conversation of 10,000 messages in 200 versions
    pages      each page as an owner sees it, over HTTP, 20 times; the first time apart
    watching   messages a second with and without an open Live page, alternating

Starts the stores in a folder of its own. Loading takes minutes and 4 GB of disk. Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import secrets
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import aiohttp
import psycopg
from ground import new_envelope, percentile, processes, send, until_ready

from hermes.app.root import Hermes, open_hermes
from hermes.config import Settings, load
from hermes.console.sign_in import SESSION_TTL_S, digest_of_secret
from hermes.gateway.spend_sums import HourSummer
from hermes.graph import MessageGraph
from hermes.ops import logs
from hermes.ports.operators import EntryKind, Role
from hermes.ports.users import UserState
from hermes.stores import embedded
from hermes.stores.postgres.operators import PostgresOperators
from hermes.stores.postgres.queries import split_queries
from hermes.web.console.visits import SESSION_COOKIE

TURNS, USERS, NOTED = 1_000_000, 20_000, 5
MESSAGES, VERSIONS = 10_000, 200
RUNS = 20
SENDERS = 16
PORT = 8495
SQL = split_queries((Path(__file__).parent / "console_load.sql").read_text(encoding="utf-8"))
PARTS = ("pages", "watching")

broken: list[str] = []


def main() -> int:
    """Load the rows, run the chosen parts and print their tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--turns", type=int, default=TURNS, help="the promises are for %(default)s")
    options.add_argument("--users", type=int, default=USERS)
    options.add_argument("--seconds", type=float, default=10.0, help="how long each load with and without a watcher runs")
    options.add_argument("--only", type=lambda text: text.split(","), default=PARTS, metavar="PARTS", help=f"some of {','.join(PARTS)}")
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
            "HERMES_API_PER_MINUTE": "1000000",
            "HERMES_INBOX_PER_MINUTE": "99",
            "HERMES_MEMORY_ASKS_MODELS": "false",
            "HERMES_WEB_PORT": str(PORT),
        }
        logs.configure("json", "warning", sys.stderr)
        asyncio.run(measure(load(environ), environ, stores, chosen))
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if broken else 0


async def measure(settings: Settings, environ: dict[str, str], stores: embedded.StoreUrls, chosen: argparse.Namespace) -> None:
    session_id: UUID | None = None
    async with open_hermes(settings) as hermes:
        cookie = await make_session(hermes)
        async with hermes.database.begin() as tx:
            _, key = await hermes.adapters.api_keys.create(tx, "bench", "bench")
        if "pages" in chosen.only:
            session_id = await make_conversation(hermes)
            fill(stores.database_url, chosen.turns, chosen.users)
            began = time.perf_counter()
            await HourSummer(hermes.database, hermes.adapters.spend_sums).sum_recent()
            print(f"summed by the hour in {time.perf_counter() - began:.1f} s\n")
    headers = {"Authorization": f"Bearer {key}", "Cookie": f"{SESSION_COOKIE.name}={cookie}"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{PORT}", headers=headers, cookie_jar=aiohttp.DummyCookieJar()) as client:
        with processes(environ, ["serve", "worker"]):
            await until_ready(client)
            if session_id is not None:
                await measure_pages(client, stores.database_url, session_id, chosen.turns)
            if "watching" in chosen.only:
                await measure_watching(client, chosen.seconds)


async def make_session(hermes: Hermes) -> str:
    """Return the cookie of a new owner."""
    cookie = secrets.token_urlsafe(32)
    async with hermes.database.begin() as tx:
        owner = await PostgresOperators().add(tx, "bench", Role.OWNER, by="bench")
        await PostgresOperators().add_entry(tx, owner.id, EntryKind.SESSION, digest_of_secret(cookie), ttl_s=SESSION_TTL_S)
    return cookie


def fill(database_url: str, turns: int, users: int) -> None:
    """Write the rows. Without triggers: the rows that they would check are among those written."""
    values = {"turns": turns, "users": users, "noted": NOTED}
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("insert into accounts (id) values ('bench') on conflict do nothing")
        for name, query in SQL.items():
            began = time.perf_counter()
            connection.execute(query, values)
            print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
        connection.execute("vacuum analyze")
    print()


async def make_conversation(hermes: Hermes) -> UUID:
    """Store a chat whose earlier messages were edited again and again after answers: each edit keeps a version."""
    receipt = await hermes.intake.accept(new_envelope("graph"), newcomer=UserState.ACTIVE)
    async with hermes.database.begin() as tx:
        session = await hermes.adapters.sessions.current(tx, receipt.conversation_id, uuid4())
        chat = await hermes.adapters.graphs.load(tx, session.id)
        grow(chat)
        await hermes.adapters.graphs.save(tx, session.id, session.head, chat)
    print(f"a chat of {len(chat)} messages and {len(chat.versions)} versions\n")
    return session.id


def grow(chat: MessageGraph) -> None:
    step = MESSAGES // VERSIONS
    while len(chat) < MESSAGES:
        for number in range(step // 2):
            chat.append({"role": "user", "content": f"question {len(chat)} " + "words " * 12})
            chat.append({"role": "assistant", "content": f"answer {number}"})
        chat[len(chat) - step // 2]["content"] = f"edited {len(chat)}"


# --- pages


async def measure_pages(client: aiohttp.ClientSession, database_url: str, session_id: UUID, turns: int) -> None:
    with psycopg.connect(database_url) as connection:
        [turn] = connection.execute("select turn_id from interactions order by created_at desc limit 1").fetchone() or (None,)
        [person] = connection.execute("select user_id from interactions order by created_at desc limit 1").fetchone() or (None,)
    deep = find_deep(database_url, 6 * turns // 10)
    pages = {
        "Turns, newest": ("/console/turns", 100),
        "Turns, failed": ("/console/turns?status=failed", 100),
        "Turns that fell over, of a day": ("/console/turns?status=fell_over", 100),
        "Turns that fell over, of 90 days": ("/console/turns?status=fell_over&since=90d", 200),
        "Turns, 600,000 deep": (deep, 100),
        "a turn": (f"/console/turns/{turn}", 80),
        "Costs of 30 days by model": ("/console/costs?by=model&since=30d", 150),
        "Costs of 30 days by purpose": ("/console/costs?by=purpose&since=30d", 150),
        "Costs of 30 days by user": ("/console/costs?by=user&since=30d", 700),
        "Live": ("/console", 100),
        "Queues": ("/console/queues", 100),
        "People": ("/console/people", 100),
        "a person": (f"/console/people/{person}", 150),
        "Workers": ("/console/workers", 100),
        "Conversations": ("/console/conversations", 100),
        "a graph of 10,000 messages, first window": (f"/console/conversations/{session_id}", 1_000),
        "a graph of 10,000 messages, a later window": (f"/console/conversations/{session_id}?from=4000", 100),
    }
    print(f"Pages over {turns:,} turns, as an owner sees them; {RUNS} requests each, one at a time\n")
    print("| page | first ms | p50 ms | p95 ms | bar ms | KiB | KiB gzipped |\n|---|---|---|---|---|---|---|")
    for name, (path, bar) in pages.items():
        first, times, size, packed = await ask(client, path)
        print(
            f"| {name} | {first:.0f} | {statistics.median(times):.0f} | {percentile(times, 95):.0f} | {bar} | {size / 1024:.0f} "
            f"| {packed / 1024:.0f} |",
            flush=True,
        )
        kept = first if "first window" in name or "by user" in name else statistics.median(times)  # a minute long, users come from a cache
        promise(f"{name} within {bar} ms", kept <= bar)
        promise(f"{name} under 100 KiB on the wire", packed <= 100 * 1024)
    print()


def find_deep(database_url: str, depth: int) -> str:
    """Return the address of a list far back in time, as the pager of the page before it would have it."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select created_at from interactions order by created_at desc offset %s limit 1", (depth,)).fetchone()
    assert row is not None
    return f"/console/turns?until={row[0].astimezone().strftime('%Y-%m-%dT%H:%M:%SZ')}&since=90d"


async def ask(client: aiohttp.ClientSession, path: str) -> tuple[float, list[float], int, int]:
    """Return how long the first request took and the others, in ms, and the size of the page, as text and on the wire."""
    times, size, packed = [], 0, 0
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        async with client.get(path, headers={"Accept-Encoding": "gzip"}, allow_redirects=False) as response:
            body = await response.read()
            if response.status != 200:
                raise SystemExit(f"{path}: {response.status} {body[:300]!r}")
            packed = int(response.headers.get("Content-Length", len(body)))
        times.append(1_000 * (time.perf_counter() - began))
        size = len(body)
    return times[0], times[1:], size, packed


# --- watching


async def measure_watching(client: aiohttp.ClientSession, seconds: float) -> None:
    """Messages a second as fast as they go, without and with a page that watches, alternating."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for is_watched in (False, True) * 3:
        watching = asyncio.create_task(watch(client)) if is_watched else None
        await asyncio.sleep(3)
        rates[is_watched].append(await send_for(client, seconds))
        if watching is not None:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
    unwatched, watched = (statistics.median(rates[is_watched]) for is_watched in (False, True))
    print("| | messages/s, three runs | median |\n|---|---|---|")
    for is_watched, name in ((False, "no watcher"), (True, "one watcher")):
        print(f"| {name} | {', '.join(f'{rate:.1f}' for rate in rates[is_watched])} | {statistics.median(rates[is_watched]):.1f} |")
    print(f"\nA watcher costs {100 * (1 - watched / unwatched):.1f} % of the messages a second\n")


async def watch(client: aiohttp.ClientSession) -> None:
    async with client.get("/console/events", headers={"Accept": "text/event-stream"}, timeout=aiohttp.ClientTimeout(total=None)) as stream:
        async for _ in stream.content:
            pass


async def send_for(client: aiohttp.ClientSession, seconds: float) -> float:
    """Return how many messages a second were answered, with several senders at once."""
    answered, end = 0, time.perf_counter() + seconds

    async def one(number: int) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            await send(client, number + SENDERS * (answered % 64), wait=True)  # one user may write 99 messages a minute
            answered += 1

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(SENDERS)))
    return answered / (time.perf_counter() - began)


def promise(what: str, is_kept: bool) -> None:  # noqa: FBT001
    if not is_kept:
        broken.append(what)


if __name__ == "__main__":
    sys.exit(main())
