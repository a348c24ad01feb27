"""Stores, web and worker as real processes, with accounts at platforms that take every answer; and what was promised of them."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import aiohttp
import psycopg
from gateway.machine import cpu_s, first_line, running
from gateway.targets import free_port, store_pids
from ground import percentile, processes, until_ready

from channels.accounts import Account
from channels.senders import Load
from channels.taking import Taken, open_taking
from hermes.app.root import open_hermes
from hermes.config import Settings, load
from hermes.ports.channels import ChannelAccount
from hermes.stores import embedded
from hermes.turn import Platform

SCRIPT = "[[rule]]\nwhen = '\\((?P<mark>m\\d+)\\)'\nsay = \"I heard {mark}. That sounds lovely, tell me more about it.\"\n"
"""The model answers at once, and says which message it answers."""
IS_IDLE = """
select not exists (select from inbox where state = 'waiting')
    and not exists (select from outbox where state in ('pending', 'attempting'))
"""
PATIENCE_S = 900.0
"""So long the rest of a load may take; what is not through by then hangs."""

broken: list[str] = []


def say(what: str) -> None:
    """Tell how far it is, beside the tables."""
    print(what, file=sys.stderr, flush=True)


def promise(what: str, is_kept: bool) -> None:  # noqa: FBT001
    if not is_kept:
        broken.append(what)


@dataclass(frozen=True, slots=True)
class House:
    """A Hermes that is set up and not running yet, and whoever it talks to."""

    environ: Mapping[str, str]
    stores: embedded.StoreUrls
    taken: Taken
    sender: Popen[str]

    @property
    def settings(self) -> Settings:
        return load(self.environ)

    @asynccontextmanager
    async def running(self, *roles: str) -> AsyncIterator[dict[str, list[int]]]:
        """`hermes serve` and `hermes worker`, as long as the block lasts, by their process ids; they are ready when it begins."""
        [(newest,)] = await self.ask("select coalesce(max(id), 0) from procrastinate_workers")
        with processes(dict(self.environ), list(roles)) as pids:
            if "serve" in roles:
                async with aiohttp.ClientSession(f"http://127.0.0.1:{self.settings.web.port}") as client:
                    await until_ready(client)
            if "worker" in roles:
                await self._until("select exists (select from procrastinate_workers where id > %s)", newest)
            yield pids

    async def send(self, accounts: Sequence[Account], **what: Any) -> dict[str, Any]:
        """Have webhooks sent, and hear how that went."""
        wanted = Load(port=self.settings.web.port, accounts=[(account.kind, account.number) for account in accounts], **what)
        return await asyncio.to_thread(self._sent, wanted)

    def _sent(self, wanted: Load) -> dict[str, Any]:
        assert self.sender.stdin is not None
        print(json.dumps(asdict(wanted)), file=self.sender.stdin, flush=True)
        told: dict[str, Any] = json.loads(first_line(self.sender))
        return told

    async def ask(self, query: str, *values: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.stores.database_url, autocommit=True) as connection:
            return await (await connection.execute(query.encode(), values)).fetchall()

    def cpu_s(self, pids: Mapping[str, Sequence[int]]) -> dict[str, float]:
        """Processor seconds of everybody so far."""
        ours = {"web": pids.get("serve", ()), "worker": pids.get("worker", ())}
        theirs = {"stores": store_pids(Path(self.environ["HERMES_HOME"])), "senders": [self.sender.pid]}
        own = resource.getrusage(resource.RUSAGE_SELF)
        found = {name: cpu_s(roots) for name, roots in {**ours, **theirs}.items() if roots}
        return {**found, "platforms": own.ru_utime + own.ru_stime}

    async def until_idle(self) -> None:
        """Wait until every message has its answer, and every answer is settled."""
        await self._until(IS_IDLE)

    async def _until(self, query: str, *values: Any) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await self.ask(query, *values) == [(True,)]:
                    return
                await asyncio.sleep(0.2)


@asynccontextmanager
async def open_house(accounts: Sequence[Account]) -> AsyncIterator[House]:
    """A folder with stores of its own, an account at each platform, and a process that sends webhooks."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
        (Path(folder) / "script.toml").write_text(SCRIPT, encoding="utf-8")
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "ANTHROPIC_", "OPENAI_"))},
            "HERMES_HOME": f"{folder}/home",
            "HERMES_DATABASE_URL": stores.database_url,
            "HERMES_REDIS_URL": stores.redis_url,
            "HERMES_LLM_SCRIPT": f"{folder}/script.toml",
            "HERMES_CREDITS_SIGNUP_GRANT": "1000000",
            "HERMES_INBOX_MAX_WAITING": "1000000",
            "HERMES_INBOX_PER_MINUTE": "99",
            "HERMES_MEMORY_ASKS_MODELS": "false",  # the script would be asked in vain
            "HERMES_WORK_DRAIN_S": "10",
            "HERMES_LOG_LEVEL": "warning",
            "HERMES_WEB_PORT": str(free_port()),
        }
        async with open_taking() as taken:
            with running([sys.executable, "-m", "channels.senders"]) as sender:
                house = House(environ, stores, taken, sender)
                await put(house, accounts)
                yield house


async def put(house: House, accounts: Sequence[Account]) -> None:
    async with open_hermes(house.settings) as hermes, hermes.database.begin() as tx:
        for account in accounts:
            about = account.about(house.taken.url)
            told = ChannelAccount(platform=Platform(account.platform), account=account.name, about=about)
            await hermes.adapters.channel_accounts.put(tx, told)


def cpu_row(before: Mapping[str, float], after: Mapping[str, float], count: int) -> str:
    """Processor time for one message, process by process."""
    return ", ".join(f"{name} {(after[name] - before[name]) / count * 1e3:.2f} ms" for name in before)


def row(name: str, times_ms: Sequence[float]) -> None:
    """A line of a table of times."""
    ordered = sorted(times_ms)
    cells = (statistics.median(ordered), percentile(ordered, 99), ordered[-1])
    print(f"| {name} | {len(ordered)} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |", flush=True)
