"""The clockwork: each chore at its interval, once over all processes, in the background; what fails or hangs is alone with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import structlog

from hermes.ports.errors import LeaseLost, NotFound, StoreUnavailable
from hermes.ports.runtime import Transaction
from hermes.router.chores import CHORE_SCHEDULES, Chore, ChoreBusy, ChoreRun, ChoreScheduler, scheduled_chores
from hermes.testing.memory import MemoryChores, MemoryTransactions

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
"""A Sunday."""


class Time:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Diary:
    """Chores that note when they were done; an error is raised instead."""

    def __init__(self, *errors: Exception | None) -> None:
        self.done: list[datetime] = []
        self.errors = list(errors)

    async def __call__(self, run: ChoreRun) -> None:
        self.done.append(run.now)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error


def clockwork(rota: MemoryChores, *chores: Chore, **limits: float) -> ChoreScheduler:
    return ChoreScheduler(MemoryTransactions(), rota, chores, **limits)


async def test_a_chore_is_done_once_in_each_of_its_slots() -> None:
    diary = Diary()
    works = clockwork(MemoryChores(), Chore(name="c", every_s=10, do=diary))
    times = [NOON + timedelta(seconds=second) for second in (0, 2, 9, 10, 14, 41)]
    for now in times:
        await works.tick(now)
        await works.idle()
    assert diary.done == [NOON, times[3], times[5]]


async def test_of_two_processes_that_tick_at_once_one_does_it() -> None:
    rota, diary = MemoryChores(), Diary()
    processes = [clockwork(rota, Chore(name="c", every_s=10, do=diary)) for _ in range(2)]
    for now in (NOON, NOON + timedelta(seconds=10)):
        await asyncio.gather(*(process.tick(now) for process in processes))
        await asyncio.gather(*(process.idle() for process in processes))
    assert diary.done == [NOON, NOON + timedelta(seconds=10)]


async def test_a_chore_that_fails_is_left_alone_for_a_while_and_holds_up_no_other() -> None:
    time, bad, good = Time(), Diary(ValueError()), Diary()
    rota = MemoryChores(clock=time)
    works = clockwork(rota, Chore(name="bad", every_s=3_600, do=bad), Chore(name="good", every_s=10, do=good), pause_s=30)
    with structlog.testing.capture_logs() as logs:
        for second in (0, 10, 29, 50):
            time.now = second
            await works.tick(NOON + timedelta(seconds=second))
            await works.idle()
    assert (len(bad.done), len(good.done)) == (2, 4)
    assert {"event": "chore_failed", "chore": "bad", "error": "ValueError", "log_level": "warning"} in logs


async def test_what_takes_long_holds_up_neither_the_tick_nor_the_others_and_is_not_begun_twice() -> None:
    gate, begun, quick = asyncio.Event(), [], Diary()

    async def slow(run: ChoreRun) -> None:
        begun.append(run.now)
        await gate.wait()

    works = clockwork(MemoryChores(), Chore(name="slow", every_s=10, do=slow), Chore(name="quick", every_s=10, do=quick))
    for second in (0, 10, 20):
        async with asyncio.timeout(1):
            await works.tick(NOON + timedelta(seconds=second))
            await asyncio.sleep(0.01)
    assert (begun, len(quick.done)) == ([NOON], 3)
    gate.set()
    await works.idle()


async def test_whoever_is_at_it_gives_signs_of_life_and_whoever_lost_it_stops() -> None:
    time, cut_off = Time(), asyncio.Event()
    rota = MemoryChores(clock=time)

    async def slow(_: ChoreRun) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cut_off.set()

    works = clockwork(rota, Chore(name="slow", every_s=10, do=slow), lease_s=0.03)
    await works.tick(NOON)
    time.now = 0.02
    await asyncio.sleep(0.1)
    assert rota.rows["slow"].held_until == pytest.approx(0.05), "kept at the time that is now"
    time.now = 9.0
    rota.rows["slow"].epoch += 1  # this process was asleep, and another one took it
    async with asyncio.timeout(5):
        await cut_off.wait()
    await works.aclose()


async def test_closing_stops_what_is_being_done_and_leaves_it_to_others() -> None:
    rota, cut_off = MemoryChores(), []

    async def slow(_: ChoreRun) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut_off.append(True)
            raise

    works = clockwork(rota, Chore(name="slow", every_s=3_600, do=slow))
    await works.tick(NOON)
    await asyncio.sleep(0)
    await works.aclose()
    assert cut_off == [True]
    diary = Diary()
    other = clockwork(rota, Chore(name="slow", every_s=3_600, do=diary))
    await other.tick(NOON)
    await other.idle()
    assert diary.done == [NOON]


class Away(MemoryTransactions):
    """A store that cannot be reached."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Transaction]:
        raise StoreUnavailable
        yield


async def test_a_store_that_is_away_stops_the_clock_and_nothing_else() -> None:
    diary = Diary()
    works = ChoreScheduler(Away(), MemoryChores(), [Chore(name="c", every_s=10, do=diary)])
    with structlog.testing.capture_logs() as logs:
        await works.tick(NOON)
    assert diary.done == []
    assert logs == [{"event": "clock_stopped", "chore": "c", "error": "StoreUnavailable", "log_level": "warning"}]


async def test_dreams_come_at_night_light_ones_daily_and_deep_ones_on_mondays() -> None:
    diaries = {schedule.name: Diary() for schedule in CHORE_SCHEDULES}
    works = clockwork(MemoryChores(), *scheduled_chores(diaries))
    begun = {name: list[str]() for name in diaries}
    for hours in range(24 * 15):
        now = NOON + timedelta(hours=hours)
        await works.tick(now)
        await works.idle()
        for name, diary in diaries.items():
            if diary.done and diary.done[-1] == now:
                begun[name].append(f"{now:%a %H}")
    assert begun["deep_dreams"] == ["Sun 12", "Mon 04", "Mon 04", "Mon 04"], "the first one makes up for what nobody was there for"
    assert begun["light_dreams"][:3] == ["Sun 12", "Mon 03", "Tue 03"]
    assert (len(begun["light_dreams"]), len(begun["re_embedding"]), len(begun["reminders"])) == (16, 360, 360)


# --- a chore that another process took over


async def test_a_process_that_lost_its_lease_opens_no_transaction_any_more_and_ends_nothing() -> None:
    time, written, woken = Time(), list[str](), asyncio.Event()
    rota = MemoryChores(clock=time)

    async def slow(run: ChoreRun) -> None:
        async with run.transactions.begin():
            written.append("before")
        await woken.wait()
        async with run.transactions.once():
            written.append("after")

    sleeper, diary = clockwork(rota, Chore(name="c", every_s=3_600, do=slow), lease_s=60), Diary()
    await sleeper.tick(NOON)
    await asyncio.sleep(0)
    time.now = 61
    other = clockwork(rota, Chore(name="c", every_s=3_600, do=diary))
    await other.tick(NOON)
    await other.idle()
    woken.set()
    with structlog.testing.capture_logs() as logs:
        await sleeper.idle()
    assert (written, diary.done) == (["before"], [NOON])
    assert logs == [{"event": "chore_taken_over", "chore": "c", "log_level": "warning"}]
    assert (rota.rows["c"].epoch, rota.rows["c"].failed) == (2, None), "a late process leaves the row of its successor alone"


async def test_a_chore_on_demand_that_is_lost_says_so_even_if_it_only_waits() -> None:
    rota = MemoryChores()

    async def slow(_: ChoreRun) -> None:
        rota.rows["c"].epoch += 1
        await asyncio.Event().wait()

    with pytest.raises(LeaseLost):
        await clockwork(rota, Chore(name="c", every_s=10, do=slow), lease_s=0.03).run_now("c", NOON)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


# --- on demand


async def test_a_chore_is_done_on_demand_although_its_slot_is_done_and_stays_done() -> None:
    rota, diary = MemoryChores(), Diary()
    works = clockwork(rota, Chore(name="c", every_s=10, do=diary))
    await works.tick(NOON)
    await works.idle()
    await works.run_now("c", NOON + timedelta(seconds=1))
    await works.tick(NOON + timedelta(seconds=2))
    await works.idle()
    assert diary.done == [NOON, NOON + timedelta(seconds=1)]


async def test_on_demand_the_result_and_the_error_of_a_chore_reach_the_caller() -> None:
    async def count(_: ChoreRun) -> int:
        return 3

    rota = MemoryChores()
    works = clockwork(rota, Chore(name="good", every_s=10, do=count), Chore(name="bad", every_s=10, do=Diary(ValueError())))
    assert await works.run_now("good", NOON) == 3
    with pytest.raises(ValueError, match=r"^$"):
        await works.run_now("bad", NOON)
    assert rota.rows["bad"].failed == "ValueError"
    with pytest.raises(NotFound, match="there is no chore 'ugly'; there are: bad, good"):
        await works.run_now("ugly", NOON)


async def test_a_chore_that_another_process_is_doing_is_not_done_on_demand() -> None:
    rota, gate = MemoryChores(), asyncio.Event()

    async def slow(_: ChoreRun) -> None:
        await gate.wait()

    works = clockwork(rota, Chore(name="c", every_s=10, do=slow))
    await works.tick(NOON)
    with pytest.raises(ChoreBusy):
        await clockwork(rota, Chore(name="c", every_s=10, do=Diary())).run_now("c", NOON)
    gate.set()
    await works.idle()
