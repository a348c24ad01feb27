"""One client library in a fresh process: how fast it calls a model that answers at once, and what it does when the model fails.

`python -m gateway.calls AIM`, where AIM is JSON, in the environment where the library is. Prints one line of JSON, the last one."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import uvloop

from gateway.upstream_paths import FAULTS, Fault, address


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Which library, which upstream, and what to find out."""

    client: str
    """Its module in `clients`."""
    port: int
    primary: str = "ok"
    """How the first model behaves; the second one is well."""
    timeout_s: float | None = None
    """None leaves the library's own."""
    plan: tuple[tuple[int, int], ...] = ()
    """(clients at once, calls) of each measurement, in this order."""
    warm_up: int = 100
    faults: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def primary_url(self) -> str:
        return address(self.port, self.primary)

    @property
    def second_url(self) -> str:
        return address(self.port, "second")


class Client(Protocol):
    """A library that has been set up with a model and another one to fall back on."""

    async def ask(self, number: int) -> str:
        """Return the answer to a fresh question; raise what the library raises."""
        ...

    def stream(self, number: int) -> AsyncIterator[str]:
        """Yield the answer's text as it comes."""
        ...


class Opened(Protocol):
    """What each module in `clients` has under the name `opened`."""

    def __call__(self, aim: Aim) -> AbstractAsyncContextManager[Client]: ...


async def speed(opened: Opened, aim: Aim) -> dict[str, Any]:
    async with opened(aim) as client:
        numbers = iter(range(time.time_ns() // 1000, sys.maxsize))
        for _ in range(aim.warm_up):
            assert len(await client.ask(next(numbers))) > 300
        told = {}
        for at_once, calls in aim.plan:
            took: list[float] = []
            left = iter(range(calls))

            async def one(took: list[float] = took, left: Any = left) -> None:
                for _ in left:
                    began = time.perf_counter()
                    await client.ask(next(numbers))
                    took.append(time.perf_counter() - began)

            cpu, began = time.process_time(), time.perf_counter()
            await asyncio.gather(*(one() for _ in range(at_once)))
            whole_s = time.perf_counter() - began
            took.sort()
            told[str(at_once)] = {
                "p50_ms": statistics.median(took) * 1e3,
                "p99_ms": took[len(took) * 99 // 100] * 1e3,
                "calls_per_s": calls / whole_s,
                "cpu_us": (time.process_time() - cpu) / calls * 1e6,
            }
    return {"at_once": told, "rss_mb": rss_mb()}


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def faults(opened: Opened, aim: Aim) -> dict[str, Any]:
    """Every fault with a client of its own: some libraries remember that a model has failed, and leave it out the next time."""
    return {
        fault.name: await one_fault(opened, replace(aim, primary=fault.behaviour, timeout_s=fault.timeout_s), fault) for fault in FAULTS
    }


async def one_fault(opened: Opened, aim: Aim, fault: Fault) -> dict[str, Any]:
    async with opened(replace(aim, primary="ok", timeout_s=fault.timeout_s)) as client:
        await client.ask(1)  # imports and first connections are not the fault's
    async with opened(aim) as client:
        await told_hits(aim.port)
        began, said = time.perf_counter(), ""
        try:
            if fault.is_streamed:
                async for text in client.stream(2):
                    said += text
            else:
                said = await client.ask(2)
            outcome = "answered" if len(said) > 300 else f"short answer of {len(said)} characters"
        except Exception as error:  # noqa: BLE001  # whatever a library raises is what is asked for here
            outcome = type(error).__name__
        took_s = time.perf_counter() - began
        hits = await told_hits(aim.port)
    return {"outcome": outcome, "seconds": took_s, "hits": hits.get(fault.behaviour, 0), "said": len(said)}


async def told_hits(port: int) -> dict[str, int]:
    """How often each behaviour was asked for since the last time."""

    def read() -> dict[str, int]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/hits", timeout=5) as told:
            return dict(json.load(told))

    return await asyncio.to_thread(read)


async def main(aim: Aim) -> None:
    opened: Opened = importlib.import_module(f"gateway.clients.{aim.client}").opened
    told = await (faults if aim.faults else speed)(opened, aim)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(Aim(**{**given, "plan": tuple(map(tuple, given.get("plan", ())))})))
