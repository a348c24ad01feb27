"""Under which names this server may be reached, and who connects to it.

DNS rebinding: a page of `evil.example` lets its name point to this machine, and is then of the same origin as our pages. Its requests still
say `Host: evil.example`. So everything is for known names only, but for what says nothing and for what proves itself: `/health` and
`/ready`, which probes ask under any name, and webhooks, which a platform signs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from fastapi import Request

from hermes.config import WebSettings
from hermes.ops.metrics import AsgiApp, AsgiReceive, AsgiScope, AsgiSend
from hermes.web.errors import ApiError, api_error_response

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})  # noqa: S104  # not to listen on: no browser is told these
OPEN_PATHS = frozenset({"/health", "/ready"})
WEBHOOKS_PATH = "/webhooks"
OWN_ORIGIN_PATHS = ("/console", "/web")
"""What a browser's cookie opens. There a request must come from the very page, which the routes themselves check."""
OVER_TLS = "hermes.over_tls"
"""Where the scope of a request says whether the client came over TLS."""
PEER = "hermes.peer"
"""Where the scope of a request has the address that really connects: `client` may be what a trusted proxy says."""


class PeerMemory:
    """ASGI middleware that notes who connects, before proxy headers replace it. It stands outside all others."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        scope[PEER] = scope.get("client")
        await self._app(scope, receive, send)


def peer_of(request: Request) -> str:
    """Return the address that connects: that of a proxy, if there is one."""
    peer = request.scope.get(PEER) or request.scope.get("client")
    return peer[0] if peer else ""


def is_in(address: str, networks: Iterable[str]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in ip_network(network, strict=False) for network in networks)


def is_local_name(host: str) -> bool:
    """Whether this is a name of the machine itself, which no other machine can have."""
    if host in LOCAL_NAMES or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The names of the settings under which clients may reach this server, beside those of the machine itself."""

    names: frozenset[str]
    """A name that begins with `*.` stands for all names below it."""
    tls_names: frozenset[str] = frozenset()
    """Names that are reached over TLS only, as `web.public_url` says, also where the proxy in front tells us nothing."""

    @classmethod
    def of(cls, web: WebSettings) -> KnownHosts:
        public = urlsplit(web.public_url) if web.public_url is not None else None
        public_names = frozenset({public.hostname} if public is not None and public.hostname else ())
        is_over_tls = public is not None and public.scheme == "https"
        own = {web.host.lower()} - EVERY_ADDRESS
        return cls(public_names | frozenset(web.hosts) | own, public_names if is_over_tls else frozenset())

    def __contains__(self, host: str) -> bool:
        return host in self.names or any(name.startswith("*.") and host.endswith(name[1:]) for name in self.names)

    def allow(self, scope: AsgiScope) -> bool:
        """Whether a request is for a known name, or for the address of this machine that the client connected to: no name that could
        point elsewhere."""
        host, server = host_in(scope), scope.get("server")
        return bool(host) and (is_local_name(host) or host in self or (server is not None and host == server[0]))

    def is_foreign(self, scope: AsgiScope) -> bool:
        """Whether a page of another site sent a request. A program sends no origin, or one that is no address of a page."""
        origins = header_values(scope, b"origin")
        if not origins:
            return False
        try:
            origin = urlsplit(origins[0].decode("latin-1").lower())
            host = origin.hostname or ""
        except ValueError:
            return True
        if origin.scheme not in {"http", "https"}:
            return False
        return len(origins) > 1 or not (origin.netloc.encode() in header_values(scope, b"host") or is_local_name(host) or host in self)


def header_values(scope: AsgiScope, wanted: bytes) -> list[bytes]:
    return [value for name, value in scope["headers"] if name == wanted]


def host_in(scope: AsgiScope) -> str:
    """Return the name that a request is for, in lower case and without its port; empty if it has none, or several."""
    values = header_values(scope, b"host")
    return name_in(values[0]) if len(values) == 1 else ""


@lru_cache(256)
def name_in(host: bytes) -> str:
    """Return the name in a `Host` header, in lower case and without its port; empty if there is none."""
    try:
        return (urlsplit(f"//{host.decode('latin-1')}").hostname or "").rstrip(".")
    except ValueError:
        return ""


class HostGuard:
    """ASGI middleware that answers 421 to a request for an unknown name, and 403 to one that a page of another site sent."""

    def __init__(self, app: AsgiApp, hosts: KnownHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        error = self._find_fault(scope) if scope["type"] == "http" else None
        if error is not None:
            await api_error_response(error)(scope, receive, send)
            return
        scope[OVER_TLS] = scope.get("scheme") == "https" or host_in(scope) in self._hosts.tls_names
        await self._app(scope, receive, send)

    def _find_fault(self, scope: AsgiScope) -> ApiError | None:
        path: str = scope["path"]
        if path in OPEN_PATHS or is_below(path, WEBHOOKS_PATH):
            return None
        if not self._hosts.allow(scope):
            return ApiError(421, "unknown_host", "This server is not reached under this name; the setting web.hosts allows further ones.")
        has_own_check = any(is_below(path, prefix) for prefix in OWN_ORIGIN_PATHS)
        if not has_own_check and self._hosts.is_foreign(scope):
            return ApiError(403, "foreign_origin", "This server does not answer pages of other sites.")
        return None


class PlainHttpGuard:
    """ASGI middleware that answers 403 to plain HTTP from another machine, on paths with this prefix: a session would be readable on its
    way."""

    def __init__(self, app: AsgiApp, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] != "http" or not is_below(scope["path"], self._prefix) or scope["scheme"] == "https" or is_own_machine(scope):
            await self._app(scope, receive, send)
            return
        message = (
            "In production the console is served over HTTPS, or to this machine. Behind a proxy: it sends `X-Forwarded-Proto: https`, and "
            "the setting web.trusted_proxies names its address."
        )
        await api_error_response(ApiError(403, "plain_http", message))(scope, receive, send)


def is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")


PROXY_HEADERS = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
"""What proxies add."""


def is_own_machine(scope: AsgiScope) -> bool:
    """Whether the client is on this machine and says so. A proxy there speaks for others: under another name, or with a header."""
    client = scope.get("client")
    return is_local_name(host_in(scope)) and client is not None and is_local_name(client[0]) and not is_proxied(scope)


def is_proxied(scope: AsgiScope) -> bool:
    """Whether a proxy sent the request that Hermes does not trust: its client is unknown."""
    client, peer = scope.get("client"), scope.get(PEER) or scope.get("client")
    return client == peer and any(name in PROXY_HEADERS for name, _ in scope["headers"])
