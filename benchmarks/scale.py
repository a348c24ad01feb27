"""How Hermes grows: what a message costs beside 10 thousand, 100 thousand and a million users, and with one worker and more.

    size      a stored turn for each user, loaded in bulk: processor time, statements, and what PostgreSQL reads for a message
    workers   the same at the smallest size, with 1, 2, 4 workers as far as there are cores
    months    what emptying, dropping and vacuuming cost at the largest size
    soak      only if asked for: one worker's memory over very many messages

Starts the stores in a folder of its own; a million users take about 14 GB there and about a quarter of an hour. Processor time is robust
against load on the machine, times of the clock are not. Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
import psycopg
from ground import cpu_s, percentile, processes, until_ready, valkey_pid
from scaling.bulk import Template, fill_to, table_sizes

from hermes.app.root import open_hermes
from hermes.config import load
from hermes.ops import logs
from hermes.stores import embedded

PARTS = ("size", "workers", "months", "soak")
SIZES = (10_000, 100_000, 1_000_000)
FACTOR = 1.3
PEOPLE, AT_ONCE = 100, 16
LOGGED, QUIET_S = 60, 10.0
MAX_APOLOGIES = 0.02
GROWTH_MB = 16.0
MAX_WORKER_MB, MAX_WORKER_MB_WITH_MODEL = 250.0, 400.0
TEXTS = ("good morning, how are things", "that sounds like a plan", "tell me something nice about Bali", "my sister will join us")

broken: list[str] = []


@dataclass
class Cost:
    """What a message costs, on the average."""

    cpu_ms: dict[str, float]
    statements: float
    commits: float
    pages: float
    rows: dict[str, float]
    took: list[float] = field(repr=False)

    @property
    def total_ms(self) -> float:
        return sum(self.cpu_ms.values())


def main() -> int:
    """Run the parts that are asked for and print their tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", type=lambda text: text.split(","), default=PARTS[:3], metavar="PARTS", help=f"some of {','.join(PARTS)}")
    options.add_argument("--sizes", type=numbers, default=SIZES, help="users, and stored turns; default 10000,100000,1000000")
    options.add_argument("--workers", type=numbers, default=worker_counts(), help="default: 1, 2, 4 up to the number of cores")
    options.add_argument("--messages", type=int, default=400, help="how many messages are measured each time; default %(default)s")
    options.add_argument("--soak-messages", type=int, default=100_000, help="default %(default)s")
    options.add_argument("--folder", type=Path, help="where the data goes; default: the system's folder for temporary files")
    chosen = options.parse_args()
    if unknown := set(chosen.only) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n", flush=True)
    logs.configure("json", "error", sys.stderr)
    with (
        tempfile.TemporaryDirectory(prefix="hermes-", dir=chosen.folder) as folder,
        embedded.run_servers(Path(folder) / "home") as stores,
    ):
        asyncio.run(run_parts(Stage(Path(folder), stores), chosen))
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if broken else 0


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def worker_counts() -> tuple[int, ...]:
    return tuple(count for count in (1, 2, 4) if count <= (os.cpu_count() or 1))


async def run_parts(stage: Stage, chosen: argparse.Namespace) -> None:
    stage.secret = await prepare(stage)
    if "workers" in chosen.only:
        costs = {}
        for workers in chosen.workers:
            progress(f"{workers} worker(s), {chosen.messages} messages")
            costs[f"{workers} worker(s)"] = await measure(stage, workers, chosen.messages, f"w{workers}")
        print_costs("By workers", costs)
    if "size" in chosen.only:
        costs, template = {}, await new_template(stage)
        for size in chosen.sizes:
            fill_to(stage.stores.database_url, template, size, progress)
            progress(f"{chosen.messages} messages beside {size:,} users")
            costs[f"{size:,} users and turns"] = await measure(stage, 1, chosen.messages, f"s{size}")
        print_costs("By size", costs)
        print_growth(costs)
        print("| table, with its indexes | MB |\n|---|---|")
        for name, size_mb in table_sizes(stage.stores.database_url):
            print(f"| {name} | {size_mb:,.0f} |")
        print()
    if "months" in chosen.only:
        print_months(stage)
    if "soak" in chosen.only:
        await soak(stage, chosen.soak_messages)


def progress(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text} …", file=sys.stderr, flush=True)


# --- the service that is measured


@dataclass
class Stage:
    """The stores of this run, and the key that its messages come with."""

    folder: Path
    stores: embedded.StoreUrls
    secret: str = ""

    @property
    def environ(self) -> dict[str, str]:
        (self.folder / "at_once.toml").write_text('[[rule]]\nsay = "That sounds lovely."\n', encoding="utf-8")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "ANTHROPIC_", "OPENAI_"))},
            "HERMES_HOME": str(self.folder / "home"),
            "HERMES_DATABASE_URL": self.stores.database_url,
            "HERMES_REDIS_URL": self.stores.redis_url,
            "HERMES_CREDITS_SIGNUP_GRANT": "1000000",
            "HERMES_INBOX_MAX_WAITING": "1000000",
            "HERMES_API_PER_MINUTE": "10000000",
            "HERMES_LOG_LEVEL": "error",
            "HERMES_WEB_PORT": "8495",
            "HERMES_LLM_SCRIPT": str(self.folder / "at_once.toml"),
        }

    def ask(self, query: str) -> list[tuple]:  # type: ignore[type-arg]
        with psycopg.connect(self.stores.database_url, autocommit=True) as connection:
            cursor = connection.execute(query.encode())
            return cursor.fetchall() if cursor.description else []

    @property
    def log(self) -> Path:
        return self.folder / "home" / "stores" / "postgres.log"


async def prepare(stage: Stage) -> str:
    async with open_hermes(load(stage.environ)) as hermes:
        await hermes.prepare()
        async with hermes.database.begin() as tx:
            _, secret = await hermes.adapters.api_keys.create(tx, "bench", "bench")
    stage.ask("alter system set max_wal_size = '8GB'")
    stage.ask("select pg_reload_conf()")
    return secret


async def new_template(stage: Stage) -> Template:
    """A turn as Hermes stores it: the pattern of those that are loaded in bulk."""
    with processes(stage.environ, ["serve", "worker"]):
        async with client_of(stage) as client:
            await until_ready(client)
            assert await say(client, "template")
            await asyncio.sleep(1)
    return Template.read(stage.stores.database_url, "template")


def client_of(stage: Stage) -> aiohttp.ClientSession:
    return aiohttp.ClientSession("http://127.0.0.1:8495", headers={"Authorization": f"Bearer {stage.secret}"})


async def say(client: aiohttp.ClientSession, user: str) -> bool:
    """Send a message; return whether it got the script's answer. On a machine that is too busy, some get an apology."""
    async with client.post("/v1/messages", json={"text": random.choice(TEXTS), "user": user}) as response:
        body = await response.json()
        assert response.status == 200, body
        return str(body["text"]).startswith("That sounds")


async def talk(client: aiohttp.ClientSession, users: Sequence[str], count: int, at_once: int) -> list[float]:
    gate, took, apologies = asyncio.Semaphore(at_once), list[float](), 0

    async def one(number: int) -> None:
        nonlocal apologies
        async with gate:
            began = time.perf_counter()
            apologies += not await say(client, users[number % len(users)])
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(one(number) for number in range(count)))
    if apologies > count * MAX_APOLOGIES:
        raise SystemExit(f"{apologies} of {count} messages got an apology: this machine is too busy to measure")
    return took


# --- what a message costs


async def measure(stage: Stage, workers: int, count: int, name: str) -> Cost:
    """Meet new users, let every connection prepare its statements, then count."""
    users = [f"{name}-{number}" for number in range(PEOPLE)]
    with processes(stage.environ, ["serve", *["worker"] * workers]) as pids:
        async with client_of(stage) as client:
            await until_ready(client)
            await talk(client, users, 4 * PEOPLE, AT_ONCE)
            await asyncio.sleep(2)
            counted = {**pids, "valkey": [valkey_pid(stage.stores)], "postgres": postgres_pids(stage)}
            before, read_before = {role: cpu_s(of) for role, of in counted.items()}, reads(stage)
            took = await talk(client, users, count, AT_ONCE)
            await asyncio.sleep(1)
            read_after = reads(stage)
            cpu = {role: (cpu_s(of) - before[role]) / count * 1e3 for role, of in counted.items()}
            statements, commits = await count_statements(stage, client, users)
    rows = {key: (read_after[key] - read_before.get(key, 0)) / count for key in read_after}
    return Cost(cpu, statements, commits, rows.pop("pages"), rows, took)


def postgres_pids(stage: Stage) -> list[int]:
    return [
        pid for (pid,) in stage.ask("select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()")
    ]


def reads(stage: Stage) -> dict[str, float]:
    """Rows that were read so far, by table and by way, and pages."""
    stage.ask("select pg_stat_force_next_flush()")
    found = {
        f"{table} {way}": float(count)
        for table, way, count in stage.ask(
            "select regexp_replace(relname, '_(before|rest|[0-9]{4}_[0-9]{2})$', ''), way, sum(rows) from ("
            " select relname, 'by scan' as way, seq_tup_read as rows from pg_stat_user_tables"
            " union all select relname, 'by index', idx_tup_read from pg_stat_user_indexes) as each group by 1, 2"
        )
    }
    [(pages,)] = stage.ask("select blks_hit + blks_read from pg_stat_database where datname = current_database()")
    return {**found, "pages": float(pages)}


async def count_statements(stage: Stage, client: aiohttp.ClientSession, users: Sequence[str]) -> tuple[float, float]:
    """Statements and commits for a message, from the server's log of quiet messages, one after the other. What the processes ask while no
    message comes is taken off, for the time that the messages took."""
    stage.ask("alter system set log_statement = 'all'")
    stage.ask("select pg_reload_conf()")
    await asyncio.sleep(0.5)
    idle, _ = await logged(stage, asyncio.sleep(QUIET_S))
    busy, took = await logged(stage, talk(client, users, LOGGED, 1))
    stage.ask("alter system reset log_statement")
    stage.ask("select pg_reload_conf()")
    [statements, commits] = [(each - rest * took / QUIET_S) / LOGGED for each, rest in zip(busy, idle, strict=True)]
    return statements, commits


async def logged(stage: Stage, act: Awaitable[object]) -> tuple[tuple[int, int], float]:
    """How many statements and commits the server logs meanwhile, and how long that is."""
    start, began = stage.log.stat().st_size, time.perf_counter()
    await act
    took = time.perf_counter() - began
    with stage.log.open("rb") as log:
        log.seek(start)
        lines = [line for line in log if b"LOG:  execute" in line or b"LOG:  statement:" in line]
    commits = sum(b": COMMIT" in line for line in lines)
    return (len(lines) - commits - sum(b": BEGIN" in line for line in lines), commits), took


# --- tables


def print_costs(title: str, costs: dict[str, Cost]) -> None:
    roles = list(next(iter(costs.values())).cpu_ms)
    print(f"\n{title}: processor ms for a message, {AT_ONCE} at once; statements and commits of quiet messages\n")
    print(f"| | {' | '.join(roles)} | all | against the first | statements | commits | pages read | p50 ms | p99 ms |")
    print("|---" * (len(roles) + 9) + "|")
    first = next(iter(costs.values())).total_ms
    for name, cost in costs.items():
        cells = [*(f"{cost.cpu_ms[role]:.2f}" for role in roles), f"{cost.total_ms:.2f}", f"{cost.total_ms / first:.2f}"]
        times = [f"{percentile(cost.took, rank) * 1e3:.0f}" for rank in (50, 99)]
        cells += [f"{cost.statements:.1f}", f"{cost.commits:.1f}", f"{cost.pages:.0f}", *times]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if cost.total_ms > FACTOR * first:
            broken.append(f"{title.lower()}, {name}: {cost.total_ms / first:.2f} times the first, and {FACTOR} is promised")
    print()


def print_growth(costs: dict[str, Cost]) -> None:
    """Which tables are read more for a message as they grow: the plan of a statement grows with them."""
    small, large = next(iter(costs.values())), list(costs.values())[-1]
    grown = {key: rows for key, rows in large.rows.items() if rows > 5 + 2 * small.rows.get(key, 0)}
    print("Rows read for a message that grew more than twofold: ", end="")
    print(", ".join(f"{key} {small.rows.get(key, 0):.0f} -> {rows:.0f}" for key, rows in sorted(grown.items())) or "none")
    print()


def print_months(stage: Stage) -> None:
    """What it costs to get rid of what is old: emptying row by row, rewriting, dropping, vacuum."""
    [(table, rows)] = stage.ask(
        "select relid::regclass::text, n_live_tup from pg_stat_user_tables where relname ~ '^run_events_[0-9]' order by 2 desc limit 1"
    )
    [(calls, call_rows)] = stage.ask(
        "select relid::regclass::text, n_live_tup from pg_stat_user_tables where relname ~ '^calls_[0-9]' order by 2 desc limit 1"
    )
    print("What is old, at the largest size\n\n| | rows | seconds | MB before | MB after |\n|---|---|---|---|---|")
    [(index,)] = stage.ask(
        f"select indexrelid::regclass::text from pg_index where indrelid = '{table}'::regclass and indisunique and indnatts = 3"  # noqa: S608
    )
    for name, what, query, counted in (
        ("empty a month of the journal, row by row", table, f"update {table} set request = null, result = null", rows),  # noqa: S608
        ("vacuum it", table, f"vacuum (analyze) {table}", rows),
        ("rewrite it", table, f"cluster {table} using {index}", rows),
        ("vacuum a month of calls", calls, f"vacuum (analyze) {calls}", call_rows),
        ("drop a month of calls", calls, f"drop table {calls}", call_rows),
    ):
        size = f"select coalesce(pg_total_relation_size(to_regclass('{what}')), 0) / 1e6"
        progress(name)
        [(before,)] = stage.ask(size)
        began = time.perf_counter()
        stage.ask(query)
        took = time.perf_counter() - began
        [(after,)] = stage.ask(size)
        print(f"| {name} | {counted:,} | {took:.2f} | {before:,.0f} | {after:,.0f} |", flush=True)
    print()


async def soak(stage: Stage, count: int) -> None:
    """The memory of one worker and of the web over very many messages of many users, without and with the local embedding model."""
    for name, more, most_mb in (
        # Nothing listens there: then the words decide what is recalled, and the worker has all that it has with an API that answers.
        ("with an embeddings API", {"HERMES_MEMORY_EMBEDDINGS_URL": "http://127.0.0.1:9/v1"}, MAX_WORKER_MB),
        ("with the local embedding model", {}, MAX_WORKER_MB_WITH_MODEL),
    ):
        await soak_one(stage, {**stage.environ, **more}, count, name, most_mb)


async def soak_one(stage: Stage, environ: dict[str, str], count: int, name: str, most_mb: float) -> None:
    """Flat: what worker and web grow after the first tenth stays under a bound."""
    print(f"Memory of one worker, {name}, and of the web\n")
    print("| messages | worker MB | its own pages | web MB | its own pages |\n|---|---|---|---|---|")
    parts = 10
    with processes(environ, ["serve", "worker"]) as pids:
        roles = {"worker": pids["worker"][0], "web": pids["serve"][0]}
        async with client_of(stage) as client:
            await until_ready(client)
            sizes: dict[str, list[Size]] = {role: [] for role in roles}
            for part in range(parts):
                users = [f"soak-{part}-{number}" for number in range(max(1, count // parts // 5))]
                progress(f"soak, {part * count // parts:,} of {count:,} messages")
                await talk(client, users, count // parts, AT_ONCE)
                for role, pid in roles.items():
                    sizes[role].append(Size.of(pid))
                cells = " | ".join(f"{found[-1].share_mb:.0f} | {found[-1].own_mb:.1f}" for found in sizes.values())
                print(f"| {(part + 1) * count // parts:,} | {cells} |", flush=True)
    print()
    for role, found in sizes.items():
        grown_mb = max(size.own_mb for size in found) - found[0].own_mb
        if grown_mb > GROWTH_MB:
            broken.append(f"the {role} grew by {grown_mb:.0f} MB after its first messages, and {GROWTH_MB:.0f} are promised")
    if (last := sizes["worker"][-1].share_mb) > most_mb:
        broken.append(f"a worker {name} has {last:.0f} MB, and {most_mb:.0f} are promised")


class Size(NamedTuple):
    """The memory of a process, in MB."""

    share_mb: float
    """Its own pages, and its part of those that it shares with others (PSS). It grows when another process that shares them ends."""
    own_mb: float
    """Its own pages alone."""

    @classmethod
    def of(cls, pid: int) -> Size:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        kb = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines[1:])}
        return cls(kb["Pss"] / 1024, kb["Anonymous"] / 1024)


if __name__ == "__main__":
    sys.exit(main())
