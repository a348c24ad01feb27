"""Scripts that travel to Redis together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError, ResponseError

from hermes.stores.redis.counters import MAX_SCRIPTS, Joined, ScriptBatch, ScriptCall

ADD = "return redis.call('INCRBY', KEYS[1], ARGV[1])"
DOUBLE = "return redis.call('INCRBY', KEYS[1], redis.call('GET', KEYS[1]))"


class House:
    """A batch, a script, and how many trips were made."""

    def __init__(self, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        self.redis, self.batch, self.trips = redis, ScriptBatch(redis), 0
        self.add: AsyncScript = redis.register_script(ADD)
        inner = self.batch._round_trip

        async def counted(taken: Sequence[ScriptCall]) -> list[Any]:
            self.trips += 1
            return await inner(taken)

        monkeypatch.setattr(self.batch, "_round_trip", counted)

    async def run(self, key: str, amount: object = 1) -> object:
        return await self.batch.run(self.add, [key], [amount])


@pytest.fixture
async def house(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    async with Redis.from_url(redis_url) as redis:
        await redis.script_flush()
        yield House(redis, monkeypatch)


async def test_what_is_asked_in_one_moment_travels_together_in_its_order(house: House) -> None:
    assert await asyncio.gather(*(house.run("n") for _ in range(20))) == list(range(1, 21))
    assert house.trips == 1


async def test_a_server_that_forgot_its_scripts_is_taught_again(house: House) -> None:
    assert await house.run("n") == 1
    await house.redis.script_flush()
    assert await asyncio.gather(*(house.run("n") for _ in range(3))) == [2, 3, 4]


async def test_a_script_that_the_server_does_not_have_yet_keeps_its_place(house: House) -> None:
    double = house.redis.register_script(DOUBLE)
    assert await house.run("n", 2) == 2
    assert await asyncio.gather(house.batch.run(double, ["n"], []), house.run("n")) == [4, 5]
    assert house.trips == 2


async def test_scripts_that_the_server_has_lost_run_again_in_their_order(house: House) -> None:
    double = house.redis.register_script(DOUBLE)
    assert await asyncio.gather(house.run("n", 2), house.batch.run(double, ["n"], [])) == [2, 4]
    await house.redis.script_flush()
    assert await asyncio.gather(house.batch.run(double, ["n"], []), house.run("n"), house.batch.run(double, ["n"], [])) == [8, 9, 18]
    assert house.trips == 3


async def test_one_script_that_fails_fails_alone(house: House) -> None:
    replies = await asyncio.gather(house.run("n"), house.run("n", "no number"), house.run("n"), return_exceptions=True)
    assert [replies[0], replies[2]] == [1, 2]
    assert isinstance(replies[1], ResponseError)


async def test_under_load_trips_take_along_what_waits(house: House) -> None:
    await house.run("n")
    house.trips = 0

    async def one_after_another() -> None:
        for _ in range(20):
            await house.run("n")

    await asyncio.gather(*(one_after_another() for _ in range(50)))
    assert await house.run("n", 0) == 1_001
    assert house.trips < 500


async def test_no_trip_is_larger_than_it_may_be(house: House) -> None:
    assert sorted(await asyncio.gather(*(house.run("n") for _ in range(3 * MAX_SCRIPTS)))) == list(range(1, 3 * MAX_SCRIPTS + 1))  # type: ignore[type-var]
    assert house.trips >= 3


async def test_whoever_leaves_while_waiting_harms_nobody(house: House) -> None:
    tasks = [asyncio.create_task(house.run("n")) for _ in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    replies = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(replies[3], asyncio.CancelledError)
    assert len([reply for reply in replies if isinstance(reply, int)]) == 9
    assert await house.run("n", 0) in (9, 10)


async def test_a_connection_that_fails_is_told_to_all_and_the_next_trip_is_a_new_one(house: House, redis_url: str) -> None:
    batch = ScriptBatch(Redis.from_url("redis://127.0.0.1:1", socket_connect_timeout=0.2))
    replies = await asyncio.gather(*(batch.run(house.add, ["n"], [1]) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(reply, RedisError | OSError) for reply in replies)
    assert await house.run("n") == 1


async def test_a_trip_that_was_given_up_gives_nobody_the_answer_of_another(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as operator, Redis.from_url(redis_url, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as redis:
        add, batch = redis.register_script(ADD), ScriptBatch(redis)
        assert await batch.run(add, ["n"], [1]) == 1
        await operator.client_pause(700)  # everybody is answered late
        replies = await asyncio.gather(*(batch.run(add, ["n"], [1]) for _ in range(2)), return_exceptions=True)
        assert all(isinstance(reply, RedisError | OSError) for reply in replies)
        await asyncio.sleep(0.8)
        assert await batch.run(add, ["k"], [7]) == 7, "and not one of the late ones"


async def test_a_batch_that_closes_ends_its_trip_also_when_its_caller_is_gone(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as operator, Redis.from_url(redis_url) as redis:
        add, batch = redis.register_script(ADD), ScriptBatch(redis)
        await operator.client_pause(500)
        gone = asyncio.create_task(batch.run(add, ["n"], [1]))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(batch.run(add, ["n"], [1]))
        await asyncio.sleep(0)
        gone.cancel()
        await batch.aclose()
        ends = await asyncio.gather(gone, waits, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError, ConnectionError]
        assert [task.get_name() for task in asyncio.all_tasks() if "_run_trip" in str(task.get_coro())] == []


async def test_other_commands_take_the_same_trip(house: House) -> None:
    await house.redis.set("b", "x")
    before = house.trips
    assert await asyncio.gather(house.run("n"), house.batch.read("MGET", "b", "missing")) == [1, [b"x", None]]
    assert house.trips == before + 1


async def test_calls_that_may_be_joined_go_as_one_and_share_the_reply(house: House) -> None:
    many = house.redis.register_script(
        "for _, amount in ipairs(ARGV) do redis.call('INCRBY', KEYS[1], amount) end return redis.call('GET', KEYS[1])"
    )
    each = house.redis.register_script("for _, key in ipairs(KEYS) do redis.call('INCR', key) end return #KEYS")
    run = house.batch.run
    replies = await asyncio.gather(
        *(run(many, ["n"], [amount], joined=Joined.KEYS) for amount in (1, 2, 3)),
        run(many, ["m"], [5], joined=Joined.KEYS),
        *(run(each, [key], (), joined=Joined.SCRIPT) for key in ("x", "y", "x")),
    )
    assert replies == [b"6", b"6", b"6", b"5", 3, 3, 3]
    assert house.trips == 1
    assert await house.redis.mget("n", "m", "x", "y") == [b"6", b"5", b"2", b"1"]


async def test_equal_reads_are_sent_once_in_a_trip_and_again_in_the_next(house: House) -> None:
    await house.redis.set("n", 1)
    seen: list[int] = []
    inner = house.batch._round_trip

    async def counted(taken: Sequence[ScriptCall]) -> list[Any]:
        seen.append(len(taken))
        return await inner(taken)

    house.batch._round_trip = counted  # type: ignore[method-assign]
    assert await asyncio.gather(*(house.batch.read("GET", "n") for _ in range(3))) == [b"1"] * 3
    await house.redis.set("n", 2)
    assert await house.batch.read("GET", "n") == b"2"
    assert seen == [1, 1]


async def test_a_posted_script_runs_and_its_failure_is_no_error(house: House) -> None:
    house.batch.post(house.add, ["n"])  # without its argument: the script fails
    fine = house.redis.register_script("return redis.call('INCR', KEYS[1])")
    house.batch.post(fine, ["n"])
    assert await house.batch.read("GET", "n") == b"1"
