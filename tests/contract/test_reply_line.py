"""Replies of Redis are read as the client reads them, however they are cut on their way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError

from hermes.stores.redis.counters import pack
from hermes.stores.redis.reply_line import IncompleteReply, ReplyLine, read_reply

REPLIES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b":-12\r\n", -12),
    (b"(123456789012345678901234567890\r\n", 123456789012345678901234567890),
    (b"$5\r\na\r\nbc\r\n", b"a\r\nbc"),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", 1.5),
    (b"=6\r\ntxt:ab\r\n", b"ab"),
    (b"*3\r\n:1\r\n*1\r\n$1\r\nx\r\n_\r\n", [1, [b"x"], None]),
    (b"%1\r\n+a\r\n:1\r\n", {b"a": 1}),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
]


@pytest.fixture
async def line(redis_url: str) -> AsyncIterator[ReplyLine]:
    async with Redis.from_url(redis_url) as redis:
        line = await ReplyLine.open(redis)
        yield line
        await line.aclose()


@pytest.mark.parametrize(("data", "value"), REPLIES)
def test_a_reply_is_read_whole_or_not_at_all(data: bytes, value: Any) -> None:
    assert read_reply(b"+x\r\n" + data + b":9\r\n", 4) == (value, 4 + len(data))
    for end in range(len(data)):
        with pytest.raises(IncompleteReply):
            read_reply(data[:end], 0)


def test_errors_are_those_of_the_client() -> None:
    error, _ = read_reply(b"-NOSCRIPT no such script\r\n", 0)
    assert isinstance(error, NoScriptError)
    error, _ = read_reply(b"!9\r\nERR wrong\r\n", 0)
    assert isinstance(error, ResponseError)
    with pytest.raises(InvalidResponse):
        read_reply(b"?what\r\n", 0)


async def test_commands_of_one_write_get_their_replies_in_their_order(line: ReplyLine) -> None:
    commands = [("SET", "a", "x" * 300_000), ("GET", "a"), ("INCR", "a"), ("RPUSH", "l", *range(1_000)), ("LRANGE", "l", 0, -1)]
    done, text, error, count, items = await line.ask(pack(commands), len(commands))
    assert (done, text, count, items) == (b"OK", b"x" * 300_000, 1_000, [str(number).encode() for number in range(1_000)])
    assert isinstance(error, ResponseError)
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
