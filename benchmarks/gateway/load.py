"""A closed loop of clients: each sends a request, waits for the whole answer, and sends the next. Raw sockets on uvloop, no HTTP library.

Reads one Load as a line of JSON on its standard input, prints what came of it as a line of JSON, and reads the next one."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import uvloop

from gateway.asking import MAX_TOKENS, SYSTEM, TURNS, question


class Work(StrEnum):
    """What the clients say."""

    FRESH = "fresh"
    """Every request is the first of a new chat."""
    GROWING = "growing"
    """Chats go on for 20 questions."""


STAGGER_S = 0.2
"""How long it takes until all clients have begun: as long as a slow answer takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Where to, how many at once, how long. Seconds of warm-up are not counted, but `sent` has their requests too."""

    port: int
    path: str
    clients: int
    model: str = "bench"
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """Further headers, for a server that is told by them where the model is."""
    warm_s: float = 1.0
    seconds: float = 4.0
    chats: int = 0
    """How many whole chats each client has, where chats grow. Not by the clock: only a fast server would get to the long requests then."""
    mix: tuple[tuple[str, str, str], ...] = ()
    """For a soak: (kind, model, key) in turns, with the kinds `plain`, `streamed`, `aborted` and `failing`; `requests` ends it."""
    requests: int = 0


@dataclass(slots=True)
class Seen:
    """What came back."""

    took: list[tuple[float, float]] = field(default_factory=list)
    """When an answer was complete, and how long it took."""
    sent: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """Answers that were not what was expected, by what they were."""
    right: Counter[str] = field(default_factory=Counter)


class Broken(Exception):
    """The server closed the connection before its answer was whole."""


class Connection(asyncio.Protocol):
    """A connection that one request at a time goes over; opened again when it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._is_enough: Callable[[bytearray], bool] = is_whole
        self._waiting: asyncio.Future[bytes] | None = None

    async def ask(self, request: bytes, is_enough: Callable[[bytearray], bool] | None = None) -> bytes:
        """Send a request and return all that came, head and body, once it is enough: usually the whole answer. Raises Broken."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            await loop.create_connection(lambda: self, "127.0.0.1", self._port)
        assert self._transport is not None
        self._received.clear()
        self._is_enough = is_enough or is_whole
        self._waiting = loop.create_future()
        self._transport.write(request)
        return await self._waiting

    def leave(self) -> None:
        """Go away in the middle of an answer."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._waiting is not None and not self._waiting.done() and self._is_enough(self._received):
            self._waiting.set_result(bytes(self._received))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Broken(f"the connection was closed ({error})"))


def is_whole(received: bytearray) -> bool:
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return False
    top = bytes(received[:end]).lower()
    at = top.find(b"content-length:")
    if at < 0:
        return received.endswith(b"\r\n0\r\n\r\n")
    return len(received) >= end + 4 + int(top[at + 15 :].split(b"\r\n", 1)[0])


def has_words(received: bytearray) -> bool:
    """The first words of a streamed answer have come, or an answer that is no stream."""
    return b'"content":"W' in received or b'"content": "W' in received or is_whole(received)


# --- requests


def request(load: Load, body: bytes, key: str) -> bytes:
    lines = [
        f"POST {load.path} HTTP/1.1",
        f"Host: 127.0.0.1:{load.port}",
        *([f"Authorization: Bearer {key}"] if key else []),
        *(f"{name}: {value}" for name, value in load.headers),
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def body_of(model: str, messages: list[Any], *, stream: bool = False) -> bytes:
    fields = {"model": model, "max_tokens": MAX_TOKENS, "messages": messages}
    return json.dumps({**fields, "stream": True} if stream else fields).encode()


numbers = itertools.count(time.time_ns() // 1000)
"""No question is asked twice, in this run or another."""


class FreshChats:
    """A new chat for each request, written by putting a number into a request that is ready."""

    def __init__(self, load: Load, model: str, key: str, *, stream: bool = False) -> None:
        mark = 10**15
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(mark)}]
        self._before, self._after = request(load, body_of(model, messages, stream=stream), key).split(f"{mark:016d}".encode())

    def next(self) -> bytes:
        return b"%b%016d%b" % (self._before, next(numbers), self._after)

    def heard(self, answer: bytes) -> None:
        pass


class GrowingChats:
    """Some chats, one after the other, each of 20 questions with all that was said before."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._left = load.chats * TURNS
        self._messages: list[Any] = []

    def next(self) -> bytes:
        """The next request; nothing after the last chat."""
        if not self._left:
            return b""
        if self._left % TURNS == 0:
            self._messages = [{"role": "system", "content": SYSTEM}]
        self._left -= 1
        self._messages.append({"role": "user", "content": question(next(numbers))})
        return request(self._load, body_of(self._load.model, self._messages), self._load.key)

    def heard(self, answer: bytes) -> None:
        said = json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"][0]["message"]["content"]
        self._messages.append({"role": "assistant", "content": said})


# --- the loop


async def run(load: Load) -> dict[str, Any]:
    seen = Seen()
    began = time.perf_counter()
    cpu_before = cpu_s()
    if load.mix:
        turns = iter(range(load.requests))
        await asyncio.gather(*(soaking(load, turns, seen) for _ in range(load.clients)))
    elif load.chats:
        await asyncio.gather(*(asking(load, GrowingChats(load), seen) for _ in range(load.clients)))
    else:
        warm = began + load.warm_s
        end = warm + load.seconds
        chats = FreshChats(load, load.model, load.key)
        # Not all at once: they would stay together, and each would wait for all the others.
        waits_s = [number / load.clients * STAGGER_S for number in range(load.clients)]
        await asyncio.gather(*(asking(load, chats, seen, wait_s=wait_s, end=end) for wait_s in waits_s))
        seen.took = [(at, took) for at, took in seen.took if warm <= at <= end]
    took_s = time.perf_counter() - began
    counted = sorted(took for _, took in seen.took)
    return {
        "sent": seen.sent,
        "counted": len(counted),
        "rps": len(counted) / (took_s if load.chats else load.seconds),
        "p50_ms": statistics.median(counted) * 1e3 if counted else None,
        "p99_ms": counted[len(counted) * 99 // 100] * 1e3 if len(counted) >= 100 else None,
        "took_s": took_s,
        "loader_share": (cpu_s() - cpu_before) / took_s,
        "right": dict(seen.right),
        "wrong": dict(seen.wrong.most_common(5)),
    }


async def asking(load: Load, chats: FreshChats | GrowingChats, seen: Seen, *, wait_s: float = 0.0, end: float = math.inf) -> None:
    connection = Connection(load.port)
    await asyncio.sleep(wait_s)
    while (began := time.perf_counter()) < end and (sent := chats.next()):
        seen.sent += 1
        try:
            answer = await connection.ask(sent)
        except (Broken, OSError) as error:
            seen.wrong[repr(error)] += 1
            await asyncio.sleep(0.05)
            continue
        ended = time.perf_counter()
        if answer.startswith(b"HTTP/1.1 200"):
            seen.took.append((ended, ended - began))
            chats.heard(answer)
        else:
            seen.wrong[shown(answer)] += 1
            await asyncio.sleep(0.05)  # a server that refuses all is not to be stormed
    connection.leave()


async def soaking(load: Load, turns: Iterator[int], seen: Seen) -> None:
    """Whole answers, streams, streams that nobody reads to their end, and answers that fail: in turns, as long as there are any."""
    connection = Connection(load.port)
    chats = {kind: FreshChats(load, model, key, stream=kind in {"streamed", "aborted"}) for kind, model, key in load.mix}
    kinds = list(chats)
    for turn in turns:
        kind = kinds[turn % len(kinds)]
        seen.sent += 1
        try:
            answer = await connection.ask(chats[kind].next(), has_words if kind == "aborted" else is_whole)
        except (Broken, OSError) as error:
            seen.wrong[f"{kind}: {error!r}"] += 1
            await asyncio.sleep(0.05)
            continue
        if kind == "aborted":
            connection.leave()
        if answer.startswith(b"HTTP/1.1 5") if kind == "failing" else answer.startswith(b"HTTP/1.1 200"):
            seen.right[kind] += 1
        else:
            seen.wrong[f"{kind}: {shown(answer)}"] += 1
    connection.leave()


def shown(answer: bytes) -> str:
    top, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    return f"{top.splitlines()[0]}: {body[:200]}"


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    for line in sys.stdin:
        load = Load(**{name: tuple(map(tuple, value)) if isinstance(value, list) else value for name, value in json.loads(line).items()})
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(run(load))), flush=True)


if __name__ == "__main__":
    main()
