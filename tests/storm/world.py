"""A storm: real processes of Hermes on real stores, the strict stand-ins of the platforms, people who talk, and the weather.

    async with open_world(forecast(7, seconds=60, users=16)) as world:
        await world.storm()            # people talk, everything is struck
        await world.calm()             # nothing is struck any more; wait until nothing waits
        violations = check(await world.history())

Nothing here looks into Hermes while it runs; what the checker reads was seen by people and platforms, and the books are read when all is
over. How everything is started, `opened` knows."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hermes.channels.fakes import FakeInstagram, InstagramPerson
from hermes.stores.postgres.database import open_database
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.seal import MasterKeys
from hermes.testing.platforms import FakePlatform as Fake
from hermes.testing.platforms import WebhookAttempt
from tests.storm.books import OWN_WORDS, POOR_WORDS, RAW_WORDS, Reader
from tests.storm.checker import ANY_MARK, Violation
from tests.storm.history import History, Sent
from tests.storm.machines import Machine, Servers
from tests.storm.people import Phone, Somebody
from tests.storm.weather import (
    FETCHED,
    SPEED,
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
)

OFFERED = re.compile(rf"about ({ANY_MARK.pattern})".encode())
"""A message of a person in a webhook's body. Echoes of answers have marks too, but not behind this word."""
SEND = {"telegram": "sendMessage", "polled": "sendMessage"}
"""The call that is struck; at the others it is `messages`. What shows that somebody is typing is left alone."""
PIECES = 330
"""The numbered words of a long answer: more than any platform takes in one message."""
DOOMED_S = 12.0
"""So long a doomed process has to come to its place."""
PATIENCE_S = 150.0
READY_S = 60.0


class Attempts(list[WebhookAttempt]):
    """Every try to hand us a webhook, with the moment at which it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_at: list[float] = []

    def append(self, attempt: WebhookAttempt) -> None:
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
    sprung: int = 0
    """Doomed processes that came to their place."""
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
            fake.schedule_fault(blow.fault, method=method, times=blow.times)
            return
        fake.schedule_fault(blow.fault, method=method, times=None, for_s=blow.for_s * SPEED)
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
        if await until(lambda: doomed is None or doomed.returncode is not None, DOOMED_S):
            self.sprung += 1
        elif machine.process is doomed:
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
        assert isinstance(somebody.fake, FakeInstagram)
        assert isinstance(somebody.person, InstagramPerson)
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
        told = [(machine, len(machine.deaths)) for machine in self.machines if machine.strike(signal.SIGTERM)]
        await until(lambda: all(len(machine.deaths) > before for machine, before in told))
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
        await until(lambda: all(machine.is_ready for machine in self.machines))
        for machine in self.machines:
            assert machine.is_ready, f"{machine.role} is not ready:\n{machine.last_words()}"

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
                poor_words=POOR_WORDS,
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
                    if attempt.is_accepted:
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
