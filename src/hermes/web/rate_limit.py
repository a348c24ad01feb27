"""How often one source may come: an API key, a browser's address, somebody who keeps guessing. Within this process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

from hermes.web.errors import ApiError

MAX_SOURCES = 10_000
"""Sources that are remembered; those that may come again at once are forgotten beyond that."""

CLEANUP_INTERVAL_S = 1.0
"""Between two looks for those: each goes through all of them."""
NETWORK_BITS = 64
"""Of an IPv6 address, what one household or machine has to itself: it can come from any address within."""


class RateLimit:
    """So many a minute for each source: a whole minute's worth at once after a rest, then one by one."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_s, self._burst_s, self._clock = 60 / per_minute, 60.0, clock
        self._rested_at: dict[str, float] = {}
        """When each source will have rested fully."""
        self._looked_at = -math.inf

    def wait_s(self, source: str) -> float:
        """How long a source has to wait until it may come; 0: it may now, and has taken its turn."""
        now = self._clock()
        rested_at = max(self._rested_at.get(source, now), now) + self._every_s
        wait_s = rested_at - now - self._burst_s
        if wait_s > 1e-9:
            return wait_s
        self._rested_at[source] = rested_at
        if len(self._rested_at) > MAX_SOURCES and now - self._looked_at >= CLEANUP_INTERVAL_S:
            self._looked_at = now
            self._rested_at = {name: at for name, at in self._rested_at.items() if at > now}
        return 0.0

    def admit(self, source: str) -> None:
        """Let a source in; raise Refused with 429 for one that came too often."""
        if wait_s := self.wait_s(source):
            raise too_many_requests(wait_s)


def too_many_requests(wait_s: float) -> ApiError:
    seconds = math.ceil(wait_s)
    message = f"Too many requests; come again in {seconds} s."
    return ApiError(429, "rate_limited", message, headers={"Retry-After": str(seconds)}, kind="rate_limited")


def address_of(request: Request) -> str:
    """Where a request comes from. Behind a proxy that is the proxy, unless it runs on this machine and says for whom it asks."""
    return source_of(request.client.host) if request.client else ""


def source_of(address: str) -> str:
    """Whose address this is: of IPv6 the network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), NETWORK_BITS), strict=False))
