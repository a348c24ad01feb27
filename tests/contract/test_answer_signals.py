"""The port AnswerSignals: signals between processes, which fail open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID, uuid4

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from structlog.testing import capture_logs

from hermes.stores.redis.answer_signals import PUBSUB_CHANNEL, RedisAnswerSignals

NOWHERE = "unix:///tmp/no-such-redis.sock"


@asynccontextmanager
async def process(url: str, **pace: float) -> AsyncIterator[RedisAnswerSignals]:
    """Replies as one process has them, with a client of its own: short timeouts, no hidden second try."""
    client = Redis.from_url(url, socket_timeout=0.25, socket_connect_timeout=0.25, retry=Retry(NoBackoff(), 0))
    replies = RedisAnswerSignals(client, **pace)
    try:
        yield replies
    finally:
        await replies.aclose()
        await client.aclose()


@pytest.fixture
async def here(redis_url: str) -> AsyncIterator[RedisAnswerSignals]:
    async with process(redis_url) as replies:
        yield replies


@pytest.fixture
async def there(redis_url: str) -> AsyncIterator[RedisAnswerSignals]:
    async with process(redis_url) as replies:
        yield replies


async def subscribers(url: str) -> int:
    async with Redis.from_url(url) as client:
        [(_, count)] = await client.pubsub_numsub(PUBSUB_CHANNEL)
        return int(count)


async def until_subscribed(url: str, count: int = 1) -> None:
    async with asyncio.timeout(10):
        while await subscribers(url) != count:  # noqa: ASYNC110  # only Redis knows, and it rings no bell for it
            await asyncio.sleep(0.01)


async def test_an_announcement_is_heard_by_another_process(redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals) -> None:
    turn_id = uuid4()
    async with here.listen(turn_id) as bell:
        await until_subscribed(redis_url)
        await bell.wait(0.05)  # the ring of the fresh subscription, which says: look for yourself
        await there.announce(turn_id)
        assert await bell.wait(5.0) is True
        assert await bell.wait(0.05) is False


async def test_a_ring_that_came_before_the_wait_is_not_lost(redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals) -> None:
    turn_id, other = uuid4(), uuid4()
    async with here.listen(turn_id) as bell, here.listen(other) as later:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        await there.announce(turn_id)
        await there.announce(other)
        await later.wait(5.0)
        assert await bell.wait(0.0) is True


async def test_an_answer_that_came_before_its_request_listened_rings_at_once(
    redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals
) -> None:
    turn_id, later = uuid4(), uuid4()
    async with here.listen(later) as bell:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        await there.announce(turn_id)
        await there.announce(later)
        assert await bell.wait(5.0) is True
    async with here.listen(turn_id) as bell:
        assert await bell.wait(0.0) is True


async def test_many_turns_wait_at_once_over_one_connection_and_each_hears_its_own(
    redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals
) -> None:
    turns = [uuid4() for _ in range(200)]
    answered = set(turns[::2])
    heard: set[UUID] = set()

    async def wait(turn_id: UUID) -> None:
        async with here.listen(turn_id) as bell:
            started.release()
            await until_all_wait.wait()
            await bell.wait(0.0)
            ready.release()
            if await bell.wait(2.0):
                heard.add(turn_id)

    started, ready, until_all_wait = asyncio.Semaphore(0), asyncio.Semaphore(0), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for turn_id in turns:
            group.create_task(wait(turn_id))
        for _ in turns:
            await started.acquire()
        await until_subscribed(redis_url, 1)
        await asyncio.sleep(0.05)
        until_all_wait.set()
        for _ in turns:
            await ready.acquire()
        for turn_id in answered:
            await there.announce(turn_id)
    assert heard == answered


async def test_two_who_wait_for_one_turn_both_hear_it(redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals) -> None:
    turn_id = uuid4()
    async with here.listen(turn_id) as one, here.listen(turn_id) as two:
        await until_subscribed(redis_url)
        await asyncio.gather(one.wait(0.05), two.wait(0.05))
        await there.announce(turn_id)
        assert await asyncio.gather(one.wait(5.0), two.wait(5.0)) == [True, True]


async def test_nothing_is_kept_of_who_stopped_waiting(redis_url: str, here: RedisAnswerSignals) -> None:
    async with here.listen(uuid4()):
        pass
    assert here._signals == {}
    await until_subscribed(redis_url)
    await here.aclose()
    await until_subscribed(redis_url, 0)


async def test_without_redis_a_bell_just_never_rings_and_nobody_is_told_off() -> None:
    turn_id = uuid4()
    with capture_logs() as logs:
        async with process(NOWHERE) as replies, replies.listen(turn_id) as bell:
            await replies.announce(turn_id)
            assert await bell.wait(0.3) is False
    assert sorted(logs, key=lambda line: line["event"]) == [
        {"event": "replies_not_heard", "log_level": "warning", "error": "ConnectionError"},
        {"event": "reply_not_announced", "log_level": "info", "turn_id": str(turn_id), "error": "ConnectionError"},
    ]


async def test_after_a_cut_connection_everybody_looks_once_and_hears_again(
    redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals
) -> None:
    turn_id = uuid4()
    async with here.listen(turn_id) as bell, Redis.from_url(redis_url) as nemesis:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        await nemesis.client_kill_filter(_type="pubsub")
        assert await bell.wait(5.0) is True, "whoever waits may have missed something"
        assert await bell.wait(0.05) is False
        await there.announce(turn_id)
        assert await bell.wait(5.0) is True


async def test_a_connection_that_does_not_answer_is_replaced(redis_url: str, there: RedisAnswerSignals) -> None:
    turn_id = uuid4()
    async with process(redis_url, idle_s=0.1) as here, here.listen(turn_id) as bell, Redis.from_url(redis_url) as nemesis:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        await nemesis.client_pause(1000, all=True)
        await asyncio.sleep(0.6)  # longer than two silences; the server answers nobody meanwhile
        await nemesis.client_unpause()
        assert await bell.wait(5.0) is True
        await until_subscribed(redis_url)
        await there.announce(turn_id)
        assert await bell.wait(5.0) is True


async def test_a_quiet_connection_is_kept(redis_url: str) -> None:
    async with process(redis_url, idle_s=0.05) as here, here.listen(uuid4()) as bell:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        assert await bell.wait(0.5) is False, "no new subscription, so no ring"


async def test_what_is_no_announcement_is_ignored(redis_url: str, here: RedisAnswerSignals, there: RedisAnswerSignals) -> None:
    turn_id = uuid4()
    async with here.listen(turn_id) as bell, Redis.from_url(redis_url) as stranger:
        await until_subscribed(redis_url)
        await bell.wait(0.05)
        await stranger.publish(PUBSUB_CHANNEL, b"\xff not a turn")
        await there.announce(turn_id)
        assert await bell.wait(5.0) is True


async def test_a_process_knows_whether_it_hears(redis_url: str, here: RedisAnswerSignals) -> None:
    assert not here.is_heard
    async with here.listen(uuid4()) as bell, Redis.from_url(redis_url) as nemesis:
        await bell.wait(5.0)
        assert here.is_heard
        async with nemesis.pipeline() as cut:  # at once, so that it cannot subscribe again in between
            cut.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            cut.execute_command("CLIENT", "PAUSE", "500", "ALL")
            await cut.execute()
        async with asyncio.timeout(10):
            while here.is_heard:  # noqa: ASYNC110  # a lost connection rings no bell
                await asyncio.sleep(0.01)
            while not here.is_heard:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
