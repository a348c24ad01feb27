"""A storm: real processes of Hermes on real stores, the strict stand-ins of the platforms, people who talk, and the weather.

    async with open_world(forecast(7, seconds=60, users=16)) as world:
        await world.storm()            # people talk, everything is struck
        await world.calm()             # nothing is struck any more; wait until nothing waits
        violations = check(await world.history())

Web and workers are `hermes serve` and `hermes worker`, with settings that make every wait short. Nothing here looks into Hermes while it
runs; what the checker reads was seen by people and platforms, and the books are read when all is over."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import socket
import string
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import psycopg

from hermes.app import open_hermes
from hermes.config import load
from hermes.demo.platforms import Attempt, Instagram, Platforms, open_platforms
from hermes.demo.platforms import Platform as Fake
from hermes.ports.channel_accounts import ChannelAccount
from hermes.stores.postgres.database import open_database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import MasterKeys, new_master_key
from hermes.turn import Platform
from tests.storm.books import OWN_WORDS, RAW_WORDS, Reader
from tests.storm.checker import ANY_MARK, History, Sent, Violation
from tests.storm.machines import ROOT, Machine, Servers
from tests.storm.people import ACCOUNT, Client, Phone, Program, Somebody, Visitor
from tests.storm.weather import (
    FETCHED,
    SPEED,
    WORKERS,
    Block,
    Blow,
    ByHand,
    Crash,
    CutConnections,
    EmptyRedis,
    Event,
    Forecast,
    Freeze,
    Kill,
    Kind,
    Outage,
    RestartPostgres,
    StopRedis,
    Strike,
    Talker,
)

OFFERED = re.compile(rf"about ({ANY_MARK.pattern})".encode())
"""A message of a person in a webhook's body. Echoes of answers have marks too, but not behind this word."""
SEND = {"telegram": "sendMessage", "polled": "sendMessage"}
"""The call that is struck; at the others it is `messages`. What shows that somebody is typing is left alone."""
PIECES = 330
DOOMED_S = 8.0
"""So long a doomed process has to come to its place."""
PATIENCE_S = 150.0
READY_S = 60.0

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
    "HERMES_DELIVERY_STOP_S": "3",
    "HERMES_INBOX_MAX_ATTEMPTS": "8",
    "HERMES_INBOX_PER_MINUTE": "99",
    "HERMES_MEMORY_ASKS_MODELS": "false",
    "HERMES_LOG_FORMAT": "json",
}
"""Everything that waits in the product for minutes, waits for seconds here."""


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


class Attempts(list[Attempt]):
    """Every try to hand us a webhook, with the moment at which it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_at: list[float] = []

    def append(self, attempt: Attempt) -> None:
        super().append(attempt)
        self.ended_at.append(time.monotonic())


@dataclass(frozen=True, slots=True)
class Done:
    """A blow that fell: when, and for how long."""

    event: Event
    at: float
    until: float


@dataclass(slots=True)
class World:
    """Everything that a storm is made of."""

    forecast: Forecast
    folder: Path
    environ: Mapping[str, str]
    servers: Servers
    fakes: Mapping[str, Fake]
    opened_at: Mapping[str, float]
    machines: list[Machine]
    people: list[Somebody]
    attempts: Mapping[str, Attempts]
    done: list[Done] = field(default_factory=list)
    began: float = 0.0
    calm_at: float = 0.0
    drained_s: float | None = None
    """How long it took until nothing waited any more; None: it did not come to that."""

    # --- the storm

    async def storm(self) -> None:
        """Let people talk and the weather have its way."""
        self.began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for somebody in self.people:
                group.create_task(somebody.talk(self.began))
            for event in self.forecast.events:
                group.create_task(self._happen(event))

    async def _happen(self, event: Event) -> None:
        await asyncio.sleep(max(0.0, self.began + event.at_s - time.monotonic()))
        at = time.monotonic()
        await self._strike(event.blow)
        self.done.append(Done(event, at, time.monotonic()))

    async def _strike(self, blow: Blow) -> None:
        match blow:
            case Kill():
                self._machine(blow.role, blow.which).strike(signal.SIGKILL)
            case Crash():
                await self._doom(blow)
            case Freeze():
                await self._freeze(blow)
            case EmptyRedis() | StopRedis() | RestartPostgres() | CutConnections():
                await self._strike_store(blow)
            case Outage() | Strike():
                await self._strike_platform(blow)
            case Block():
                await self._block(blow)
            case ByHand():
                await self._answer(blow)

    async def _strike_store(self, blow: EmptyRedis | StopRedis | RestartPostgres | CutConnections) -> None:
        match blow:
            case EmptyRedis():
                await self.servers.empty_redis()
            case StopRedis(is_killed=True):
                await self.servers.restart("valkey", signal.SIGKILL, blow.for_s)
            case StopRedis():
                await self.servers.hang("valkey", blow.for_s)
            case RestartPostgres():
                await self.servers.restart("postgres", signal.Signals[blow.blow], blow.for_s)
            case CutConnections():
                await self.servers.cut_connections(self.environ["HERMES_DATABASE_URL"], blow.count)

    async def _strike_platform(self, blow: Outage | Strike) -> None:
        fake, method = self.fakes[blow.line], SEND.get(blow.line, "messages")
        if isinstance(blow, Strike):
            fake.cue(blow.fault, method=method, times=blow.times)
            return
        fake.cue(blow.fault, method=method, times=None, for_s=blow.for_s * SPEED)
        await asyncio.sleep(blow.for_s)

    def _machine(self, role: str, which: int) -> Machine:
        return [machine for machine in self.machines if machine.role == role][which]

    async def _doom(self, blow: Crash) -> None:
        """Have one started that will die where it is told to; if it never comes there, it dies all the same."""
        machine = self._machine(blow.role, blow.which)
        machine.doom = (blow.place, "after" if blow.is_after else "before", str(blow.nth))
        machine.strike(signal.SIGKILL)
        await until(lambda: not machine.doom)  # it has been started
        doomed = machine.process
        await until(lambda: doomed is None or doomed.returncode is not None, DOOMED_S)
        if machine.process is doomed:
            machine.strike(signal.SIGKILL)

    async def _freeze(self, blow: Freeze) -> None:
        machine = self._machine(blow.role, blow.which)
        frozen = machine.process
        machine.strike(signal.SIGSTOP)
        await asyncio.sleep(blow.for_s)
        if machine.process is frozen:
            machine.strike(signal.SIGCONT)

    async def _block(self, blow: Block) -> None:
        somebody = self.people[blow.talker]
        assert isinstance(somebody, Phone)
        somebody.person.block()
        await asyncio.sleep(blow.for_s)
        somebody.person.unblock()

    async def _answer(self, blow: ByHand) -> None:
        somebody = self.people[blow.talker]
        assert isinstance(somebody, Phone)
        assert isinstance(somebody.fake, Instagram)
        await somebody.fake.answer_by_hand(somebody.person, "A person of ours says hello.")

    # --- the calm

    async def calm(self, patience_s: float = PATIENCE_S) -> None:
        """Strike nothing any more, and wait until nothing waits: no message on its way in, no turn, no parcel, no client."""
        self.calm_at = time.monotonic()
        for fake in set(self.fakes.values()):
            fake.heal()
        if await until(self._is_over, patience_s):
            self.drained_s = time.monotonic() - self.calm_at
        # What a platform told before we knew of it is applied by whoever starts: so let everybody start once more.
        deaths = [len(machine.deaths) for machine in self.machines]
        for machine in self.machines:
            machine.strike(signal.SIGTERM)
        await until(lambda: all(len(machine.deaths) > before for machine, before in zip(self.machines, deaths, strict=True)), READY_S)
        await self.ready()
        await until(self._is_over, patience_s)

    async def _is_over(self) -> bool:
        return not self.on_the_way() and not await self._left()

    def on_the_way(self) -> dict[str, int]:
        """What is still between people and us."""
        waits = Counter({f"to {name}": 1 for name, fake in self.fakes.items() if not fake.is_quiet()})
        waits["polled updates"] = self.fakes["polled"].pending  # type: ignore[attr-defined]  # a Telegram
        waits["clients"] = sum(somebody.waits for somebody in self.people)
        return {name: count for name, count in waits.items() if count}

    async def _left(self) -> dict[str, int]:
        async with self._reading() as reader:
            return await reader.left()

    async def ready(self) -> None:
        """Wait until all processes are up."""
        async with aiohttp.ClientSession() as http:
            for machine in self.machines:
                if not await until(lambda machine=machine: self._is_ready(machine, http)):
                    raise AssertionError(f"{machine.role} is not ready:\n{machine.last_words()}")

    async def _is_ready(self, machine: Machine, http: aiohttp.ClientSession) -> bool:
        if machine.role == "worker":
            starts = machine.log.read_text(encoding="utf-8").count('"worker_ready"') if machine.log.exists() else 0
            return machine.process is not None and machine.process.returncode is None and starts > 0
        with suppress(aiohttp.ClientError, OSError):
            async with http.get(f"http://127.0.0.1:{self.environ['HERMES_WEB_PORT']}/ready") as response:
                return response.status == 200
        return False

    # --- what is left

    async def history(self) -> History:
        """Everything that people and platforms saw, and the books. For the calm."""
        self._note_attempts()
        sent = [
            Sent(
                mark=mark,
                chat=said.chat,
                at=said.at,
                tried_at=said.tried_at,
                taken_at=said.taken_at,
                pieces=PIECES if said.message.kind is Kind.LONG else 0,
                has_tool=said.message.kind is Kind.TOOL,
            )
            for somebody in self.people
            for mark, said in somebody.said.items()
        ]
        async with self._reading() as reader:
            return History(
                sent=sent,
                received=[received for somebody in self.people for received in somebody.received],
                turns=await reader.turns(),
                purses=await reader.purses(),
                left={**self.on_the_way(), **await reader.left()},
                own_words=OWN_WORDS,
                raw_words=RAW_WORDS,
                fetched=frozenset(somebody.chat for somebody in self.people if somebody.talker.line in FETCHED),
            )

    async def outcomes(self) -> dict[str, int]:
        """How Hermes says that its turns ended."""
        async with self._reading() as reader:
            return await reader.outcomes()

    def _note_attempts(self) -> None:
        """When each message was first offered to us, and when we first said that we have it."""
        said = {mark: one for somebody in self.people for mark, one in somebody.said.items()}
        for name, attempts in self.attempts.items():
            for attempt, ended_at in zip(attempts, attempts.ended_at, strict=True):
                for mark in {found.decode() for found in OFFERED.findall(attempt.body)}:
                    began = self.opened_at[name] + attempt.at / SPEED
                    said[mark].tried_at = min(said[mark].tried_at or began, began)
                    if attempt.is_taken:
                        said[mark].taken_at = min(said[mark].taken_at or ended_at, ended_at)
        if not self.fakes["polled"].pending:  # type: ignore[attr-defined]  # a Telegram
            # Whoever asks for the next updates has the ones before; when that was, nobody wrote down.
            for somebody in (one for one in self.people if one.talker.line == "polled"):
                for one in somebody.said.values():
                    one.tried_at, one.taken_at = one.at, one.at

    async def story(self, violation: Violation) -> str:
        """All that is known of the message that a violation is about."""
        mark = violation.about
        lines = [str(violation)]
        for somebody in self.people:
            if mark in somebody.said:
                said = somebody.said[mark]
                seconds = [None if at is None else round(at - self.began, 3) for at in (said.at, said.tried_at, said.taken_at)]
                lines.append(f"  {somebody.chat}: said, offered, taken at {seconds}: {said.message.text}")
                lines += [f"  received at {got.at - self.began:.3f}: {got.text[:90]!r}" for got in somebody.received if mark in got.text]
        for name, attempts in self.attempts.items():
            for attempt, ended_at in zip(attempts, attempts.ended_at, strict=True):
                if mark.encode() in attempt.body:
                    lines.append(f"  webhook of {name}: {attempt.status} {attempt.error} until {ended_at - self.began:.3f}")
        async with self._reading() as reader:
            lines.append(await reader.story(mark))
        return "\n".join(lines)

    def chronicle(self) -> str:
        """What was struck when; single calls are left out."""
        return "\n".join(
            f"  {done.at - self.began:8.3f} … {done.until - self.began:7.3f}  {done.event.blow}"
            for done in sorted(self.done, key=lambda done: done.at)
            if not isinstance(done.event.blow, Strike | ByHand)
        )

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Reader]:
        async with open_database(self.environ["HERMES_DATABASE_URL"], pool_min=1, pool_max=2) as database:
            yield Reader(database, Keyring(MasterKeys.parse([self.environ["HERMES_MASTER_KEYS"]])))


async def until(is_so: Callable[[], bool | Awaitable[bool]], patience_s: float = READY_S) -> bool:
    """Wait until something is so; whether it came to that."""
    end = time.monotonic() + patience_s
    while True:
        found = is_so()
        if found if isinstance(found, bool) else await found:
            return True
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.1)


# --- opening and closing


@asynccontextmanager
async def open_world(forecast: Forecast, *, log_level: str = "info") -> AsyncIterator[World]:
    """Start everything, and leave nothing behind."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-")))
        servers = await asyncio.to_thread(Servers.start, folder / "home")
        stack.callback(servers.stop)
        environ = surroundings(folder, servers, await fresh_database(servers))
        environ |= {
            "HERMES_CREDITS_SIGNUP_GRANT": str(forecast.credits),
            "HERMES_INBOX_BURST_S": str(forecast.burst_s),
            "HERMES_LOG_LEVEL": log_level,
        }
        opened = {}
        mainland = await stack.enter_async_context(open_platforms(seed=forecast.seed, speed=SPEED, disorder=forecast.disorder))
        opened["mainland"] = time.monotonic() - mainland.world.pace.now() / SPEED
        island = await stack.enter_async_context(open_platforms(seed=forecast.seed + 1, speed=SPEED, disorder=forecast.disorder))
        opened["island"] = time.monotonic() - island.world.pace.now() / SPEED
        fakes: dict[str, Fake] = {**{fake.name: fake for fake in mainland}, "polled": island.telegram}
        key = await settle(environ, mainland, island)
        url = f"http://127.0.0.1:{environ['HERMES_WEB_PORT']}"
        attempts = {name: watched(fake) for name, fake in fakes.items() if name != "polled"}
        connect(mainland, url)
        opened_at = {name: opened["island" if name == "polled" else "mainland"] for name in fakes}
        http = await stack.enter_async_context(aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()))
        harbour = Harbour(fakes, opened_at, http, url, key, forecast.seed)
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


async def settle(environ: Mapping[str, str], mainland: Platforms, island: Platforms) -> str:
    """Give Hermes its accounts at the platforms, and a program its key; returns the key."""
    settings = load({name: value for name, value in environ.items() if name.startswith("HERMES_")})
    async with open_hermes(settings) as hermes, hermes.database.begin() as tx:
        for account in accounts(mainland, island):
            await hermes.parts.channel_accounts.put(tx, replace(account, about={**account.about, "is_open": "yes"}))
        _, key = await hermes.parts.api_keys.create(tx, "storm", ACCOUNT)
    return key


def accounts(mainland: Platforms, island: Platforms) -> Iterator[ChannelAccount]:
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


def connect(mainland: Platforms, url: str) -> None:
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
    seed: int

    def arrival(self, talker: Talker) -> Somebody:
        """Somebody comes."""
        if talker.line == "rest":
            return Program(talker, self.http, self.url, self.key)
        if talker.line == "web":
            cookie = "".join(random.Random(f"{self.seed}/cookie/{talker.number}").choices(string.ascii_letters + string.digits, k=43))
            return Visitor(talker, self.http, self.url, cookie)
        fake: Any = self.fakes[talker.line]
        options = {"phone": None} if talker.is_nameless and talker.line.startswith("whatsapp") else {}
        return Phone(talker, fake.person(f"Person {talker.number}", **options), self.opened_at[talker.line])
