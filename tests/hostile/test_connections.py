"""Clients that never finish: half a head, half a body, a response that they do not read."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from hermes.web import raise_file_limit
from tests.flows.service import Service, running
from tests.hostile.raw import RawConnection, connect, exchange, status_of

HALF_HEAD = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Ty"
HALF_BODY = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
CLIENTS = 1_100


@pytest.fixture
async def service(database_url: str, redis_url: str) -> AsyncIterator[Service]:
    raise_file_limit(2 * CLIENTS)
    limits = {"max_connections": 300, "head_timeout_s": 0.6, "body_timeout_s": 0.6}
    async with running(database_url, redis_url, has_worker=False, **limits) as service:
        yield service


@pytest.mark.parametrize("half", [HALF_HEAD, HALF_BODY, b"", b"\r\n"], ids=["head", "body", "nothing", "empty line"])
async def test_over_a_thousand_half_sent_requests_delay_nobody_and_are_ended(service: Service, half: bytes) -> None:
    clients = await asyncio.gather(*(half_sent(service, half) for _ in range(CLIENTS)))
    try:
        began = time.monotonic()
        assert (await service.get("/health")).status == 200
        assert time.monotonic() - began < 2.0, "although all places are taken"
        closed = await asyncio.gather(*(each.is_closed(10.0) for each in clients))
        assert all(closed)
    finally:
        for each in clients:
            each.close()


async def half_sent(service: Service, half: bytes) -> RawConnection:
    connection = await connect(service.url)
    with suppress(ConnectionError):  # its place went to another one already
        await connection.send(half)
    return connection


async def test_a_slow_drip_does_not_move_the_end(service: Service) -> None:
    connection = await connect(service.url)
    began = time.monotonic()
    await connection.send(b"GET /health HTTP/1.1\r\n")
    while time.monotonic() - began < 5.0:
        try:
            await connection.send(b"X-A: b\r\n")
        except ConnectionError:
            break
        if connection.reader.at_eof():
            break
        await asyncio.sleep(0.1)
    assert time.monotonic() - began < 3.0
    assert status_of(await connection.read_all()) in {0, 408}
    connection.close()


async def test_empty_lines_do_not_keep_a_connection_that_has_been_answered(service: Service) -> None:
    connection = await connect(service.url)
    await connection.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert (await connection.reader.readline()).startswith(b"HTTP/1.1 200")
    began = time.monotonic()
    while not connection.reader.at_eof() and time.monotonic() - began < 5.0:
        try:
            await connection.send(b"\r\n")
        except ConnectionError:
            break
        await asyncio.sleep(0.1)
        connection.reader._buffer.clear()  # what came so far does not matter
    assert time.monotonic() - began < 3.0
    connection.close()


async def test_a_body_that_comes_slowly_but_steadily_is_taken(service: Service) -> None:
    body = b'{"text": "' + b"x" * 60_000 + b'"}'
    key = (await service.key())["Authorization"].encode()
    connection = await connect(service.url)
    head = (
        b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nPrefer: respond-async\r\nConnection: close\r\n"
    )
    await connection.send(head + b"Authorization: " + key + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n")
    for start in range(0, len(body), 6_000):  # 30 kB/s, for 2 s: longer than the limit without its extension
        await connection.send(body[start : start + 6_000])
        await asyncio.sleep(0.2)
    assert status_of(await connection.read_all()) == 202
    connection.close()


async def test_a_head_without_an_end_is_refused(service: Service) -> None:
    for field in (b"X-A: " + b"b" * 70_000, b"".join(b"X-%d: b\r\n" % number for number in range(8_000))):
        status, _ = await exchange(service.url, b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + field)
        assert status == 431


async def test_fields_behind_a_body_are_no_head(service: Service) -> None:
    key = (await service.key())["Authorization"].encode()
    head = b"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    body = b"Connection: close\r\n\r\n2\r\n{}\r\n0\r\nAuthorization: " + key + b"\r\n\r\n"
    status, _ = await exchange(service.url, head + body)
    assert status == 401
