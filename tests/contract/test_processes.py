"""The port Processes: a row for each process, found stalled once by one of the others, and an event for everything that happens to it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import pytest

from hermes.ports.processes import ProcessBeat, Processes, ProcessRecord, ProcessRestart, ProcessRole, ProcessState, RestartReason
from hermes.ports.runtime import Transactions
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.processes import PostgresProcesses
from hermes.testing.memory import MemoryProcesses, MemoryTransactions

STALLED_S = 10.0


def worker(**about: object) -> ProcessBeat:
    return replace(
        ProcessBeat(process_id=uuid4(), role=ProcessRole.WORKER, host="bali-1", pid=42, version="1.0"),
        **about,  # type: ignore[arg-type]
    )


@dataclass
class House:
    """Processes, and a way to let time pass."""

    processes: Processes
    transactions: Transactions
    wait: Callable[[float], Awaitable[None]]
    names: dict[UUID, str] = field(default_factory=dict)

    async def beat(self, beat: ProcessBeat) -> list[ProcessRecord]:
        async with self.transactions.once() as tx:
            return list(await self.processes.beat(tx, beat, stalled_after_s=STALLED_S))

    async def find(self, beat: ProcessBeat) -> list[ProcessRecord]:
        """Give a beat on time, and return which others it found stalled."""
        await self.beat(beat)
        return await self.beat(beat)

    async def stop(self, beat: ProcessBeat) -> None:
        async with self.transactions.once() as tx:
            await self.processes.stop(tx, beat.process_id)

    async def replace(self, beat: ProcessBeat, reason: RestartReason, code: int | None = -9, *, is_crash_loop: bool = False) -> None:
        restart = ProcessRestart(
            process_id=beat.process_id,
            role=beat.role,
            host=beat.host,
            pid=beat.pid,
            reason=reason,
            code=code,
            restarts=1,
            is_crash_loop=is_crash_loop,
        )
        async with self.transactions.once() as tx:
            await self.processes.record_restart(tx, restart)

    async def all(self) -> list[ProcessRecord]:
        async with self.transactions.once() as tx:
            return list(await self.processes.all(tx))

    async def states(self) -> list[ProcessState]:
        return [record.state(STALLED_S) for record in await self.all()]

    async def events(self) -> list[str]:
        """What happened, in that order."""
        async with self.transactions.once() as tx:
            return [event.type.removeprefix("process_") for event in await self.processes.events(tx)][::-1]


@pytest.fixture(params=["postgres", "memory"])
def house(request: pytest.FixtureRequest) -> House:
    if request.param == "memory":
        now = [1_000_000.0]

        async def wait(seconds: float) -> None:
            now[0] += seconds

        return House(MemoryProcesses(clock=lambda: now[0]), MemoryTransactions(), wait)
    database: Database = request.getfixturevalue("database")

    async def rewind(seconds: float) -> None:
        async with database.begin() as tx:
            for table, column in (("processes", "beat_at"), ("processes", "started_at"), ("process_events", "at")):
                query = f"update {table} set {column} = {column} - make_interval(secs => %s)"  # noqa: S608  # our own names
                await connection_of(tx).execute(query.encode(), [seconds])

    return House(PostgresProcesses(), database, rewind)


async def test_a_process_says_how_it_is_with_each_beat(house: House) -> None:
    first = worker()
    assert await house.beat(first) == []
    [record] = await house.all()
    assert (record.id, record.role, record.host, record.pid, record.version) == (first.process_id, ProcessRole.WORKER, "bali-1", 42, "1.0")
    assert (record.progress_at, record.running, record.state(STALLED_S)) == (None, 0, ProcessState.LIVE)
    await house.beat(replace(first, turn_ended_s=3.0, running=2, slots_used=1, slots_waiting=4, loop_lag_ms=15))
    [record] = await house.all()
    assert record.progress_at is not None
    assert (record.beat_at - record.progress_at).total_seconds() == pytest.approx(3.0, abs=0.5)
    assert (record.running, record.slots_used, record.slots_waiting, record.loop_lag_ms) == (2, 1, 4, 15)
    await house.stop(first)
    await house.stop(first)
    assert await house.states() == [ProcessState.STOPPED]
    assert await house.events() == ["started", "stopped"]


async def test_a_process_without_a_beat_is_found_by_one_of_the_others_and_once(house: House) -> None:
    late, others = worker(pid=1), [worker(pid=pid) for pid in (2, 3, 4)]
    await house.beat(late)
    await house.wait(STALLED_S + 1)
    assert [await house.beat(other) for other in others] == [[], [], []], "each is new, and may itself have waited for the store"
    found = await asyncio.gather(*(house.beat(other) for other in others))
    assert [record.pid for records in found for record in records] == [1]
    assert [await house.beat(other) for other in others] == [[], [], []]
    assert (await house.states()).count(ProcessState.STALLED) == 1
    assert (await house.events()).count("stalled") == 1


async def test_a_process_that_was_stalled_and_beats_again_is_live_and_may_stall_again(house: House) -> None:
    late, other = worker(pid=1), worker(pid=2)
    for _ in range(2):
        await house.beat(late)
        await house.wait(STALLED_S + 1)
        assert [record.pid for record in await house.find(other)] == [1]
    await house.beat(late)
    await house.beat(other)
    assert await house.states() == [ProcessState.LIVE, ProcessState.LIVE]
    assert await house.events() == ["started", "started", "stalled", "recovered", "stalled", "recovered"]


async def test_a_command_that_its_user_suspended_is_not_stalled(house: House) -> None:
    await house.beat(worker(role=ProcessRole.COMMAND))
    await house.wait(STALLED_S + 1)
    assert await house.find(worker(pid=2)) == []
    assert "stalled" not in await house.events()


async def test_a_process_that_does_not_look_for_others_finds_none(house: House) -> None:
    await house.beat(worker(pid=1))
    await house.wait(STALLED_S + 1)
    async with house.transactions.once() as tx:
        assert await house.processes.beat(tx, worker(pid=2)) == []
    assert await house.events() == ["started", "started"]


async def test_a_process_that_ended_by_itself_is_not_stalled(house: House) -> None:
    gone = worker(pid=1)
    await house.beat(gone)
    await house.stop(gone)
    await house.wait(STALLED_S + 1)
    assert await house.find(worker(pid=2)) == []


async def test_a_process_that_is_late_itself_finds_no_other_late(house: House) -> None:
    one, other = worker(pid=1), worker(pid=2)
    for beat in (one, other):
        await house.beat(beat)
    await house.wait(STALLED_S + 1)  # for both: the store was away
    assert (await house.beat(one), await house.beat(other)) == ([], [])
    assert await house.events() == ["started", "started"]


async def test_silence_is_one_event_until_it_ends(house: House) -> None:
    quiet = worker()
    for is_silent in (False, True, True, False, True):
        await house.beat(replace(quiet, is_silent=is_silent))
    assert await house.states() == [ProcessState.SILENT]
    assert await house.events() == ["started", "silent", "silent"]


async def test_what_was_replaced_is_stopped_and_every_reason_is_an_event(house: House) -> None:
    died, stalled, looping = worker(pid=1), worker(pid=2), worker(pid=3)
    for beat in (died, stalled, looping):
        await house.beat(beat)
    await house.replace(died, RestartReason.DIED, -11)
    await house.replace(stalled, RestartReason.STALLED)
    await house.replace(looping, RestartReason.DIED, 1, is_crash_loop=True)
    assert await house.states() == [ProcessState.STOPPED] * 3
    assert await house.events() == ["started"] * 3 + ["restarted", "stalled", "restarted", "restarted", "crash_loop"]
    async with house.transactions.once() as tx:
        facts = (await house.processes.events(tx, limit=5))[-1].facts
    assert facts == {"role": "worker", "host": "bali-1", "pid": 1, "reason": "died", "code": -11, "restarts": 1}
    await house.wait(STALLED_S + 1)
    assert await house.find(worker(pid=4)) == []


async def test_a_stall_that_another_process_found_is_not_told_twice(house: House) -> None:
    late = worker(pid=1)
    await house.beat(late)
    await house.wait(STALLED_S + 1)
    await house.find(worker(pid=2))
    await house.replace(late, RestartReason.STALLED, None)
    assert await house.events() == ["started", "started", "stalled", "restarted"]


async def test_a_process_that_never_gave_a_beat_can_be_replaced_too(house: House) -> None:
    await house.replace(replace(worker(), process_id=None), RestartReason.DIED, 1)
    assert (await house.all(), await house.events()) == ([], ["restarted"])


async def test_old_rows_and_old_events_are_deleted(house: House) -> None:
    await house.beat(worker(pid=1))
    await house.wait(100)
    await house.find(worker(pid=2))
    async with house.transactions.begin() as tx:
        assert await house.processes.prune(tx, rows_older_than_s=50, events_older_than_s=1_000) == 1
    assert [record.pid for record in await house.all()] == [2]
    assert len(await house.events()) == 3
    async with house.transactions.begin() as tx:
        assert await house.processes.prune(tx, rows_older_than_s=50, events_older_than_s=50) == 0
    assert sorted(await house.events()) == ["stalled", "started"]
