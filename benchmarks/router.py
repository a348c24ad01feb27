"""The router: what the ten steps add to a model's own time, what a soul and a recall cost, and how long a person waits with a slow model.

    overhead   one process, real stores, messages at a fixed rate; a model that answers at once: all that is left is ours
    soul       the same user again and again, with and without the cached base
    recall     a user of 5,000 facts
    waiting    web and worker as `hermes up` runs them, a model that takes 1.5 s, 50 people who all talk at once
    messages   web and worker again, a model that answers at once: messages a second beside bare jobs of the queue, one message alone, the
               statements and the processor time of each (benchmarks/messages/)

Starts the stores in a folder of its own. Exits with 1 if a promise is broken."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import socket
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import aiohttp
from ground import at_rate, percentile, processes, until_ready
from messages.whole_path import whole_path

from hermes.app.root import Hermes, open_hermes
from hermes.cli.runtime import new_event_loop
from hermes.config import Settings, load
from hermes.ops import logs
from hermes.ports.backends import Capabilities, Completion, Usage
from hermes.ports.memories import FactChange, FactOrigin, NewFact
from hermes.ports.users import Agent, UserState
from hermes.soul.recall import MAX_RECALLED_FACTS, rank_facts
from hermes.soul.terms import canonical, terms
from hermes.stores import embedded
from hermes.stores.postgres.memories import PostgresMemories
from hermes.turn import Envelope, MessageEvent, Platform

PARTS = ("overhead", "soul", "recall", "waiting", "messages")
RATE, USERS, KNOWING, FACTS = 100, 200, 50, 5_000
OVERHEAD_P50_MS, OVERHEAD_P99_MS = 20.0, 80.0
RECALL_P50_MS = 10.0
PEOPLE, UPSTREAM_S, PATIENCE_S = 50, 1.5, 3.0
TALK = (
    "good morning, how are things with you today",
    "I was thinking about our trip next month and what to pack",
    "tell me something nice about Bali in the rainy season",
    "my sister will join us with her two dogs",
    "that sounds like a plan, let us talk about it tomorrow",
)
"""What people say without needing a tool."""
AT_ONCE = '[[rule]]\nsay = "That sounds lovely. Tell me more about it."\n'
SLOW = f'[[rule]]\nsay = "That sounds lovely. Tell me more about it."\ndelay_s = {UPSTREAM_S}\n'

broken: list[str] = []


def main() -> int:
    """Run the parts that are asked for and print their tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=20.0, help="how long each load runs")
    options.add_argument("--rate", type=int, default=RATE, help="messages a second for the overhead; the promise is for %(default)s")
    options.add_argument("--only", type=lambda text: text.split(","), default=PARTS, metavar="PARTS", help=f"some of {','.join(PARTS)}")
    options.add_argument("--held", type=float, default=60.0, help="how long the messages come at 100/s; 0: not at all")
    chosen = options.parse_args()
    if unknown := set(chosen.only) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
    logs.configure("json", "error", sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hermes-") as folder, embedded.run_servers(Path(folder) / "home") as stores:
        environ = environment(Path(folder), stores)
        if "overhead" in chosen.only:
            run(overhead(load(environ), chosen.seconds, chosen.rate))
        if {"soul", "recall"} & set(chosen.only):
            run(mind(load(environ), chosen.only))
        if "waiting" in chosen.only:
            run(waiting({**environ, "HERMES_LLM_SCRIPT": f"{folder}/slow.toml"}, chosen.seconds))
        if "messages" in chosen.only:
            run(messages(environ, stores, chosen.seconds, chosen.held))
    for promise in broken:
        print(f"BROKEN: {promise}")
    return 1 if broken else 0


def run(main: Coroutine[Any, Any, None]) -> None:
    """With the event loop that Hermes has."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: Path, stores: embedded.StoreUrls) -> dict[str, str]:
    (folder / "at_once.toml").write_text(AT_ONCE, encoding="utf-8")
    (folder / "slow.toml").write_text(SLOW, encoding="utf-8")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HERMES_", "ANTHROPIC_", "OPENAI_"))},
        "HERMES_HOME": str(folder / "home"),
        "HERMES_DATABASE_URL": stores.database_url,
        "HERMES_REDIS_URL": stores.redis_url,
        "HERMES_CREDITS_SIGNUP_GRANT": "1000000",
        "HERMES_INBOX_MAX_WAITING": "1000000",
        "HERMES_LOG_LEVEL": "error",
        "HERMES_WEB_PORT": str(free_port()),
        "HERMES_LLM_SCRIPT": str(folder / "at_once.toml"),
        "HERMES_API_PER_MINUTE": "10000000",
        "HERMES_LLM_SLOTS": "64",
        "HERMES_WORK_CONCURRENCY": "64",
    }


# --- what the ten steps add


async def overhead(settings: Settings, seconds: float, rate: int) -> None:
    spent: dict[str, list[float]] = defaultdict(list)
    async with open_hermes(settings) as opened:
        await opened.prepare()
        hermes = watched(opened, spent)
        for user in range(USERS):  # newcomers are met before the clock runs
            await turn(hermes, user)
        await teach(hermes)
        spent.clear()
        took = await at_rate(rate, seconds, lambda number: turn(hermes, number % USERS, spent))
        print(f"The ten steps at {rate} messages/s over {USERS} users, {KNOWING} of them with facts to recall;", end=" ")
        print("the stores are on the same machine, and the model answers at once\n")
        print("| | n | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
        ours = spent["turn"]
        row("**a turn, from its claim to its answer in the outbox**", ours)
        row("with its acceptance, and the wait for both", took)
        for step in STEPS:
            row(step, spent[step])
        promise(f"overhead p50 under {OVERHEAD_P50_MS:.0f} ms", statistics.median(ours) * 1e3 < OVERHEAD_P50_MS)
        promise(f"overhead p99 under {OVERHEAD_P99_MS:.0f} ms", percentile(ours, 99) * 1e3 < OVERHEAD_P99_MS)
        count, began = round(rate * seconds), time.perf_counter()
        gate = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            async with gate:
                await turn(hermes, number % USERS)

        await asyncio.gather(*(one(number) for number in range(count)))
        print(f"\nAs fast as it goes in one process, 32 at once: **{count / (time.perf_counter() - began):.0f} messages/s**\n")


STEPS = (
    "resolve_user",
    "take_credit",
    "load_soul",
    "load_history",
    "route_image",
    "build_messages",
    "gate_tools",
    "call_model",
    "run_tools",
    "record",
)


def watched(hermes: Hermes, spent: dict[str, list[float]]) -> Hermes:
    """The same Hermes, with a clock at every step, and without a model."""

    class Meter:
        def count_step(self, step: str, seconds: float) -> None:
            spent[step].append(seconds)

        def count_turn(self, outcome: str, _: str) -> None:
            if outcome != "answered":
                raise SystemExit(f"a turn ended with {outcome}")

    hermes.fleet._backends["scripted"] = AtOnce()  # nobody else exchanges a model for none
    return replace(hermes, turns=replace(hermes.turns, services=replace(hermes.turns.services, meter=Meter())))


class AtOnce:
    """A backend that answers at once, so that all the time that is left is ours, the gateway's included."""

    name = "scripted"

    def answers_as(self, model: str) -> str:
        return model

    def supports_tools(self, _: str) -> bool:
        return True

    def capabilities(self, _: str) -> Capabilities:
        return Capabilities(tools=True)

    async def complete(self, _: Any, model: str, **__: Any) -> Completion:
        said = {"role": "assistant", "content": "That sounds lovely. Tell me more about it."}
        return Completion(message=said, finish_reason="stop", usage=Usage(tokens_in=400, tokens_out=12), model=model, request_digest="")

    async def aclose(self) -> None:
        return


queues: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
"""One turn at a time in each conversation, as the job queue would have it."""


async def turn(hermes: Hermes, user: int, spent: dict[str, list[float]] | None = None) -> None:
    async with queues[user]:
        receipt = await hermes.intake.accept(message(user), newcomer=UserState.ACTIVE)
        began = time.perf_counter()
        await hermes.turns.run(receipt.turn_id)
    if spent is not None:
        spent["turn"].append(time.perf_counter() - began)


def message(user: int) -> Envelope:
    event = MessageEvent(platform=Platform.REST, sender_id=f"u{user}", text=random.choice(TALK))
    return Envelope(event=event, account="bench", channel_id=f"u{user}", event_key=str(uuid4()))


async def teach(hermes: Hermes) -> None:
    """Let some of the users have told something that can be recalled."""
    now = datetime.now(UTC)
    async with hermes.database.begin() as tx:
        found = await (await tx.execute("select distinct user_id from inbox")).fetchall()  # type: ignore[attr-defined]
    for user_id in [row[0] for row in found][:KNOWING]:
        texts = [f"their friend number {number} is called Mira{number} and surfs" for number in range(5)]
        vectors = await hermes.adapters.embeddings.embed(texts)
        async with hermes.database.begin() as tx:
            await hermes.adapters.memories.change(tx, user_id, [remembered(*pair) for pair in zip(texts, vectors, strict=True)], now=now)
        await hermes.user_memory.souls.invalidate(user_id)


def remembered(text: str, vector: Any) -> FactChange:
    return FactChange(fact=NewFact(text=text, origin=FactOrigin.SAID, canonical=canonical(text), terms=terms(text), embedding=vector))


# --- soul and recall


async def mind(settings: Settings, parts: tuple[str, ...]) -> None:
    async with open_hermes(settings) as hermes:
        await hermes.prepare()
        receipt = await hermes.intake.accept(message(9_999), newcomer=UserState.ACTIVE)
        async with hermes.database.begin() as tx:
            user_id: UUID = (await (await tx.execute("select user_id from inbox where turn_id = %s", [receipt.turn_id])).fetchone())[0]  # type: ignore[attr-defined]
            user = await hermes.adapters.people.get(tx, user_id)
        now = datetime.now(UTC)
        facts = ("dinner with {} at {}", "{} likes {}", "{} works near {}", "went to {} with {}", "{} is allergic to {}")
        words = [f"{a}{b}" for a in ("ber", "kal", "mon", "tur", "vel", "sor", "lin") for b in ("ada", "iko", "une", "arta", "osh", "ello")]
        print(f"One user with {FACTS} facts\n\n| | n | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
        texts = [f"{random.choice(facts).format(*random.sample(words, 2))} ({number})" for number in range(FACTS)]
        for start in range(0, FACTS, 250):
            some = texts[start : start + 250]
            vectors = await hermes.adapters.embeddings.embed(some)
            changes = [remembered(*pair) for pair in zip(some, vectors, strict=True)]
            async with hermes.database.begin() as tx:
                await hermes.adapters.memories.change(tx, user_id, changes, now=now)
        souls, agent = hermes.user_memory.souls, Agent(name="hermes")

        async def soul(text: str) -> None:
            await souls.load(user, agent, text, now=now, conversation_id=receipt.conversation_id)

        async def cold() -> None:
            await hermes.adapters.bases.drop(user_id)
            await soul("thanks")

        if "soul" in parts:
            await soul("thanks")
            row("soul, base cached, trivial message", [await clocked(lambda: soul("thanks")) for _ in range(300)])
            row("soul, base built anew", [await clocked(cold) for _ in range(300)])
            row(
                "soul, base cached, with recall",
                [await clocked(lambda: soul(f"where did I go with {random.choice(words)}")) for _ in range(300)],
            )
        if "recall" in parts:
            found = [
                await clocked(lambda: hermes.user_memory.recall.find(user_id, f"what about {random.choice(words)}", now=now))
                for _ in range(300)
            ]
            row(f"recall over {FACTS} facts, with its embedding", found)
            await recalls(hermes, user_id, words, now)
        print()


async def recalls(hermes: Hermes, user_id: UUID, words: list[str], now: datetime) -> None:
    """Recall without the embedding, with both kinds of stored vectors: from what the worker holds, and for the first time."""
    questions = [f"what about {random.choice(words)}" for _ in range(100)]
    asked = dict(zip(questions, await hermes.adapters.embeddings.embed(questions), strict=True))
    for seals in (True, False):
        memories = PostgresMemories(hermes.keyring, seals_vectors=seals)
        after: UUID | None = None
        while True:
            async with hermes.database.begin() as tx:
                after = await memories.convert_vectors(tx, after=after, limit=500)
            if after is None:
                break

        async def search(question: str, memories: PostgresMemories = memories) -> None:
            async with hermes.database.once() as tx:
                near = await memories.near(tx, user_id, asked[question], terms(question), now=now, limit=MAX_RECALLED_FACTS)
                await memories.read(tx, user_id, rank_facts(near, vector_weight=hermes.adapters.embeddings.weight))

        async def first(question: str, seals: bool = seals) -> None:  # noqa: FBT001
            new = PostgresMemories(hermes.keyring, seals_vectors=seals)
            await search(question, new)

        kind = "sealed" if seals else "plain"
        await search(questions[0])
        used = time.process_time()
        warm = [await clocked(lambda: search(random.choice(questions))) for _ in range(100)]
        used_ms = (time.process_time() - used) * 10
        row(f"search, rank, open the best; {kind} vectors", warm)
        row(f"the same, for the first time; {kind} vectors", [await clocked(lambda: first(random.choice(questions))) for _ in range(10)])
        print(f"| of that, the worker's processor time, {kind} vectors, mean | 100 | {used_ms:.1f} | | |")
        promise(f"p50 of a recall with {kind} vectors within {RECALL_P50_MS:.0f} ms", statistics.median(warm) * 1000 <= RECALL_P50_MS)


# --- how long people wait


async def waiting(environ: dict[str, str], seconds: float) -> None:
    settings = load(environ)
    async with open_hermes(settings) as hermes, hermes.database.begin() as tx:
        _, secret = await hermes.adapters.api_keys.create(tx, "bench", "waiting")
    with processes(environ, ["serve", "worker"]):
        url = f"http://127.0.0.1:{settings.web.port}"
        async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {secret}"}) as client:
            await until_ready(client)
            await say(client, 0)
            end = time.monotonic() + seconds

            async def person(number: int) -> list[float]:
                await asyncio.sleep(random.uniform(0, UPSTREAM_S))
                took: list[float] = []
                while time.monotonic() < end:
                    took.append(await clocked(lambda: say(client, number)))
                return took

            took = [time_s for times in await asyncio.gather(*(person(number) for number in range(PEOPLE))) for time_s in times]
    print(f"{PEOPLE} people who talk without a pause, over HTTP, with a model that takes {UPSTREAM_S} s\n")
    print("| | n | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
    row("from request to answer", took)
    row("of that, not the model", [time_s - UPSTREAM_S for time_s in took])
    promise(f"p99 under {PATIENCE_S:.0f} s end to end", percentile(took, 99) < PATIENCE_S)
    print()


async def say(client: aiohttp.ClientSession, user: int) -> None:
    async with client.post("/v1/messages", json={"text": random.choice(TALK), "user": f"p{user}"}) as response:
        body = await response.json()
        assert response.status == 200, body
        assert body["text"].startswith("That sounds"), body


async def messages(environ: dict[str, str], stores: embedded.StoreUrls, seconds: float, held_s: float) -> None:
    for text, is_kept in await whole_path(environ, stores, seconds, held_s=held_s):
        promise(text, is_kept)


async def clocked(act: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


def row(name: str, times: list[float]) -> None:
    ordered = sorted(time_s * 1e3 for time_s in times)
    print(f"| {name} | {len(times)} | {statistics.median(ordered):.2f} | {percentile(ordered, 99):.2f} | {ordered[-1]:.2f} |")


def promise(text: str, is_kept: bool) -> None:  # noqa: FBT001
    if not is_kept:
        broken.append(text)


if __name__ == "__main__":
    sys.exit(main())
