"""The platforms as senders: webhooks at a fixed rate, or as many as are taken. Raw sockets on uvloop, no HTTP library.

Reads one Load as a line of JSON on its standard input, prints what came of it as a line of JSON, and reads the next one."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop
from gateway.load import Broken, Connection, shown

from channels.accounts import Account, Crowd, Kind

IDLE_S = 3.0
"""A connection that was not used for so long is closed: after five seconds the server does, and a request may meet that."""
PAUSE_S = 0.5
"""Before what was refused is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Which messages, of whom, and how fast."""

    port: int
    accounts: Sequence[tuple[str, int]]
    """Kind and number of each."""
    people: int
    first: int
    count: int
    rate: float | None = None
    """Webhooks a second, whether or not those before were answered; None: `at_once` at a time, again and again until each has its 200."""
    at_once: int = 16
    repeated: int = 0
    """Every so many webhooks one comes twice, as platforms do; 0: none."""

    @property
    def crowd(self) -> Crowd:
        return Crowd([Account(Kind(kind), number) for kind, number in self.accounts], self.people)

    def message(self, number: int) -> int:
        """The message in a webhook: its own, or the one before it once more."""
        return number - 1 if self.repeated and number % self.repeated == self.repeated - 1 else number


@dataclass(slots=True)
class Seen:
    """What came back."""

    took_ms: list[tuple[int, float]] = field(default_factory=list)
    """The number of a message, and how long its 200 took, counted from when the webhook was due."""
    late_ms: list[float] = field(default_factory=list)
    """How long after that it was written: time that is ours, and not Hermes'."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Answers that were no 200."""


class Lines:
    """Connections that are kept open, the one that was used last first."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[float, Connection]] = []

    async def post(self, request: bytes) -> bytes:
        """Send a request over a connection of its own; raises Broken and OSError."""
        connection = self._taken()
        answer = await connection.ask(request)
        self._idle.append((time.monotonic(), connection))
        return answer

    def _taken(self) -> Connection:
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_S:
                return connection
            connection.leave()
        return Connection(self._port)

    def close(self) -> None:
        for _, connection in self._idle:
            connection.leave()


async def run(load: Load) -> dict[str, Any]:
    seen, lines, began, cpu_before = Seen(), Lines(load.port), time.perf_counter(), cpu_s()
    if load.rate is None:
        numbers = iter(range(load.first, load.first + load.count))
        await asyncio.gather(*(until_taken(load, numbers, lines, seen) for _ in range(load.at_once)))
    else:
        await at_rate(load, load.rate, lines, seen)
    lines.close()
    took_s = time.perf_counter() - began
    own = {"took_s": took_s, "cpu_share": (cpu_s() - cpu_before) / took_s}
    return {**own, "took_ms": seen.took_ms, "late_ms": seen.late_ms, "wrong": dict(seen.wrong.most_common(5))}


async def at_rate(load: Load, rate: float, lines: Lines, seen: Seen) -> None:
    crowd, began = load.crowd, time.perf_counter()

    async def one(place: int) -> None:
        number, due = load.message(load.first + place), began + place / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        request = crowd.webhook(load.port, number, time.time())
        seen.late_ms.append((time.perf_counter() - due) * 1e3)
        if await is_taken(lines, request, seen):
            seen.took_ms.append((number, (time.perf_counter() - due) * 1e3))

    await asyncio.gather(*(one(place) for place in range(load.count)))


async def until_taken(load: Load, numbers: Iterator[int], lines: Lines, seen: Seen) -> None:
    crowd = load.crowd
    for number in numbers:
        began, request = time.perf_counter(), crowd.webhook(load.port, number, time.time())
        while True:
            if await is_taken(lines, request, seen):
                break
            await asyncio.sleep(PAUSE_S)
        seen.took_ms.append((number, (time.perf_counter() - began) * 1e3))


async def is_taken(lines: Lines, request: bytes, seen: Seen) -> bool:
    try:
        answer = await lines.post(request)
    except (Broken, OSError) as error:
        seen.wrong[repr(error)] += 1
        return False
    if answer.startswith(b"HTTP/1.1 200"):
        return True
    seen.wrong[shown(answer)] += 1
    return False


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    for line in sys.stdin:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(run(Load(**json.loads(line))))), flush=True)


if __name__ == "__main__":
    main()
