"""What a storm comes to in numbers: how much was said, how often it was handed to us, what was struck, what was in doubt, who waited."""

from __future__ import annotations

import signal
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.storm.checker import answered
from tests.storm.history import History
from tests.storm.weather import Blow, Crash, Freeze, Kill, Outage, RestartPostgres, StopRedis
from tests.storm.world import OFFERED, World

SOON_S = 5.0
"""Who speaks within so many seconds after a blow is counted to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How one kind of blow was got over."""

    blow: str
    times: int
    next_s: Sequence[float] = field(repr=False)
    """From the end of each of them to the next answer to a message that was sent after it."""
    waited_s: Sequence[float] = field(repr=False)
    """How long those waited for their answer who spoke soon after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The numbers of one storm."""

    messages: int
    taken: int
    offered: int
    """How often a platform handed us a message."""
    repeated: int
    """How often it did so although we had said that we have it."""
    received: int
    answered: int
    """Messages whose answer their people read."""
    excused: dict[str, int]
    """What Hermes says it ended with, where that was no answer."""
    copies: int
    """Answers, or parts of them, that came more than once."""
    doubts: int
    """Tries of which Hermes reports that they may have arrived beside another one."""
    left_in_doubt: int
    """Parts of which two tries may have arrived, and that were listed as dead letters."""
    never_came: int
    """Answers among these of which nothing was ever seen."""
    dead_letters: int
    kills: dict[str, int]
    sprung: tuple[int, int]
    """How many processes died at their named place, and how many were to."""
    waits_s: Sequence[float] = field(repr=False)
    """From a message to its answer."""
    recoveries: Sequence[Recovery] = field(repr=False)
    drained_s: float | None

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"messages              {self.messages} sent, {self.taken} acknowledged, {self.answered} answered by the model"
        yield f"handed to us          {self.offered} times by webhook, {self.repeated} of them again after we had said that we have it"
        yield f"received              {self.received} messages on phones and by clients"
        yield f"own replies           {', '.join(f'{count} {name}' for name, count in self.excused.items()) or 'none'}"
        yield f"in doubt              {self.doubts} tries reported as ambiguous, {self.copies} second copies seen"
        yield f"left in doubt         {self.left_in_doubt} parts; of {self.never_came} answers nothing ever came"
        yield f"dead letters          {self.dead_letters}"
        killed = ", ".join(f"{name} {count} times" for name, count in self.kills.items()) or "nobody"
        yield f"killed                {killed}; {self.sprung[0]} of {self.sprung[1]} at a named place"
        yield f"from question to answer  {spread(self.waits_s)}"
        yield f"drained after         {'never' if self.drained_s is None else f'{self.drained_s:.1f} s of calm'}"
        yield ""
        yield f"{'after':<18} {'times':>5}   {'next answer p50 / max':>24}   {'waited p50 / max':>20}"
        for one in self.recoveries:
            yield f"{one.blow:<18} {one.times:>5}   {pair(one.next_s):>24}   {pair(one.waited_s):>20}"


def figures(world: World, history: History, outcomes: dict[str, int]) -> Figures:
    """Count."""
    sent = {one.mark: one for one in history.sent}
    first: dict[str, float] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for received in sorted(history.received, key=lambda received: received.at):
        marks = answered(received.text)
        seen[received.chat, received.text] += bool(marks)
        for mark in marks & sent.keys():
            first.setdefault(mark, received.at)
    parcels = [parcel for turn in history.turns for parcel in turn.parcels]
    offered, repeated = handed(world)
    return Figures(
        messages=len(sent),
        taken=sum(one.taken_at is not None for one in history.sent),
        offered=offered,
        repeated=repeated,
        received=len(history.received),
        answered=len(first),
        excused={name: count for name, count in outcomes.items() if name != "answered"},
        copies=sum(count - 1 for count in seen.values() if count > 1),
        doubts=sum(parcel.doubts for parcel in parcels),
        left_in_doubt=sum(parcel.state == "dead" and parcel.doubts > 1 for parcel in parcels),
        never_came=sum(
            any(parcel.state == "dead" and parcel.doubts > 1 for parcel in turn.parcels) and not first.keys() & {*turn.marks}
            for turn in history.turns
        ),
        dead_letters=sum(parcel.state == "dead" for parcel in parcels),
        sprung=(world.sprung, sum(isinstance(done.event.blow, Crash) for done in world.done)),
        kills=dict(Counter(machine.role for machine in world.machines for _, code in machine.deaths if code == -signal.SIGKILL)),
        waits_s=[at - sent[mark].at for mark, at in first.items()],
        recoveries=list(recoveries(world, history, first)),
        drained_s=world.drained_s,
    )


def handed(world: World) -> tuple[int, int]:
    """How often messages were handed to us by webhook, and how often again after we had taken them."""
    offered = repeated = 0
    for attempts in world.attempts.values():
        taken: set[bytes] = set()
        for attempt in attempts:
            marks = OFFERED.findall(attempt.body)
            offered += len(marks)
            repeated += sum(mark in taken for mark in marks) + len(marks) - len(set(marks))
            if attempt.is_accepted:
                taken.update(marks)
    return offered, repeated


def recoveries(world: World, history: History, first: dict[str, float]) -> Iterator[Recovery]:
    blows: dict[str, list[tuple[float, str | None]]] = defaultdict(list)
    for done in world.done:
        if name := name_of(done.event.blow):
            since = done.until if isinstance(done.event.blow, Outage | RestartPostgres | StopRedis | Crash) else done.at
            blows[name].append((since, done.event.blow.line if isinstance(done.event.blow, Outage) else None))
    for name, moments in sorted(blows.items()):
        next_s, waited_s = [], []
        for since, line in moments:
            answers = [
                (one.at, first[one.mark])
                for one in history.sent
                if one.at >= since and one.mark in first and (line is None or one.chat.startswith(f"{line}/"))
            ]
            if answers:
                next_s.append(min(at for _, at in answers) - since)
                waited_s += [at - said for said, at in answers if said < since + SOON_S]
        yield Recovery(blow=name, times=len(moments), next_s=next_s, waited_s=waited_s)


def name_of(blow: Blow) -> str:
    """What a blow is called in the table; nothing for what strikes single calls and people."""
    match blow:
        case Kill() | Crash() | Freeze():
            return f"{type(blow).__name__} {blow.role}"
        case StopRedis() | RestartPostgres() | Outage():
            return type(blow).__name__
    return ""


def pair(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.1f} / {max(seconds):.1f} s" if seconds else "-"


def spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.2f} s, p95 {p95:.1f} s, at most {ordered[-1]:.1f} s"
