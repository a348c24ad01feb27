"""One HTTP exchange in either direction: a call that a platform answers, and a webhook that it posts once.

Each platform decides by itself what follows from the response to a webhook."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import aiohttp
from aiohttp import web


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One call as it came, also one that the platform refused."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any
    """The parsed JSON body; None if the body is not JSON."""
    status: int | None = None
    """The HTTP status of the answer; None if there was no answer."""


@dataclass(frozen=True, slots=True)
class FakeResponse:
    """The platform's answer to a call."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class CallAction(Protocol):
    """Does what a call asks for, and returns the answer. `is_answered`: whether the caller will get this answer."""

    async def __call__(self, *, is_answered: bool) -> FakeResponse: ...


@dataclass(frozen=True, slots=True)
class AcceptedCall:
    """A call that the platform accepts."""

    method: str
    to: str | None
    act: CallAction


def as_action(do: Callable[[], Awaitable[FakeResponse]]) -> CallAction:
    """The action of a call that sends no message: it does the same whether the caller gets the answer or not."""

    async def act(*, is_answered: bool) -> FakeResponse:  # noqa: ARG001  # the protocol's signature
        return await do()

    return act


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAttempt:
    """One attempt to deliver a webhook, and the receiver's response."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    status: int | None
    """None: the receiver did not answer."""
    answer: bytes = b""
    retry_after_s: int = 0
    error: str = ""
    at: float = 0.0
    """In the platform's seconds."""

    @property
    def is_accepted(self) -> bool:
        return self.status is not None and 200 <= self.status <= 299


async def post_webhook(
    client: aiohttp.ClientSession, url: str, body: bytes, headers: Mapping[str, str], *, patience_s: float, at: float
) -> WebhookAttempt:
    """Post a webhook. Follows no redirect; waits at most `patience_s` real seconds for the response."""
    sent = {"Content-Type": "application/json", **headers}
    status, answer, retry_after, error = None, b"", 0, ""
    try:
        async with asyncio.timeout(patience_s), client.post(url, data=body, headers=sent, allow_redirects=False) as response:
            status, answer = response.status, await response.read()
            stated = response.headers.get("Retry-After", "")
            retry_after = int(stated) if stated.isdecimal() else 0
    except TimeoutError:
        status, error = None, "no answer in time"
    except (aiohttp.ClientError, OSError, ValueError) as failure:
        status, error = None, f"{type(failure).__name__}: {failure}"
    return WebhookAttempt(url=url, body=body, headers=sent, status=status, answer=answer, retry_after_s=retry_after, error=error, at=at)


async def reset_connection(request: web.Request) -> NoReturn:
    """Reset the connection, and wait until the server cancels this handler for it."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        # Closing without lingering makes it a reset; otherwise it would look like an orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    await wait_forever()


async def wait_forever() -> NoReturn:
    """Wait until the caller disconnects and the server cancels this handler."""
    await asyncio.Event().wait()
    raise AssertionError("no code sets this event")
