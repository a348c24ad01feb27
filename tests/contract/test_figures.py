"""The figures of the real stores, as the operator's metrics show them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from redis.asyncio import Redis

from hermes.delivery.breaker import BreakerLimits
from hermes.ports.figures import StoreFigure
from hermes.ports.models import ModelAddress, ModelFailure
from hermes.ports.outbox import Admission, ChannelName
from hermes.stores.postgres import figures as postgres_figures
from hermes.stores.postgres.database import Database, connection_of
from hermes.stores.postgres.job_queue import open_job_queue
from hermes.stores.postgres.keyring import Keyring
from hermes.stores.redis import figures as redis_figures
from hermes.stores.redis.breakers import RedisBreakers
from hermes.stores.redis.model_breakers import RedisModelBreakers
from hermes.turn import Platform
from tests.contract.turns import new_turn

Figures = dict[tuple[str, ...], float]


async def read(database: Database) -> Figures:
    async with database.once() as tx:
        return by_name(await postgres_figures.read_figures(tx, stalled_after_s=10))


def by_name(figures: Sequence[StoreFigure]) -> Figures:
    found = {(figure.name, *figure.labels): figure.value for figure in figures}
    assert len(found) == len(figures), "a figure is there twice"
    return found


async def execute(database: Database, statement: str, *values: object) -> None:
    async with database.begin() as tx:
        await connection_of(tx).execute(statement, values)


async def test_an_empty_hermes_has_figures_of_zero(database: Database) -> None:
    found = await read(database)
    queues = ("inbox", "outbox", "failed_sends", "dead_letters", "turns", "deliveries", "memory")
    assert {queue: (found["queue_length", queue], found["queue_oldest", queue]) for queue in queues} == dict.fromkeys(queues, (0, 0))
    states = [found["processes", role, state] for role in ("serve", "worker") for state in ("alive", "stalled", "silent")]
    assert (states, found["kill_switch",], found["newest_event",]) == ([0, 0, 0, 0, 0, 0], 0, 0)


async def test_waiting_messages_and_jobs_are_counted_with_the_age_of_the_oldest(database: Database, keyring: Keyring) -> None:
    first, second = await new_turn(database, keyring), await new_turn(database, keyring, channel="c2")
    await execute(database, "update inbox set received_at = now() - interval '90 s' where turn_id = %s", first)
    async with open_job_queue(database) as queue, database.begin() as tx:
        await queue.defer_turn(tx, first, uuid4())
        await queue.defer_turn(tx, second, uuid4(), in_s=3_600)
    await execute(database, "update procrastinate_jobs set deferred_at = now() - interval '30 s'")
    found = await read(database)
    assert (found["queue_length", "inbox"], found["queue_length", "turns"]) == (2, 2)
    assert found["queue_oldest", "inbox"] == pytest.approx(90, abs=30)
    assert found["queue_oldest", "turns"] == pytest.approx(30, abs=20), "a job that is due later has not waited"


async def test_a_job_that_is_due_counts_from_when_it_is_due(database: Database) -> None:
    async with open_job_queue(database) as queue, database.begin() as tx:
        await queue.defer_turn(tx, uuid4(), uuid4(), in_s=3_600)
    assert (await read(database))["queue_oldest", "turns"] == 0
    await execute(database, "update procrastinate_jobs set scheduled_at = now() - interval '40 s'")
    assert (await read(database))["queue_oldest", "turns"] == pytest.approx(40, abs=20)


async def test_processes_are_alive_stalled_or_silent_and_those_that_stopped_are_gone(database: Database) -> None:
    processes = ((1, ""), (60, ""), (1, "stalled_at"), (1, "silent_at"), (60, "stopped_at"), (7_200, ""))
    for pid, (age_s, moment) in enumerate(processes, start=1):
        await execute(
            database,
            "insert into processes (id, role, host, pid, version, beat_at, stalled_at, silent_at, stopped_at) "
            "values (%s, 'worker', 'h', %s, '1', now() - make_interval(secs => %s), "
            "case %s when 'stalled_at' then now() end, case %s when 'silent_at' then now() end, case %s when 'stopped_at' then now() end)",
            *(uuid4(), pid, age_s, moment, moment, moment),
        )
    found = await read(database)
    assert [found["processes", "worker", state] for state in ("alive", "stalled", "silent")] == [1, 2, 1]
    assert [found["processes", "serve", state] for state in ("alive", "stalled", "silent")] == [0, 0, 0]
    assert found["beat_age", "worker"] == pytest.approx(60, abs=30)


async def test_a_process_whose_number_another_one_has_is_gone(database: Database) -> None:
    for started_s, beat_s, pid in ((600, 250, 1), (200, 1, 1), (600, 250, 2)):
        await execute(
            database,
            "insert into processes (id, role, host, pid, version, started_at, beat_at) "
            "values (%s, 'worker', 'h', %s, '1', now() - make_interval(secs => %s), now() - make_interval(secs => %s))",
            *(uuid4(), pid, started_s, beat_s),
        )
    found = await read(database)
    assert [found["processes", "worker", state] for state in ("alive", "stalled", "silent")] == [1, 1, 0]


async def test_chores_alerts_and_the_kill_switch(database: Database) -> None:
    worker = uuid4()
    await execute(database, "insert into processes (id, role, host, pid, version) values (%s, 'worker', 'ubud', 7, '1')", worker)
    await execute(database, "insert into chores (name, held_until, holder) values ('dreams', now() + interval '60 s', %s)", worker)
    await execute(
        database,
        "insert into chores (name, epoch, held_until, done_at, ended_at, failed) "
        "values ('reminders', 3, now() + interval '60 s', now() - interval '30 s', now(), 'TimeoutError')",
    )
    for subject in ("a", "b"):
        await execute(database, "insert into alerts (event, subject, level) values ('breaker_opened', %s, 'critical')", subject)
    await execute(database, "insert into alerts (event, ended_at) values ('breaker_opened', now())")
    await execute(database, "insert into kill_latch (by, reason) values ('ada', 'test')")
    await execute(database, "insert into process_events (type) values ('process_started'), ('process_stopped')")
    found = await read(database)
    assert (found["chore_held", "dreams", "worker@ubud"], found["chore_held", "reminders", ""]) == (1, 0)
    assert [found["chore_epoch", chore] for chore in ("dreams", "reminders")] == [1, 3]
    assert [found["chore_failed", chore] for chore in ("dreams", "reminders")] == [0, 1]
    assert found["chore_done_age", "reminders"] == pytest.approx(30, abs=20)
    assert ("chore_done_age", "dreams") not in found
    assert (found["alerts_open", "breaker_opened", "critical"], found["kill_switch",]) == (2, 1)
    assert found["newest_event",] == 3, "that a process took a chore is an event too"


# --- Redis


class SettableClock:
    """A clock that stands still."""

    time = datetime(2026, 11, 16, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


async def test_the_breakers(redis_url: str) -> None:
    clock, bali, ubud = SettableClock(), ChannelName(Platform.TELEGRAM, "bali"), ChannelName(Platform.WHATSAPP, "ubud")
    async with Redis.from_url(redis_url) as redis:
        breakers = RedisBreakers(redis, clock, BreakerLimits(failures=1, open_s=60))
        assert by_name(await redis_figures.read_figures(redis, [bali, ubud], [], clock.now())) == {
            ("breaker_state", "telegram", "bali"): 0,
            ("breaker_state", "whatsapp", "ubud"): 0,
        }
        await breakers.record_failure(bali, Admission())
        found = by_name(await redis_figures.read_figures(redis, [bali, ubud], [], clock.now()))
        assert found == {("breaker_state", "telegram", "bali"): 2, ("breaker_state", "whatsapp", "ubud"): 0}
        later = datetime(2026, 11, 16, 12, 5, tzinfo=UTC)
        assert by_name(await redis_figures.read_figures(redis, [bali], [], later))["breaker_state", "telegram", "bali"] == 1
        assert await redis_figures.read_figures(redis, [], [], clock.now()) == []


async def test_the_breakers_of_models(redis_url: str) -> None:
    clock, sonnet, haiku = SettableClock(), ModelAddress("anthropic", "sonnet"), ModelAddress("anthropic", "haiku")
    async with Redis.from_url(redis_url) as redis:
        await RedisModelBreakers(redis, clock).record_failure(sonnet, ModelFailure("Unauthorized", opens_at_once=True))
        assert by_name(await redis_figures.read_figures(redis, [], [sonnet, haiku], clock.now())) == {
            ("model_breaker_state", "anthropic", "sonnet"): 2,
            ("model_breaker_state", "anthropic", "haiku"): 0,
        }
