"""Limits: how often one source may come (an API key, a browser's address, an address that guesses keys), and how large a body may be.

Each process counts for itself."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request
from starlette.exceptions import HTTPException

from hermes.ops.metrics import AsgiApp, AsgiMessage, AsgiReceive, AsgiScope, AsgiSend
from hermes.web.errors import ApiError

MAX_SOURCES = 10_000
"""Sources that a limit remembers. Beyond that it drops those that have rested fully."""

CLEANUP_INTERVAL_S = 1.0
"""The shortest time between two such clean-ups, because each goes through all sources."""
NETWORK_BITS = 64
"""The network part of an IPv6 address. One household or machine has the whole network, and can come from any address in it."""


class RateLimit:
    """Admits `per_minute` requests a minute from each source: after a rest a whole minute's requests together, then one by one."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._burst_s, self._clock = 60 / per_minute, 60.0, clock
        self._rested_at: dict[str, float] = {}
        """When each source will have rested fully, so that it may send a whole minute's requests together."""
        self._cleaned_at = -math.inf

    def wait_s(self, source: str) -> float:
        """Return how long a source has to wait. At 0 it may come now, and this request is counted. An address is taken for its source."""
        wait_s, rested_at = self._look(source)
        if wait_s:
            return wait_s
        now, source = self._clock(), source_of(source)
        self._rested_at[source] = rested_at
        if len(self._rested_at) > MAX_SOURCES and now - self._cleaned_at >= CLEANUP_INTERVAL_S:
            self._cleaned_at = now
            self._rested_at = {name: at for name, at in self._rested_at.items() if at > now}
        return 0.0

    def spent_s(self, source: str) -> float:
        """Return how long a source has to wait, without counting a request."""
        return self._look(source)[0]

    def _look(self, source: str) -> tuple[float, float]:
        """How long a source has to wait, and when it will have rested after one more request."""
        now = self._clock()
        rested_at = max(self._rested_at.get(source_of(source), now), now) + self._every_s
        wait_s = rested_at - now - self._burst_s
        return (wait_s if wait_s > 1e-9 else 0.0), rested_at

    def admit(self, source: str) -> None:
        """Count a request of a source; raise ApiError with 429 if the source came too often."""
        if wait_s := self.wait_s(source):
            raise too_many_requests(wait_s)


def too_many_requests(wait_s: float) -> ApiError:
    seconds = math.ceil(wait_s)
    message = f"Too many requests; try again in {seconds} s."
    return ApiError(429, "rate_limited", message, headers={"Retry-After": str(seconds)}, kind="rate_limited")


def address_of(request: Request) -> str:
    """Return the address of a request's sender. Behind a proxy that is the proxy, unless the server trusts it and it names its client."""
    return request.client.host if request.client else ""


def source_of(address: str) -> str:
    """Return the source of an address: the address itself, for IPv6 its network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), NETWORK_BITS), strict=False))


BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimit:
    """ASGI middleware that refuses a body with 413 as soon as it is too large; it never reads more than the limit."""

    def __init__(self, app: AsgiApp, max_bytes: int, wider: Mapping[str, int] | None = None) -> None:
        """`wider` are paths with a limit of their own; a path that ends with a slash is for all paths below it."""
        self._app, self._max_bytes, self._wider = app, max_bytes, wider or {}

    def _limit(self, path: str) -> int:
        limits = (limit for prefix, limit in self._wider.items() if prefix.endswith("/") and path.startswith(prefix))
        return self._wider.get(path) or next(limits, self._max_bytes)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS_METHODS:
            await self._app(scope, receive, send)
            return
        declared, read, limit = declared_length(scope), 0, self._limit(scope["path"])

        async def limited() -> AsgiMessage:
            nonlocal read
            # Raised while the route reads, so that the error has the route's shape and is counted under it.
            if declared > limit:
                raise too_large(limit)
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise too_large(limit)
            return message

        await self._app(scope, limited, send)


def too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"The body is larger than {limit} bytes.")


def declared_length(scope: AsgiScope) -> int:
    """Return the Content-Length of a request; 0 if it has none."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0
