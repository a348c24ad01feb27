"""Breakers of models, on every adapter: shared by all processes, one probe at a time, and never a reason not to ask without the store."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from hermes.ports.models import ModelAddress, ModelBreakers, ModelCondition, ModelFailure
from hermes.stores.redis.model_breakers import RedisModelBreakers
from hermes.testing.memory import MemoryModelBreakers

SONNET, HAIKU = ModelAddress("anthropic", "sonnet"), ModelAddress("anthropic", "haiku")
REFUSED = ModelFailure("Unreachable", opens_at_once=True)
OVERLOADED = ModelFailure("Overloaded")


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
def process(request: pytest.FixtureRequest, clock: Clock) -> Callable[[], ModelBreakers]:
    """Breakers as one process sees them; each call is another process, on the same store."""
    if request.param == "memory":
        shared = MemoryModelBreakers(clock)
        return lambda: shared
    redis = request.getfixturevalue("redis")
    return lambda: RedisModelBreakers(redis, clock)


async def test_a_refused_connection_opens_the_breaker_of_that_model_for_all_processes(
    process: Callable[[], ModelBreakers],
) -> None:
    here, there = process(), process()
    assert await there.find_unwell([SONNET, HAIKU]) == {}
    assert await here.record_failure(SONNET, REFUSED) == ModelCondition("Unreachable", 30.0)
    assert await there.find_unwell([SONNET, HAIKU]) == {SONNET: ModelCondition("Unreachable", 30.0)}
    assert not await there.claim_probe(SONNET), "it is too early for a probe"


async def test_other_failures_open_it_after_three_in_a_row_within_half_a_minute(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    here, there = process(), process()
    assert await here.record_failure(SONNET, OVERLOADED) is None
    assert await there.find_unwell([SONNET]) == {SONNET: ModelCondition("Overloaded", None)}
    assert await there.record_failure(SONNET, OVERLOADED) is None
    assert not await here.record_success(SONNET), "it was not open"
    for _ in range(2):
        assert await here.record_failure(SONNET, OVERLOADED) is None
    clock.passed_s = 31
    assert await here.record_failure(SONNET, OVERLOADED) is None, "the first two are too old"
    assert await there.record_failure(SONNET, OVERLOADED) is None
    assert await here.record_failure(SONNET, OVERLOADED) == ModelCondition("Overloaded", 30.0)


async def test_one_call_is_the_probe_and_its_answer_closes_the_breaker(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    here, there = process(), process()
    await here.record_failure(SONNET, REFUSED)
    clock.passed_s = 30
    assert await there.find_unwell([SONNET]) == {SONNET: ModelCondition("Unreachable", 0.0)}
    assert [await breakers.claim_probe(SONNET) for breakers in (here, there, here)] == [True, False, False]
    assert await there.find_unwell([SONNET]) == {SONNET: ModelCondition("Unreachable", 60.0)}, "the others wait for the probe"
    assert await here.record_success(SONNET), "it was open"
    assert await there.find_unwell([SONNET]) == {}
    assert await there.claim_probe(SONNET), "it is closed: every call may ask"


async def test_a_probe_that_never_reports_gives_way_to_another_one(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    here, there = process(), process()
    await here.record_failure(SONNET, REFUSED)
    clock.passed_s = 30
    assert await here.claim_probe(SONNET)
    clock.passed_s = 89
    assert not await there.claim_probe(SONNET)
    clock.passed_s = 90
    assert await there.claim_probe(SONNET)


async def test_each_failed_probe_doubles_the_wait_up_to_five_minutes(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    breakers, waits = process(), list[float | None]()
    for _ in range(6):
        opened = await breakers.record_failure(SONNET, REFUSED)
        assert opened is not None
        assert opened.wait_s is not None
        waits.append(opened.wait_s)
        clock.passed_s += opened.wait_s
        assert await breakers.claim_probe(SONNET)
    assert waits == [30, 60, 120, 240, 300, 300]


async def test_the_vendor_says_how_long(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    breakers = process()
    limited = ModelFailure("RateLimited", opens_at_once=True, retry_after_s=7.0)
    assert await breakers.record_failure(SONNET, limited) == ModelCondition("RateLimited", 7.0, is_stated=True)
    clock.passed_s = 6
    assert await breakers.find_unwell([SONNET]) == {SONNET: ModelCondition("RateLimited", 1.0, is_stated=True)}
    clock.passed_s = 7
    assert await breakers.find_unwell([SONNET]) == {SONNET: ModelCondition("RateLimited", 0.0)}
    forever = ModelFailure("RateLimited", opens_at_once=True, retry_after_s=1e9)
    assert await breakers.record_failure(SONNET, forever) == ModelCondition("RateLimited", 3_600.0, is_stated=True)


async def test_a_call_under_way_as_the_breaker_opened_changes_nothing(process: Callable[[], ModelBreakers], clock: Clock) -> None:
    breakers = process()
    await breakers.record_failure(SONNET, REFUSED)
    clock.passed_s = 20
    assert await breakers.record_failure(SONNET, REFUSED) is None
    assert await breakers.find_unwell([SONNET]) == {SONNET: ModelCondition("Unreachable", 10.0)}


async def test_without_redis_every_model_may_be_asked(clock: Clock) -> None:
    async with Redis.from_url("redis://127.0.0.1:1") as away:
        breakers = RedisModelBreakers(away, clock)
        assert await breakers.find_unwell([SONNET]) == {}
        assert await breakers.record_failure(SONNET, REFUSED) is None
        assert await breakers.claim_probe(SONNET)
        assert not await breakers.record_success(SONNET)


async def test_a_value_that_cannot_be_read_counts_as_none(redis: Redis, clock: Clock) -> None:
    await redis.set("hermes:model_breaker:anthropic:sonnet", '{"failed_at": 3}')
    assert await RedisModelBreakers(redis, clock).find_unwell([SONNET]) == {}
