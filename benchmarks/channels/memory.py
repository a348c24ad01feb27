"""Whether web and worker grow: very many messages, of more people than any cache of theirs holds, as fast as they are taken.

    senders  →  web  →  worker, with a model that answers at once  →  platforms that take everything

Everybody speaks in turn, so that all of them have spoken when a fifth of the messages is through: by then every cache is as full as it will
be, and what grows later grows for ever."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.machine import rss_mb
from ground import valkey_pid

from channels.accounts import ONE_OF_EACH, Account, Kind
from channels.house import House, cpu_row, open_house, promise, say

SAMPLES = 50
SETTLED = 0.2
"""Until this share of the messages a process may grow: caches fill, pools open."""
GROWTH = 1.10
SHARE = 5
"""Messages of each person."""
ACCOUNTS = (*ONE_OF_EACH, Account(Kind.TELEGRAM, 2))
"""Two bots, because one may say no more than 30 messages a second."""
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Sample:
    """The state after so many messages were sent."""

    messages: int
    web: float
    worker: float
    valkey: float
    """MB of memory."""
    at: float


async def memory(messages: int) -> None:
    """Send everything, look at the processes again and again, and see that everybody was answered once."""
    people = max(1, messages // SHARE)
    async with open_house(ACCOUNTS) as house, house.running("serve", "worker") as pids:
        print(f"Memory: {messages:,} messages of {people:,} people on {len(ACCOUNTS)} accounts, as fast as they are taken\n")
        cpu_before = house.cpu_s(pids)
        samples = await sampled(house, pids, messages, people)
        await house.taken.until(messages)
        await house.until_idle()
        took_s = house.taken.last_at - house.taken.first_at
        samples.append(looked(house, pids, messages))
        used = cpu_row(cpu_before, house.cpu_s(pids), messages)
        await check(house, messages)
        size = (await house.ask("select pg_database_size(current_database()) / 1048576.0"))[0][0]
    print("| messages | web MB | worker MB | Valkey MB | messages/s |\n|---|---|---|---|---|")
    for before, after in zip(samples[:: SAMPLES // 10], samples[SAMPLES // 10 :: SAMPLES // 10], strict=False):
        rate = (after.messages - before.messages) / (after.at - before.at)
        print(f"| {after.messages:,} | {after.web:.1f} | {after.worker:.1f} | {after.valkey:.1f} | {rate:.0f} |")
    print(f"\nAnswered at **{messages / took_s:.0f} messages/s** over {took_s:.0f} s; the database has {size:,.0f} MB")
    print(f"Processor time for a message: {used}\n")
    for name in ("web", "worker"):
        tell(name, samples)
    print()


async def sampled(house: House, pids: dict[str, list[int]], messages: int, people: int) -> list[Sample]:
    step = max(1, messages // SAMPLES)
    samples = [looked(house, pids, 0)]
    for first in range(0, messages, step):
        # The worker always has some to work on, and never so many that it is the queue that is measured.
        await house.taken.until(first - step)
        told = await house.send(ACCOUNTS, people=people, first=first, count=min(step, messages - first))
        for what, times in told["wrong"].items():
            promise(f"every webhook is taken; {times} got: {what}", is_kept=False)
        samples.append(looked(house, pids, min(first + step, messages)))
        before, after = samples[-2:]
        rate = (after.messages - before.messages) / (after.at - before.at)
        say(f"memory: {after.messages:,} messages, web {after.web:.1f} MB, worker {after.worker:.1f} MB, {rate:.0f}/s")
    return samples


def looked(house: House, pids: dict[str, list[int]], messages: int) -> Sample:
    valkey = rss_mb([valkey_pid(house.stores)])
    return Sample(messages, rss_mb(pids["serve"]), rss_mb(pids["worker"]), valkey, time.monotonic())


async def check(house: House, messages: int) -> None:
    taken = house.taken
    promise(f"each message is answered once; {taken.twice} were answered twice", taken.twice == 0)
    for said, count in taken.others.most_common(3):
        promise(f"{count} answers were none: {said}", is_kept=False)
    for table, end in (("inbox", "done"), ("outbox", "sent")):
        found = dict(await house.ask(f"select state, count(*) from {table} group by state"))  # noqa: S608  # our own words
        promise(f"{table} has {messages} messages, all {end}; it has {found}", found == {end: messages})


def tell(name: str, samples: Sequence[Sample]) -> None:
    """How a process grew: since it settled, and by how much for each message."""
    settled = [sample for sample in samples if sample.messages >= SETTLED * samples[-1].messages]
    sizes = [getattr(sample, name) for sample in settled]
    grown = sizes[-1] / sizes[0]
    slope = statistics.linear_regression([sample.messages for sample in settled], sizes).slope * 2**20
    print(f"{name:<6} {bars([getattr(sample, name) for sample in samples])}  ", end="")
    print(f"grown {grown:.3f} times from {SETTLED:.0%} to 100 % ({sizes[0]:.1f} to {sizes[-1]:.1f} MB), {slope:+,.0f} bytes a message")
    promise(f"the {name} grows no more than {GROWTH - 1:.0%} once its caches are full; it grew {grown:.2f} times", grown <= GROWTH)


def bars(sizes: Sequence[float]) -> str:
    least, most = min(sizes), max(sizes)
    return "".join(BARS[round((size - least) / max(1e-9, most - least) * (len(BARS) - 1))] for size in sizes)
