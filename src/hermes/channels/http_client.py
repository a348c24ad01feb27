"""The one HTTP client of all channels, on aiohttp. Its errors separate requests that were proven not sent from those that may have arrived.

No retries, no redirects, no cookies, no proxy from the environment. Its errors contain no URL, header or body: those may hold tokens."""

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
from hermes.ports.tools import ImageTooLarge

MAX_RESPONSE_BYTES = 1024 * 1024
"""The client gives up a longer response: no platform says that much about one message. A file has its own limit."""
MIN_TIMEOUT_S = 0.001
"""aiohttp takes 0 for no limit at all."""


@dataclass(slots=True)
class RequestProgress:
    """How far a request has come."""

    is_written: bool = False
    """The client may have written something to the connection."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a response is read."""

    max_bytes: int
    is_file: bool = False
    """The body is a file: the client asks the platform to send it uncompressed."""


class ResponseTooLong(aiohttp.ClientPayloadError):
    """The response is longer than `max_bytes`."""


class CompressedFile(aiohttp.ClientPayloadError):
    """The platform compressed a file although the client asked for it uncompressed. A few compressed bytes may expand without end."""


class PlatformHttpClient:
    """The ports PlatformClient and PlatformFiles. Made by `open_platform_client`."""

    def __init__(self, session: aiohttp.ClientSession, connect_timeout_s: float) -> None:
        self._session, self._connect_timeout_s = session, connect_timeout_s

    async def send(self, call: PlatformRequest, *, timeout_s: float) -> PlatformResponse:
        try:
            return await self._send(call, timeout_s, ReadOptions(MAX_RESPONSE_BYTES))
        except ResponseTooLong:
            raise MaybeSent("the response is too long") from None

    async def fetch(self, call: PlatformRequest, *, timeout_s: float, max_bytes: int) -> PlatformResponse:
        """The port PlatformFiles."""
        try:
            return await self._send(call, timeout_s, ReadOptions(max_bytes, is_file=True))
        except ResponseTooLong:
            raise ImageTooLarge(max_bytes) from None

    async def _send(self, call: PlatformRequest, timeout_s: float, options: ReadOptions) -> PlatformResponse:
        progress, timeout_s = RequestProgress(), max(timeout_s, MIN_TIMEOUT_S)
        try:
            return await self._request(call, progress, timeout_s, options)
        except ResponseTooLong:
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = describe_error(error, timeout_s)
        # Outside the except clause: aiohttp's errors hold the URL and the headers, and a chained error would show them.
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
    """Open the client until the block ends. Each host has its own connections, so a slow platform takes none from another.

    `idle_s` is how long the client keeps an unused connection. It is shorter than the platforms' own limit: if the platform has just closed
    the connection, it is in doubt whether the request arrived."""
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
    """Set `is_written` of a request's progress just before its first bytes are written."""

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
    """Say what happened, without any URL, header or body."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            what = "no connection in time"
        case CompressedFile():
            what = "the platform sent the file compressed"
        case TimeoutError():
            what = f"no whole answer within {timeout_s:g} s"
        case aiohttp.ClientConnectorDNSError():
            what = "the host's name is not known"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            what = "the host's certificate is not accepted"
        case aiohttp.ClientConnectorError():
            # By its number: asyncio writes the address into the message.
            number = error.os_error.errno
            what = f"cannot connect ({os.strerror(number) if number and number > 0 else type(error.os_error).__name__})"
        case ValueError():
            what = "the URL or a header is not valid"
        case _:
            what = f"the connection broke ({type(error).__name__})"
    return what
