"""All that a storm needs, started and connected: stores, platforms, accounts, people, and the processes of Hermes.

Web and workers are `hermes serve` and `hermes worker`, with settings that make every wait short."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import psycopg

from hermes.app.root import open_hermes
from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.config import load
from hermes.ports.channels import ChannelAccount
from hermes.stores.seal import KeyPurpose, decode_master_key, derive, new_master_key
from hermes.testing.platforms import FakePlatform as Fake
from hermes.turn import Platform
from hermes.web.visitors import sign
from tests.storm.machines import ROOT, Machine, Servers
from tests.storm.people import ACCOUNT, Client, Phone, Program, Somebody, Visitor
from tests.storm.weather import SPEED, WORKERS, Forecast, Talker
from tests.storm.world import PIECES, Attempts, World

QUICK: Mapping[str, str] = {
    "HERMES_WORK_HEARTBEAT_S": "0.5",
    "HERMES_WORK_STALLED_AFTER_S": "3.0",
    "HERMES_WORK_SWEEP_S": "0.5",
    "HERMES_WORK_POLL_S": "0.3",
    "HERMES_WORK_CONCURRENCY": "16",
    "HERMES_DATABASE_CONNECT_TIMEOUT_S": "2",
    "HERMES_DATABASE_STATEMENT_TIMEOUT_S": "10",
    "HERMES_DATABASE_POOL_MAX": "12",
    "HERMES_DELIVERY_TIMEOUT_S": "2",
    "HERMES_DELIVERY_CUT_OFF_S": "14",
    "HERMES_DELIVERY_QUEUE_S": "2,4,8",
    "HERMES_DELIVERY_BREAKER_OPEN_S": "3",
    "HERMES_DELIVERY_BREAKER_UNAUTHORIZED_S": "3",
    "HERMES_INBOX_MAX_ATTEMPTS": "8",
    "HERMES_INBOX_PER_MINUTE": "99",
    "HERMES_MEMORY_ASKS_MODELS": "false",
    "HERMES_LOG_FORMAT": "json",
}
"""Everything that waits in the product for minutes, waits for seconds here."""


@asynccontextmanager
async def open_world(forecast: Forecast) -> AsyncIterator[World]:
    """Start everything, and leave nothing behind."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-")))
        servers = await asyncio.to_thread(Servers.start, folder / "home")
        stack.callback(servers.stop)
        environ = surroundings(folder, servers, await fresh_database(servers))
        environ |= {"HERMES_CREDITS_SIGNUP_GRANT": str(forecast.credits), "HERMES_INBOX_BURST_S": str(forecast.burst_s)}
        opened = {}
        mainland = await stack.enter_async_context(open_platforms(seed=forecast.seed, speed=SPEED, disorder=forecast.disorder))
        opened["mainland"] = time.monotonic() - mainland.world.clock.now() / SPEED
        island = await stack.enter_async_context(open_platforms(seed=forecast.seed + 1, speed=SPEED, disorder=forecast.disorder))
        opened["island"] = time.monotonic() - island.world.clock.now() / SPEED
        fakes: dict[str, Fake] = {**{fake.name: fake for fake in mainland}, "polled": island.telegram}
        key = await settle(environ, mainland, island)
        url = f"http://127.0.0.1:{environ['HERMES_WEB_PORT']}"
        attempts = {name: watched(fake) for name, fake in fakes.items() if name != "polled"}
        connect(mainland, url)
        opened_at = {name: opened["island" if name == "polled" else "mainland"] for name in fakes}
        http = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        visitor_key = derive(decode_master_key(environ["HERMES_MASTER_KEYS"], 1), KeyPurpose.VISITOR)
        harbour = Harbour(fakes, opened_at, http, url, key, visitor_key, forecast.seed)
        people = [harbour.arrival(talker) for talker in forecast.talkers]
        roles = [("web", 0), *(("worker", number) for number in range(WORKERS))]
        machines = [Machine(role, number, environ, folder) for role, number in roles]
        world = World(forecast, folder, environ, servers, fakes, opened_at, machines, people, attempts)
        try:
            async with kept_alive(machines):
                await world.ready()
                yield world
        finally:
            for somebody in people:
                if isinstance(somebody, Client):
                    somebody.close()


@asynccontextmanager
async def kept_alive(machines: list[Machine]) -> AsyncIterator[None]:
    keeping = [asyncio.create_task(machine.keep_alive()) for machine in machines]
    try:
        yield
    finally:
        for task in keeping:
            task.cancel()
        ended = await asyncio.gather(*keeping, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error


def surroundings(folder: Path, servers: Servers, database_url: str) -> dict[str, str]:
    """The variables of every process."""
    (folder / "script.toml").write_text(script(), encoding="utf-8")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("HERMES_")},
        **QUICK,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "HERMES_HOME": str(folder / "elsewhere"),
        "HERMES_DATABASE_URL": database_url,
        "HERMES_REDIS_URL": servers.addresses.redis_url,
        "HERMES_MASTER_KEYS": new_master_key(),
        "HERMES_WEB_PORT": str(free_port()),
        "HERMES_LLM_SCRIPT": str(folder / "script.toml"),
    }


async def fresh_database(servers: Servers) -> str:
    async with await psycopg.AsyncConnection.connect(servers.addresses.database_url, autocommit=True) as connection:
        await connection.execute("create database storm")
    return psycopg.conninfo.make_conninfo(servers.addresses.database_url, dbname="storm")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def settle(environ: Mapping[str, str], mainland: FakePlatforms, island: FakePlatforms) -> str:
    """Give Hermes its accounts at the platforms, and a program its key; returns the key."""
    settings = load({name: value for name, value in environ.items() if name.startswith("HERMES_")})
    async with open_hermes(settings) as hermes, hermes.database.begin() as tx:
        for account in accounts(mainland, island):
            await hermes.adapters.channel_accounts.put(tx, replace(account, about={**account.about, "is_open": "yes"}))
        _, key = await hermes.adapters.api_keys.create(tx, "storm", ACCOUNT)
    return key


def accounts(mainland: FakePlatforms, island: FakePlatforms) -> Iterator[ChannelAccount]:
    """An account for each line, under the line's name."""
    url, header = {"base_url": mainland.url}, mainland.whatsapp.secret_header
    bot, cloud = mainland.telegram, mainland.whatsapp_cloud

    def account(platform: Platform, line: str, about: Mapping[str, str], **options: Any) -> ChannelAccount:
        return ChannelAccount(platform=platform, account=line, about=about, **options)

    yield account(Platform.TELEGRAM, "telegram", {**url, "token": bot.token, "secret": bot.secret})
    yield account(Platform.TELEGRAM, "polled", {"base_url": island.url, "token": island.telegram.token}, is_polled=True)
    dialog = {"api_key": mainland.whatsapp.key, "webhook_secrets": header[1], "secret_header": header[0]}
    yield account(Platform.WHATSAPP, "whatsapp", {**url, **dialog})
    direct = {"access_token": cloud.key, "phone_number_id": cloud.phone_number_id, "app_secrets": cloud.app_secret}
    yield account(Platform.WHATSAPP, "whatsapp_cloud", {**url, **direct})
    for fake in (mainland.instagram, mainland.instagram_page):
        about = {"instagram_id": fake.account_id, "access_token": fake.token, "app_secrets": fake.app_secret, "login": str(fake.login)}
        yield account(Platform.INSTAGRAM, fake.name, {**url, **about})


def watched(fake: Fake) -> Attempts:
    """Note when each try to hand us something ended."""
    attempts = Attempts()
    fake.attempts = attempts
    return attempts


def connect(mainland: FakePlatforms, url: str) -> None:
    mainland.telegram.connect(f"{url}/webhooks/telegram/telegram")
    for fake in (mainland.whatsapp, mainland.whatsapp_cloud):
        fake.connect(f"{url}/webhooks/whatsapp/{fake.name}")
    for page in (mainland.instagram, mainland.instagram_page):
        page.connect(f"{url}/webhooks/instagram/{page.name}")


@dataclass(frozen=True, slots=True)
class Harbour:
    """Where people arrive."""

    fakes: Mapping[str, Fake]
    opened_at: Mapping[str, float]
    http: aiohttp.ClientSession
    url: str
    key: str
    visitor_key: bytes
    seed: int

    def arrival(self, talker: Talker) -> Somebody:
        """Somebody comes."""
        if talker.line == "rest":
            return Program(talker, self.http, self.url, self.key)
        if talker.line == "web":
            own = random.Random(f"{self.seed}/cookie/{talker.number}").randbytes(16)
            return Visitor(talker, self.http, self.url, sign(own, self.visitor_key))
        fake: Any = self.fakes[talker.line]
        options = {"phone": None} if talker.is_nameless and talker.line.startswith("whatsapp") else {}
        return Phone(talker, fake.person(f"Person {talker.number}", **options), self.opened_at[talker.line])


def script() -> str:
    """What the model says: always the mark of the message, and the mark of the answer before it, if it was shown one."""
    mark, past = r"about (?P<mark>z\d+n\d+)", r"heard:(?P<past>z\d+n\d+)"
    long = "heard:{mark} " + " ".join(f"{{mark}}.{number}" for number in range(PIECES))
    rules = [f"[[rule]]\nwhen = 'stumble .*{mark}'\nfail = \"overloaded\"\ndelay_s = 0.1"]
    rules.append(f"[[rule]]\nwhen = 'long story {mark}'\nsay = \"{long}\"\ndelay_s = 0.3")
    call = '{name = "venue_search", arguments = {query = "sunset bar", area = "Canggu"}}'
    rules.append(f'[[rule]]\nwhen = \'sunset bar .*{mark}\'\ntools = ["venue_search"]\ncall = {call}\nthen = "heard:{{mark}} at a bar"')
    for words, delay_s in (("think hard .*", 1.5), ("", 0.1)):
        rules.append(f"[[rule]]\nwhen = '{words}{mark}'\nbefore = '{past}'\nsay = \"heard:{{mark}} after:{{past}}\"\ndelay_s = {delay_s}")
        rules.append(f"[[rule]]\nwhen = '{words}{mark}'\nsay = \"heard:{{mark}}\"\ndelay_s = {delay_s}")
    return "\n\n".join(rules)
