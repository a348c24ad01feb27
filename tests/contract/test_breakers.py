"""Breakers, on every adapter: shared by all processes, one probe at a time, and never a reason not to send."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from hermes.ports.outbox import Admission, BreakerChange, Breakers, BreakerTransition, ChannelName
from hermes.stores.redis.breakers import RedisBreakers
from hermes.testing.memory import MemoryBreakers
from hermes.turn import Platform

BOT = ChannelName(Platform.TELEGRAM, "bali")
NUMBER = ChannelName(Platform.WHATSAPP, "bali")
GO = Admission()


class Clock:
    def __init__(self) -> None:
        self.passed_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 15, 12, tzinfo=UTC) + timedelta(seconds=self.passed_s)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(params=["memory", "redis"])
def process(request: pytest.FixtureRequest, clock: Clock) -> Callable[[], Breakers]:
    """Breakers as one process sees them; each call is another process, on the same store."""
    if request.param == "memory":
        shared = MemoryBreakers(clock)
        return lambda: shared
    redis = request.getfixturevalue("redis")
    return lambda: RedisBreakers(redis, clock)


async def open_it(breakers: Breakers, line: ChannelName = BOT) -> BreakerChange | None:
    for _ in range(9):
        assert await breakers.record_failure(line, GO) is None
    return await breakers.record_failure(line, GO)


async def test_failures_of_all_processes_count_together_and_all_of_them_wait(process: Callable[[], Breakers], clock: Clock) -> None:
    here, there = process(), process()
    for breakers in (here, there) * 4:
        assert await breakers.record_failure(BOT, GO) is None
    await here.record_failure(BOT, GO)
    assert await there.record_failure(BOT, GO) == BreakerChange(BreakerTransition.OPENED, failures=10, wait_s=120.0)
    clock.passed_s = 20.0
    assert [await breakers.admit(BOT) for breakers in (here, there)] == [Admission(wait_s=100.0)] * 2
    assert await here.admit(NUMBER) == GO, "another line"


async def test_a_success_anywhere_begins_the_count_again(process: Callable[[], Breakers]) -> None:
    here, there = process(), process()
    for _ in range(9):
        await here.record_failure(BOT, GO)
    assert await there.record_success(BOT) is None
    assert await open_it(here) == BreakerChange(BreakerTransition.OPENED, failures=10, wait_s=120.0)


async def test_of_many_who_ask_at_once_one_is_the_probe(process: Callable[[], Breakers], clock: Clock) -> None:
    await open_it(process())
    clock.passed_s = 120.0
    asked = await asyncio.gather(*(process().admit(BOT) for _ in range(20)))
    assert sorted(asked, key=lambda admission: admission.is_probe) == [Admission(wait_s=30.0)] * 19 + [Admission(is_probe=True)]


async def test_the_probe_decides(process: Callable[[], Breakers], clock: Clock) -> None:
    here, there = process(), process()
    await open_it(here)
    clock.passed_s = 120.0
    probe = await here.admit(BOT)
    assert await there.record_failure(BOT, GO) is None, "it was under way before"
    assert await here.record_failure(BOT, probe) == BreakerChange(BreakerTransition.STAYED_OPEN, failures=10, wait_s=120.0)
    clock.passed_s = 240.0
    probe = await there.admit(BOT)
    await there.release_probe(BOT, probe)
    probe = await here.admit(BOT)
    assert probe.is_probe
    assert await here.record_success(BOT) == BreakerChange(BreakerTransition.CLOSED)
    assert await there.admit(BOT) == GO


async def test_a_line_is_stopped_once(process: Callable[[], Breakers], clock: Clock) -> None:
    here, there = process(), process()
    assert await here.stop(BOT) == BreakerChange(BreakerTransition.OPENED, failures=0, wait_s=300.0)
    assert await there.stop(BOT) == BreakerChange(BreakerTransition.STAYED_OPEN, failures=0, wait_s=300.0)
    assert await there.admit(BOT) == Admission(wait_s=300.0)
    clock.passed_s = 300.0
    assert (await there.admit(BOT)).is_probe


async def test_many_failures_at_once_open_it_once(process: Callable[[], Breakers]) -> None:
    breakers = [process() for _ in range(4)]
    changes = await asyncio.gather(*(breakers[number % 4].record_failure(BOT, GO) for number in range(25)))
    assert [changed for changed in changes if changed] == [BreakerChange(BreakerTransition.OPENED, failures=10, wait_s=120.0)]


# --- Redis alone


async def test_a_healthy_line_leaves_nothing_in_redis_and_a_failing_one_for_a_while(redis: Redis, clock: Clock) -> None:
    breakers = RedisBreakers(redis, clock)
    await breakers.admit(BOT)
    await breakers.record_success(BOT)
    assert await redis.keys("*") == []
    await breakers.record_failure(BOT, GO)
    [place] = await redis.keys("*")
    assert place == b"hermes:breaker:telegram:bali"
    assert 0 < await redis.ttl(place) <= 300 + 300 + 30


async def test_what_somebody_else_wrote_there_is_a_closed_breaker(redis: Redis, clock: Clock) -> None:
    breakers = RedisBreakers(redis, clock)
    for junk in ("junk", "[]", '{"failed_at": 1}'):
        await redis.set("hermes:breaker:telegram:bali", junk)
        assert await breakers.admit(BOT) == GO
        assert await breakers.record_failure(BOT, GO) is None
        await breakers.record_success(BOT)


async def test_without_redis_everything_is_sent_nothing_raises_and_it_is_said_once(clock: Clock) -> None:
    async with Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.2) as nowhere:
        breakers = RedisBreakers(nowhere, clock)
        with capture_logs() as lines:
            for _ in range(12):
                assert await breakers.record_failure(BOT, await breakers.admit(BOT)) is None
            assert await breakers.admit(BOT) == GO
            assert await breakers.record_success(BOT) is None
            assert await breakers.stop(BOT) is None
            await breakers.release_probe(BOT, Admission(is_probe=True))
    assert [line["event"] for line in lines] == ["breakers_not_seen"]


async def test_a_redis_that_lost_everything_has_closed_breakers(redis: Redis, clock: Clock) -> None:
    breakers = RedisBreakers(redis, clock)
    await open_it(breakers)
    await redis.flushall()
    assert await breakers.admit(BOT) == GO
