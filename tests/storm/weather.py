"""The weather of a storm: who says what and when, and what is struck when. Drawn from one number, so that it can be played again.

What is replayed is the schedule. How the steps of the processes fall between it is up to the machine, and differs each time: a seed that
failed once is a good place to look, and no proof."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle

from hermes.testing.platforms import Disorder, FailLaterFault, Fault, HangFault, HtmlFault, RawFault, RefuseFault, ResetFault, SlowFault

WORKERS = 2
SENT_TO = ("telegram", "polled", "whatsapp", "whatsapp_cloud", "instagram", "instagram_page")
"""Lines that answers are sent to. `polled` is a bot that Hermes asks for what is new."""
FETCHED = ("rest", "web")
"""Lines on which people fetch their answers from us."""
LINES = (*SENT_TO, *FETCHED)
SPEED = 60.0
"""Of the platforms' seconds in a real one: a webhook that comes again after a minute does so after a second."""
CALM_BEFORE_S = 2.0
"""Nothing is struck before people have begun to talk."""


# --- what people say


class Kind(StrEnum):
    """What a message makes the model do."""

    PLAIN = "plain"
    SLOW = "slow"
    LONG = "long"
    """An answer in several messages."""
    TOOL = "tool"
    FAILING = "failing"
    """There is no answer: they hear that, and are not charged."""


SHARES = {Kind.PLAIN: 60, Kind.SLOW: 12, Kind.LONG: 10, Kind.TOOL: 10, Kind.FAILING: 8}
WORDS = {
    Kind.PLAIN: "Please tell me about {mark}.",
    Kind.SLOW: "Please think hard and tell me about {mark}.",
    Kind.LONG: "Please write a long story about {mark}.",
    Kind.TOOL: "Find me a sunset bar in Canggu, where we talk about {mark}.",
    Kind.FAILING: "Please stumble and say nothing about {mark}.",
}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of one person."""

    at_s: float
    mark: str
    """What tells it from every other message; its answer repeats it."""
    kind: Kind

    @property
    def text(self) -> str:
        return WORDS[self.kind].format(mark=self.mark)


@dataclass(frozen=True, slots=True)
class Talker:
    """One person at one line, and all that they will say."""

    number: int
    line: str
    is_nameless: bool
    """On WhatsApp: has a user name and no number."""
    messages: tuple[Message, ...]


# --- what is struck


@dataclass(frozen=True, slots=True)
class Kill:
    """kill -9."""

    role: str
    which: int = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """The process is started anew, and dies when it comes to a named place for the nth time."""

    role: str
    which: int
    place: str
    is_after: bool
    nth: int


@dataclass(frozen=True, slots=True)
class Freeze:
    """SIGSTOP, and later SIGCONT: by then its work was given to others."""

    role: str
    which: int
    for_s: float


@dataclass(frozen=True, slots=True)
class EmptyRedis:
    """FLUSHALL."""


@dataclass(frozen=True, slots=True)
class StopRedis:
    """Redis is killed, and is back after a while; or it only hangs."""

    for_s: float
    is_killed: bool


@dataclass(frozen=True, slots=True)
class RestartPostgres:
    """PostgreSQL ends by a signal, and is back after a while."""

    blow: str
    for_s: float


@dataclass(frozen=True, slots=True)
class CutConnections:
    """PostgreSQL drops some of its connections."""

    count: int


@dataclass(frozen=True, slots=True)
class Outage:
    """Every call to one line fails for a while."""

    line: str
    for_s: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class Strike:
    """The next calls to one line fail."""

    line: str
    fault: Fault
    times: int


@dataclass(frozen=True, slots=True)
class Block:
    """Somebody wants to hear nothing for a while. Where the platform says so: on WhatsApp nobody would ever learn of it."""

    talker: int
    for_s: float


@dataclass(frozen=True, slots=True)
class ByHand:
    """Somebody of ours answers in Instagram's own app: Hermes hears of a message that it has not sent."""

    talker: int


Blow = Kill | Crash | Freeze | EmptyRedis | StopRedis | RestartPostgres | CutConnections | Outage | Strike | Block | ByHand


@dataclass(frozen=True, slots=True)
class Event:
    """Something happens."""

    at_s: float
    blow: Blow


@dataclass(frozen=True, slots=True)
class Forecast:
    """All of it."""

    seed: int
    seconds: float
    talkers: tuple[Talker, ...]
    events: tuple[Event, ...]
    disorder: Disorder
    burst_s: float
    """How long a message waits for more of it; 0: every message is a turn of its own."""

    @property
    def messages(self) -> int:
        return sum(len(talker.messages) for talker in self.talkers)

    @property
    def credits(self) -> int:
        """What everybody is given: enough for most of them."""
        return max(3, round(1.1 * self.messages / len(self.talkers)))

    def counts(self) -> dict[str, int]:
        """How often each kind of thing happens."""
        return dict(sorted(Counter(type(event.blow).__name__ for event in self.events).items()))


PLACES: Sequence[tuple[str, str, bool]] = (
    ("worker", "send", True),
    ("worker", "commit:inbox.hold", True),
    ("worker", "journal.finish", False),
    ("web", "commit:people.find_or_create", True),
    ("worker", "commit:outbox.settle", False),
    ("worker", "turn_ends.end", True),
    ("worker", "inbox.claim", True),
    ("worker", "outbox.settle_sent", True),
    ("web", "inbox.accept", True),
    ("worker", "commit:inbox.hold", False),
    ("worker", "credits.reserve", True),
    ("worker", "send", False),
    ("worker", "journal.begin", True),
    ("web", "commit:people.find_or_create", False),
    ("worker", "outbox.take", True),
    ("worker", "turn_ends.end", False),
    ("worker", "outbox.settle_sent", False),
    ("web", "commit:idempotency_keys.keep", True),
    ("worker", "histories.append", False),
    ("worker", "credits.refund", True),
)
"""Where processes die: role, place, and whether just after it. Those come first that leave the most in doubt."""


def forecast(seed: int, *, seconds: float, users: int, every_s: float = 3.0) -> Forecast:
    """The weather of so many seconds. Processes and stores are struck every so often; single calls about once a second."""
    talkers = tuple(talker(random.Random(f"{seed}/talker/{number}"), number, seconds) for number in range(users))
    dice = random.Random(f"{seed}/weather")
    events = [*blows(dice, seconds, every_s), *strikes(dice, seconds), *blocks(dice, seconds, talkers), *by_hand(dice, seconds, talkers)]
    disorder = Disorder(duplicates=0.15, held_back=0.15, held_back_s=2 * SPEED, batch_s=0.2 * SPEED, early_echoes=0.3)
    burst_s = dice.choice((0.0, 0.0, 0.4))
    return Forecast(seed, seconds, talkers, tuple(sorted(events, key=lambda event: event.at_s)), disorder, burst_s)


def talker(dice: random.Random, number: int, seconds: float) -> Talker:
    """Somebody who talks now and then, sometimes a few things in a row. On WhatsApp less: it lets nobody be written to often."""
    line = LINES[number % len(LINES)]
    pause_s = dice.uniform(4.0, 12.0) * (2.0 if line.startswith("whatsapp") else 1.0)
    messages: list[Message] = []
    at_s = dice.uniform(0.0, CALM_BEFORE_S)
    while at_s < seconds:
        for _ in range(dice.choice((1, 1, 1, 1, 2, 3))):
            kind = dice.choices([*SHARES], [*SHARES.values()])[0]
            messages.append(Message(round(at_s, 3), f"z{number:03d}n{len(messages):04d}", kind))
            at_s += dice.uniform(0.02, 0.3)
        at_s += dice.expovariate(1 / pause_s)
    return Talker(number, line, dice.random() < 0.3, tuple(messages))


def blows(dice: random.Random, seconds: float, every_s: float) -> Iterator[Event]:
    """Processes and stores are struck. Every kind comes once before any comes again."""
    at_s, places = CALM_BEFORE_S, cycle(PLACES)
    hand: list[str] = []
    while True:
        at_s += every_s * dice.uniform(0.7, 1.3)
        if at_s >= seconds:
            return
        if not hand:
            hand = dice.sample([*DRAW], len(DRAW))
        yield Event(round(at_s, 3), DRAW[hand.pop()](dice, places))


Places = Iterator[tuple[str, str, bool]]
DRAW: Mapping[str, Callable[[random.Random, Places], Blow]] = {
    "kill worker": lambda dice, _: Kill("worker", dice.randrange(WORKERS)),
    "kill web": lambda _, __: Kill("web"),
    "crash": lambda dice, places: crash(dice, *next(places)),
    "crash again": lambda dice, places: crash(dice, *next(places)),
    "crash once more": lambda dice, places: crash(dice, *next(places)),
    "freeze": lambda dice, _: Freeze("worker", dice.randrange(WORKERS), tenths(dice, 3.5, 5.0)),
    "freeze long": lambda dice, _: Freeze("worker", dice.randrange(WORKERS), tenths(dice, 16.0, 18.0)),
    "freeze web": lambda dice, _: Freeze("web", 0, tenths(dice, 5.5, 7.0)),
    "empty redis": lambda _, __: EmptyRedis(),
    "stop redis": lambda dice, _: StopRedis(tenths(dice, 0.5, 2.0), is_killed=dice.random() < 0.5),
    "restart postgres": lambda dice, _: RestartPostgres(dice.choice(("SIGKILL", "SIGQUIT", "SIGINT")), tenths(dice, 0.2, 1.5)),
    "cut connections": lambda dice, _: CutConnections(dice.randint(2, 8)),
    "outage": lambda dice, _: Outage(dice.choice(SENT_TO), tenths(dice, 5.0, 9.0), dice.choice(OUT_OF_ORDER)),
}
"""The deck. A worker that is frozen for long also sleeps past the time after which its parcel is given to another; a web that is frozen,
past the time after which 360dialog sends again what nobody has answered."""
OUT_OF_ORDER: Sequence[Fault] = (HtmlFault(status=503), HtmlFault(status=502), ResetFault(arrives=False), HangFault(arrives=False))


def crash(dice: random.Random, role: str, place: str, is_after: bool) -> Crash:
    return Crash(role, dice.randrange(WORKERS) if role == "worker" else 0, place, is_after, dice.randint(1, 3))


def tenths(dice: random.Random, least: float, most: float) -> float:
    return round(dice.uniform(least, most), 1)


def strikes(dice: random.Random, seconds: float) -> Iterator[Event]:
    """Single calls go wrong, about one every second."""
    at_s = CALM_BEFORE_S
    while (at_s := at_s + dice.expovariate(1.0)) < seconds:
        line = dice.choice(SENT_TO)
        fault, times = dice.choice([*ANYWHERE, *(WHATSAPP if line.startswith("whatsapp") else TELEGRAM if line in BOTS else INSTAGRAM)])
        yield Event(round(at_s, 3), Strike(line, fault, times))


BOTS = ("telegram", "polled")
PAGES = ("instagram", "instagram_page")
ANYWHERE: Sequence[tuple[Fault, int]] = (
    (ResetFault(arrives=True), 1),
    (ResetFault(arrives=True), 2),
    (ResetFault(arrives=False), 1),
    (HangFault(arrives=True), 1),
    (RawFault(status=200, body="", arrives=True), 1),
    (RawFault(status=200, body='{"ok', arrives=True), 1),
    (SlowFault(over_s=0.8), 1),
    (HtmlFault(status=502), 2),
    (HtmlFault(status=504), 1),
)
TELEGRAM: Sequence[tuple[Fault, int]] = (
    (RefuseFault(status=429, retry_after=1), 2),
    (RefuseFault(status=429, retry_after=12), 1),
    (RefuseFault(status=400, message="Bad Request: can't parse entities"), 1),
    (RefuseFault(status=400, message="Bad Request: scripted"), 1),
    (RefuseFault(status=500), 1),
)
WHATSAPP: Sequence[tuple[Fault, int]] = (
    (RefuseFault(status=400, code=131056), 1),
    (RefuseFault(status=429, code=130429), 2),
    (RefuseFault(status=500, code=131000), 1),
    (RefuseFault(status=400, code=131009), 1),
    (FailLaterFault(code=131026), 1),
    (FailLaterFault(code=131047), 1),
)
INSTAGRAM: Sequence[tuple[Fault, int]] = (
    (RefuseFault(status=400, code=613), 1),
    (RefuseFault(status=500, code=2, parameters={"is_transient": True}), 2),
    (RefuseFault(status=400, code=100), 1),
)


def blocks(dice: random.Random, seconds: float, talkers: Sequence[Talker]) -> Iterator[Event]:
    """Somebody blocks us, every ten seconds or so."""
    candidates = [one.number for one in talkers if one.line in BOTS or one.line in PAGES]
    at_s = CALM_BEFORE_S
    while candidates and (at_s := at_s + dice.uniform(5.0, 15.0)) < seconds:
        yield Event(round(at_s, 3), Block(dice.choice(candidates), round(dice.uniform(1.0, 6.0), 1)))


def by_hand(dice: random.Random, seconds: float, talkers: Sequence[Talker]) -> Iterator[Event]:
    """A person of ours answers somebody, every three seconds or so."""
    candidates = [one.number for one in talkers if one.line in PAGES]
    at_s = CALM_BEFORE_S
    while candidates and (at_s := at_s + dice.uniform(1.0, 5.0)) < seconds:
        yield Event(round(at_s, 3), ByHand(dice.choice(candidates)))
