"""How long a webhook waits for its 200, at a rate that does not wait for us; and whether each that got one is in the inbox, once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ground import percentile

from channels.accounts import ONE_OF_EACH, Crowd, Kind
from channels.house import House, cpu_row, open_house, promise, row

MEETING_RATE = 50
REPEATED = 50
"""Every so many webhooks one comes twice."""
ROUNDS = 3
"""One stall of the disk, or of the machine under this one, is a round's whole p99."""
PROMISED_RATE = 200
ALONE_MS, BESIDE_MS = 50.0, 50.0
"""What the slowest of a hundred may take: by itself, and on a machine that the worker and the senders fill to the brim."""


async def acknowledge(rate: float, seconds: float, people: int) -> None:
    """Newcomers first; then everybody, with a worker beside the web, and without."""
    async with open_house(ONE_OF_EACH) as house, house.running("serve") as web:
        part = Part(house, people)
        print(
            f"Acknowledge: {people} people on {len(ONE_OF_EACH)} channels, mixed. 1 web process, PostgreSQL, Valkey and the senders ",
            end="",
        )
        print(f"(a process of their own), all on this machine. One of {REPEATED} webhooks comes twice\n")
        print("| webhooks | sent | p50 ms | p99 ms | worst ms |\n|---|---|---|---|---|")
        async with house.running("worker"):
            told = await part.send(MEETING_RATE, people)
            row(f"first message of a new user, at {MEETING_RATE}/s, worker beside it", times(told))
            await house.until_idle()
            rounds = []
            for number in range(1, ROUNDS + 1):
                rounds.append(await part.send(rate, round(rate * seconds)))
                row(f"**at {rate:g}/s, worker beside it**, round {number}", times(rounds[-1]))
                await house.until_idle()
            told = sorted(rounds, key=lambda told: percentile(times(told), 99))[ROUNDS // 2]
            for kind in Kind:
                row(f"… middle round, {kind}", [took for number, took in told["took_ms"] if part.crowd.account(number).kind is kind])
            row("… of that, the senders' own delay", told["late_ms"])
            promise_speed(rate, times(told), BESIDE_MS, "with a worker beside it, in the middle round")
            await part.check_answers()
        before = house.cpu_s(web)
        told = await part.send(rate, round(rate * seconds))
        used = cpu_row(before, house.cpu_s(web), len(told["took_ms"]))
        row(f"at {rate:g}/s, no worker", times(told))
        promise_speed(rate, times(told), ALONE_MS, "without a worker")
        held = await part.check_inbox()
        print(f"\nProcessor time for a webhook, no worker: {used}")
        print(f"{len(part.acknowledged)} messages got a 200, {held} are in the inbox\n")


class Part:
    """What was sent so far, and what became of it."""

    def __init__(self, house: House, people: int) -> None:
        self._house, self.crowd = house, Crowd(ONE_OF_EACH, people)
        self._next = 0
        self.acknowledged: set[int] = set()

    async def send(self, rate: float, count: int) -> dict[str, Any]:
        wanted = {"people": self.crowd.people, "first": self._next, "count": count, "rate": rate, "repeated": REPEATED}
        told = await self._house.send(self.crowd.accounts, **wanted)
        self._next += count
        self.acknowledged |= {number for number, _ in told["took_ms"]}
        for what, times in told["wrong"].items():
            promise(f"every webhook gets its 200; {times} got: {what}", is_kept=False)
        return told

    async def check_inbox(self) -> int:
        """Each message that got its 200 is there once, and nothing else is. Returns how many are there."""
        held = Counter(await self._house.ask("select account_id, event_key from inbox"))
        wanted = self.crowd.keys(sorted(self.acknowledged))
        promise(f"{len(wanted - held.keys())} messages got a 200 and are not in the inbox", held.keys() >= wanted)
        promise(f"{len(held.keys() - wanted)} messages are in the inbox and got no 200", held.keys() <= wanted)
        promise(f"{held.total() - len(held)} messages are in the inbox twice", held.total() == len(held))
        return held.total()

    async def check_answers(self) -> None:
        """Each has arrived at its platform, once."""
        taken = self._house.taken
        answered = {int(mark[1:]) for mark in taken.marks}
        promise(f"{len(self.acknowledged - answered)} messages were not answered", answered == self.acknowledged)
        promise(f"{taken.twice} answers arrived twice", taken.twice == 0)
        for said, count in taken.others.most_common(3):
            promise(f"{count} answers were none: {said}", is_kept=False)


def times(told: dict[str, Any]) -> list[float]:
    return [took for _, took in told["took_ms"]]


def promise_speed(rate: float, times_ms: list[float], at_most_ms: float, how: str) -> None:
    if rate <= PROMISED_RATE:
        promise(f"acknowledge p99 under {at_most_ms:.0f} ms at {rate:g}/s, {how}", percentile(times_ms, 99) < at_most_ms)
