"""Commands that are sent in one write get the replies that the client would give them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hiredis import pack_command
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from hermes.stores.redis.reply_line import ReplyLine


def pack(commands: Sequence[tuple[Any, ...]]) -> bytes:
    return b"".join(map(pack_command, commands))


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[ReplyLine]:
    async with Redis.from_url(redis_url) as redis:
        line = await ReplyLine.open(redis)
        yield line
        await line.aclose()


async def test_commands_of_one_write_get_their_replies_in_their_order(line: ReplyLine) -> None:
    commands = [
        ("SET", "a", "x" * 300_000),
        ("GET", "a"),
        ("INCR", "a"),
        ("RPUSH", "l", *range(1_000)),
        ("LRANGE", "l", 0, -1),
        ("EVALSHA", "0" * 40, 0),
    ]
    done, text, error, count, items, missing = await line.ask(pack(commands), len(commands))
    assert (done, text, count, items) == (b"OK", b"x" * 300_000, 1_000, [str(number).encode() for number in range(1_000)])
    assert isinstance(error, ResponseError)
    assert isinstance(missing, NoScriptError)
    assert await line.ask(pack([("GET", "none")]), 1) == [None]


async def test_a_server_that_closes_the_connection_ends_what_waits(line: ReplyLine, redis_url: str) -> None:
    async with Redis.from_url(redis_url) as operator:
        [number] = await line.ask(pack([("CLIENT", "ID")]), 1)
        waits = asyncio.create_task(line.ask(pack([("BLPOP", "never", 30)]), 1))
        await asyncio.sleep(0)
        while b"blpop" not in await operator.execute_command("CLIENT", "LIST", "ID", number):  # noqa: ASYNC110  # the server sets no event
            await asyncio.sleep(0)
        await operator.execute_command("CLIENT", "KILL", "ID", number)
        with pytest.raises(RedisError):
            await waits
    assert line.is_lost
    with pytest.raises(RedisError):
        await line.ask(pack([("PING",)]), 1)
