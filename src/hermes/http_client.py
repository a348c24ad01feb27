"""The HTTP client of Hermes, on aiohttp: backends, channels and stores send with it.

It sends each request once: no retries, no redirects, no cookies, no proxy from the environment. aiohttp alone sends a GET a second time if
the server closes the connection without an answer; it does so for no POST. The errors of this client contain no addresses, headers or
bodies, because these contain keys; and they say whether the request may have arrived. It knows no vendor and no platform.

Four clients are not this one: `backends/image_fetch.py`, which connects to public addresses only; the SDK of MCP servers; `hermes chat`
with `--url`, which is a program of a user; and the fake platforms."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import aiohttp
from aiohttp.connector import Connection

MAX_BODY_BYTES = 64 * 1024 * 1024
"""The client gives up an answer with more bytes: no model writes that much, but the server of a wrong address may."""
MIN_TIMEOUT_S = 0.001
"""The timeout after a deadline has passed; 0 would mean no limit to aiohttp."""
LINGER_S = 0.02
"""How long a stream may take to end after its last event, so that its connection can be used again."""


class TransportError(Exception):
    """No connection, no answer in time, or a connection that broke. The message says which, and contains no secret."""

    def __init__(self, message: str, *, may_have_arrived: bool = True) -> None:
        """`may_have_arrived` is False if nothing of the request was written to a connection."""
        super().__init__(message)
        self.may_have_arrived = may_have_arrived


class AnswerTooLong(TransportError):
    """The answer has more bytes than the caller takes."""


@dataclass(slots=True)
class RequestProgress:
    """How far a request has come."""

    is_written: bool = False
    """The client may have written something to the connection."""


PROGRESS: ContextVar[RequestProgress] = ContextVar("hermes_request_progress")
"""The progress of the request that this task sends."""


class NotedRequest(aiohttp.ClientRequest):
    """A request that notes when it is about to be written. aiohttp's traces say it too, and take a fifth of the time of a short request."""

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        PROGRESS.get().is_written = True
        return await super().send(conn)


class HttpReply:
    """An answer whose headers have come and whose body is still to be read."""

    def __init__(self, response: aiohttp.ClientResponse, timeout_s: float) -> None:
        self._response, self._timeout_s = response, timeout_s
        self.status: int = response.status
        self.headers: Mapping[str, str] = response.headers
        """Names match in upper and lower case."""

    async def read(self, max_bytes: int | None = None) -> bytes:
        """The whole body. Raises AnswerTooLong after `max_bytes`, by default MAX_BODY_BYTES."""
        limit = MAX_BODY_BYTES if max_bytes is None else max_bytes
        body = bytearray()
        while piece := await self.read_piece():
            body += piece
            if len(body) > limit:
                raise AnswerTooLong("the answer does not end")
        return bytes(body)

    async def read_piece(self) -> bytes:
        """The next piece of the body, as soon as there is one; empty at its end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = describe_error(error, self._timeout_s)
        # Outside the except clause: aiohttp's errors hold the request's headers, and a chained error would show them.
        raise TransportError(reason)

    async def wait_for_end(self) -> None:
        """Wait up to LINGER_S for the end of a body from which nothing more is needed."""
        content = self._response.content
        if not content.at_eof():
            try:
                async with asyncio.timeout(LINGER_S):
                    await content.readany()
            except (aiohttp.ClientError, OSError, TimeoutError):
                return  # the answer is complete; its connection is closed instead of kept


class HttpClient:
    """Connections to any number of hosts; each host has its own, so a slow host takes none from another.

    It opens at the first request, and its creator closes it."""

    def __init__(self, *, connections_per_host: int = 64, connect_timeout_s: float = 5.0, idle_s: float = 15.0) -> None:
        """`idle_s` is how long an unused connection is kept: shorter than servers do. If a server has just closed the connection, it is in
        doubt whether the request arrived."""
        self._per_host, self._connect_timeout_s, self._idle_s = connections_per_host, connect_timeout_s, idle_s
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def send(
        self, method: str, url: str, *, headers: Mapping[str, str], timeout_s: float, body: bytes | None = None
    ) -> AsyncIterator[HttpReply]:
        """Send a request and yield its answer, whatever the status. Raises TransportError. Leaving the block early closes the connection.

        `timeout_s` bounds everything, from the wait for a connection to the last byte of the body; connecting takes at most
        `connect_timeout_s` of it."""
        timeout_s, progress = max(timeout_s, MIN_TIMEOUT_S), RequestProgress()
        PROGRESS.set(progress)
        limits = aiohttp.ClientTimeout(
            total=timeout_s,
            sock_connect=min(self._connect_timeout_s, timeout_s),
            ceil_threshold=math.inf,  # by default aiohttp rounds every limit over 5 s up to a whole second
        )
        try:
            response = await self._open_session().request(method, url, headers=headers, data=body, timeout=limits, allow_redirects=False)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = describe_error(error, timeout_s)
        else:
            try:
                yield HttpReply(response, timeout_s)
            finally:
                if response.content.at_eof():
                    response.release()
                else:
                    response.close()
            return
        raise TransportError(reason, may_have_arrived=progress.is_written)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=self._per_host, keepalive_timeout=self._idle_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "hermes"},
                raise_for_status=False,
                trust_env=False,
                request_class=NotedRequest,
            )
        return self._session

    async def aclose(self) -> None:
        """Close every connection. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def describe_error(error: Exception, timeout_s: float) -> str:
    """Say what happened to a connection, in a text without address, header or body."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            what = "no connection in time"
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
            what = "the address or a header is not valid"
        case _:
            what = f"the connection broke ({type(error).__name__})"
    return what
