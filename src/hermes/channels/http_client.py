"""The one HTTP client of all channels, on aiohttp. It tells what is proven not sent from what may have arrived.

No retries, no redirects, no cookies, no proxy from the environment. What it raises and logs says nothing of addresses, headers or bodies:
tokens are in them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import aiohttp

from hermes.ports.channels import MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.images import ImageTooLarge

MAX_RESPONSE_BYTES = 1024 * 1024
"""Bytes after which an answer is given up: no platform says that much about one message. A file has a limit of its own."""
MIN_TIMEOUT_S = 0.001
"""To aiohttp, 0 would be no limit at all."""


@dataclass(slots=True)
class RequestProgress:
    """How far a call has come."""

    is_written: bool = False
    """Something may have been written to the connection."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What of an answer is read."""

    max_bytes: int
    is_file: bool = False
    """As it is kept there, packed by nobody."""


class ResponseTooLong(aiohttp.ClientPayloadError):
    """The answer is longer than it may be."""


class CompressedFile(aiohttp.ClientPayloadError):
    """The bytes came packed, although they were asked for as they are: what a few of them unpack to has no end."""


class PlatformHttpClient:
    """The ports Post and Files. Made by `open_post`."""

    def __init__(self, session: aiohttp.ClientSession, connect_timeout_s: float) -> None:
        self._session, self._connect_timeout_s = session, connect_timeout_s

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        try:
            return await self._try(call, timeout_s, ReadOptions(MAX_RESPONSE_BYTES))
        except ResponseTooLong:
            raise MaybeSent("the answer does not end") from None

    async def fetch(self, call: PlatformRequest, *, timeout_s: float, max_bytes: int) -> PlatformResponse:
        """The port Files."""
        try:
            return await self._try(call, timeout_s, ReadOptions(max_bytes, is_file=True))
        except ResponseTooLong:
            raise ImageTooLarge(max_bytes) from None

    async def _try(self, call: PlatformRequest, timeout_s: float, options: ReadOptions) -> PlatformResponse:
        progress, timeout_s = RequestProgress(), max(timeout_s, MIN_TIMEOUT_S)
        try:
            return await self._request(call, progress, timeout_s, options)
        except ResponseTooLong:
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = describe_error(error, timeout_s)
        # Outside the except clause: aiohttp's errors hold the address and the headers, and a chained error would show them.
        raise MaybeSent(reason) if progress.is_written else NotSent(reason)

    async def _request(self, call: PlatformRequest, progress: RequestProgress, timeout_s: float, options: ReadOptions) -> PlatformResponse:
        limits = aiohttp.ClientTimeout(
            total=timeout_s,
            sock_connect=min(self._connect_timeout_s, timeout_s),
            ceil_threshold=math.inf,  # by default aiohttp rounds every limit over 5 s up to a whole second
        )
        headers, body = dict(call.headers), None
        if options.is_file:
            headers["Accept-Encoding"] = "identity"
        if call.json is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(call.json, ensure_ascii=False, separators=(",", ":")).encode()
        async with self._session.request(
            call.method, call.url, headers=headers, data=body, timeout=limits, allow_redirects=False, trace_request_ctx=progress
        ) as response:
            content = await read_body(response, options)
            return PlatformResponse(
                status=response.status, headers={name.lower(): value for name, value in response.headers.items()}, body=content
            )


@asynccontextmanager
async def open_platform_client(
    *, connections_per_host: int = 32, connect_timeout_s: float = 5.0, idle_s: float = 15.0
) -> AsyncIterator[PlatformHttpClient]:
    """The client, as long as the block lasts. One slow platform takes no connection from another: each host has its own.

    `idle_s` is how long an unused connection is kept; shorter than platforms do, because a call that meets one just closed is in doubt."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=connections_per_host, keepalive_timeout=idle_s),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "hermes"},
        raise_for_status=False,
        trust_env=False,
        trace_configs=[trace_writes()],
    ) as session:
        yield PlatformHttpClient(session, connect_timeout_s)


def trace_writes() -> aiohttp.TraceConfig:
    """Note on a call's trip that its first bytes are about to be written."""

    async def note(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
        context.trace_request_ctx.is_written = True

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(note)
    return config


async def read_body(response: aiohttp.ClientResponse, options: ReadOptions) -> bytes:
    if options.is_file and response.headers.get("Content-Encoding", "identity").casefold() != "identity":
        raise CompressedFile
    if options.is_file and (response.content_length or 0) > options.max_bytes:
        raise ResponseTooLong
    body = bytearray()
    while piece := await response.content.readany():
        body += piece
        if len(body) > options.max_bytes:
            raise ResponseTooLong
    return bytes(body)


def describe_error(error: Exception, timeout_s: float) -> str:
    """Say what happened, in words that hold no address, header or body."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            what = "no connection in time"
        case CompressedFile():
            what = "the bytes came packed"
        case TimeoutError():
            what = f"no whole answer within {timeout_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            what = "the host's name is not known"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            what = "the host's certificate is not accepted"
        case aiohttp.ClientConnectorError():
            # By number: asyncio writes the address into the words.
            number = error.os_error.errno
            what = f"cannot connect ({os.strerror(number) if number and number > 0 else type(error.os_error).__name__})"
        case ValueError():
            what = "the address or a header is not valid"
        case _:
            what = f"the connection broke ({type(error).__name__})"
    return what
