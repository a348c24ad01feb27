"""Failover: what a sick first model adds to a call, how often it is asked, and what one that hangs costs.

A gateway on real stores, as the product builds it, calls a chain of two models over HTTP. The calls of a healthy chain and of a sick one
take turns, so that both are measured on the same machine at the same time. Exits with 1 if a promise is broken.

    added, each call fails over   without breakers: the failed attempt and the next one
    added, breaker open           with breakers: the calls after the first ones"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import structlog
from gateway.asking import MAX_TOKENS, MODEL, messages
from gateway.calls import Aim
from gateway.clients.hermes_gateway import DAY_TOKENS, NoCache, Silent, Wall, stored
from gateway.machine import first_line, module, running
from gateway.tables import ms, table
from gateway.upstream_paths import address
from redis.asyncio import Redis

from hermes.backends import PLAIN, HttpClient, OpenAICompatibleBackend
from hermes.gateway.catalogue import ModelCatalogue, ModelSpec, Tier
from hermes.gateway.chain import BackendPatience
from hermes.gateway.gateway import Gateway
from hermes.gateway.prices import Price, Prices, TokenRate
from hermes.gateway.slots import Slots
from hermes.gateway.unwell_models import ModelWatch
from hermes.ops.metrics import Metrics
from hermes.ports.backends import ModelRequest
from hermes.ports.models import Caller, CallSource
from hermes.stores import embedded
from hermes.stores.redis.model_breakers import RedisModelBreakers

ADDED_MS, CALLS, FIRST_TOKEN_S = 10.0, 50, 10.0
AT_ONCE = ("refused", "401", "429")
"""Faults after which a model is not asked a second time; the others open its breaker at the third."""
FAULTS = (*AT_ONCE, "529", "empty")
HEALTHY, TIER = "second", "bench"

broken: list[str] = []


@dataclass(frozen=True, slots=True)
class Row:
    """What one fault cost."""

    fault: str
    added_each_ms: float
    added_open_ms: float
    hits: int
    """How often the sick model was asked in `CALLS` calls with breakers."""


def main() -> int:
    """Measure every fault, print the table, and say which promises were not kept."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=200, help="how often each chain is called for a median")
    chosen = options.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))  # a failed attempt is what is measured
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with (
        tempfile.TemporaryDirectory(prefix="hermes-") as folder,
        running(module("upstream")) as upstream,
        embedded.run_servers(Path(folder) / "home") as stores,
        closed_port() as nowhere,
    ):
        port = int(first_line(upstream))
        asyncio.run(
            measure(port, nowhere, {"stores": "all", "database_url": stores.database_url, "redis_url": stores.redis_url}, chosen.calls)
        )
    for line in broken:
        print(f"BROKEN: {line}")
    return 1 if broken else 0


@contextmanager
def closed_port() -> Iterator[int]:
    """A port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


async def measure(port: int, nowhere: int, options: dict[str, Any], calls: int) -> None:
    async with AsyncExitStack() as stack:
        aim = Aim(client="hermes_gateway", port=port, options=options)
        parts, user_id = await stored(stack, aim)
        client, redis = HttpClient(), Redis.from_url(options["redis_url"])
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(redis.aclose)
        urls = {fault: address(nowhere if fault == "refused" else port, fault) for fault in (*FAULTS, "hang", HEALTHY)}
        names = list(urls)
        gateway = Gateway(
            catalogue=ModelCatalogue(
                tiers={TIER: Tier((HEALTHY,), DAY_TOKENS)}, models={name: ModelSpec(name, f"{MODEL}-{name}", MAX_TOKENS) for name in names}
            ),
            prices=Prices(Price(f"{MODEL}-{name}", date(2026, 1, 1), TokenRate.usd(1.0, 5.0)) for name in names),
            backends={name: OpenAICompatibleBackend(client, url, "none", name, PLAIN) for name, url in urls.items()},
            slots=Slots(45),
            cache=NoCache(),
            alerts=Silent(),
            meter=Metrics(),
            clock=Wall(),
            cap_micro_usd=10**15,
            deadline_s=60.0,
            watch=ModelWatch(RedisModelBreakers(redis, Wall()), Silent()),
            patience={name: BackendPatience(FIRST_TOKEN_S, is_same_streamed=True) for name in names},
            **parts,
        )
        stack.push_async_callback(gateway.wait_settled)
        bench = Bench(gateway, replace(gateway, watch=None), user_id)
        for number in range(50):
            await bench.call(number, HEALTHY)
        rows = [await measure_fault(bench, port, fault, calls) for fault in FAULTS]
        print_rows(rows)
        await measure_hang(bench)
        await bench.memoryless.wait_settled()


@dataclass(slots=True)
class Bench:
    """A gateway with breakers, and one without, on the same stores."""

    gateway: Gateway
    memoryless: Gateway
    user_id: UUID

    async def call(self, number: int, *chain: str, remembers: bool = True) -> float:
        """Call a chain; return how long it took, in milliseconds."""
        caller = Caller(user_id=self.user_id, account="bench", tier=TIER, source=CallSource.COMPLETIONS, may_use_cache=False, models=chain)
        began = time.perf_counter()
        await (self.gateway if remembers else self.memoryless).complete(
            ModelRequest(messages=messages(number), max_tokens=MAX_TOKENS), caller
        )
        return (time.perf_counter() - began) * 1e3


async def measure_fault(bench: Bench, port: int, fault: str, calls: int) -> Row:
    await hits(port)
    first = [await bench.call(number, fault, HEALTHY) for number in range(CALLS)]
    asked = (await hits(port)).get(fault, 0) if fault != "refused" else 0
    assert len(first) == CALLS
    direct, each, is_open = list[float](), list[float](), list[float]()
    for number in range(calls):
        direct.append(await bench.call(number, HEALTHY))
        each.append(await bench.call(number, fault, HEALTHY, remembers=False))
        is_open.append(await bench.call(number, fault, HEALTHY))
    p50 = statistics.median(direct)
    return Row(fault, statistics.median(each) - p50, statistics.median(is_open) - p50, asked)


async def hits(port: int) -> dict[str, int]:
    """How often each behaviour was asked for completions since this was asked last."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/hits") as reply:
        return dict(await reply.json(content_type=None))


def print_rows(rows: list[Row]) -> None:
    shown = [[row.fault, ms(row.added_each_ms), ms(row.added_open_ms), "" if row.fault == "refused" else str(row.hits)] for row in rows]
    table(
        "A sick first model, a healthy second one: ms added to p50, and how often the sick one was asked",
        ["fault", "added, each call fails over", "added, breaker open", f"asked in {CALLS} calls"],
        shown,
    )
    for row in rows:
        promise(row.added_each_ms <= ADDED_MS, f"{row.fault}: failing over adds {row.added_each_ms:.1f} ms to p50, more than {ADDED_MS:g}")
        promise(row.added_open_ms <= ADDED_MS, f"{row.fault}: an open breaker adds {row.added_open_ms:.1f} ms, more than {ADDED_MS:g}")
        most = 1 if row.fault in AT_ONCE else 3
        promise(row.hits <= most, f"{row.fault}: the sick model was asked {row.hits} times in {CALLS} calls, more than {most}")


async def measure_hang(bench: Bench) -> None:
    first = await bench.call(0, "hang", HEALTHY)
    direct, later = list[float](), list[float]()
    for number in range(CALLS):
        direct.append(await bench.call(number, HEALTHY))
        later.append(await bench.call(number, "hang", HEALTHY))
    added = statistics.median(later) - statistics.median(direct)
    print(f"A first model that hangs: the first call takes {first / 1e3:.2f} s, and {added:.1f} ms are added to p50 of the next {CALLS}.\n")
    promise(FIRST_TOKEN_S * 1e3 <= first <= FIRST_TOKEN_S * 1.1e3, f"a hang costs the first call {first / 1e3:.1f} s")
    promise(added <= ADDED_MS, f"after a hang {added:.1f} ms are added to p50, more than {ADDED_MS:g}")


def promise(is_kept: bool, otherwise: str) -> None:  # noqa: FBT001  # reads as a sentence
    if not is_kept:
        broken.append(otherwise)


if __name__ == "__main__":
    sys.exit(main())
