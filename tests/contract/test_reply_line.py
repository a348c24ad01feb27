"""Replies of Redis are read as the client reads them, however they are cut on their way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hiredis import pack_command
from redis.asyncio import Redis
from redis.exceptions import InvalidResponse, NoScriptError, RedisError, ResponseError

from hermes.stores.redis.reply_line import INCOMPLETE, ReplyLine, new_reader

REPLIES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b":-12\r\n", -12),
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
    reader = new_reader()
    for end in range(1, len(data)):
        reader.feed(data[end - 1 : end])
        assert reader.gets() is INCOMPLETE
    reader.feed(data[-1:] + b":9\r\n")
    assert [reader.gets() for _ in range(3)] == [value, 9, INCOMPLETE]


def test_errors_are_those_of_the_client() -> None:
    reader = new_reader()
    reader.feed(b"-NOSCRIPT no such script\r\n-ERR wrong\r\n")
    assert isinstance(reader.gets(), NoScriptError)
    assert isinstance(reader.gets(), ResponseError)
    reader.feed(b"?what\r\n")
    with pytest.raises(InvalidResponse):
        reader.gets()


async def test_commands_of_one_write_get_their_replies_in_their_order(line: ReplyLine) -> None:
    commands = [("SET", "a", "x" * 300_000), ("GET", "a"), ("INCR", "a"), ("RPUSH", "l", *range(1_000)), ("LRANGE", "l", 0, -1)]
    done, text, error, count, items = await line.ask(b"".join(map(pack_command, commands)), len(commands))
    assert (done, text, count, items) == (b"OK", b"x" * 300_000, 1_000, [str(number).encode() for number in range(1_000)])
    assert isinstance(error, ResponseError)
    assert await line.ask(pack_command(("GET", "none")), 1) == [None]


async def test_a_server_that_closes_the_connection_ends_what_waits(line: ReplyLine, redis_url: str) -> None:
    async with Redis.from_url(redis_url) as operator:
        [number] = await line.ask(pack_command(("CLIENT", "ID")), 1)
        waits = asyncio.create_task(line.ask(pack_command(("BLPOP", "never", 30)), 1))
        await asyncio.sleep(0)
        while b"blpop" not in await operator.execute_command("CLIENT", "LIST", "ID", number):  # noqa: ASYNC110  # the server sets no event
            await asyncio.sleep(0)
        await operator.execute_command("CLIENT", "KILL", "ID", number)
        with pytest.raises(RedisError):
            await waits
    assert line.is_lost
    with pytest.raises(RedisError):
        await line.ask(pack_command(("PING",)), 1)
