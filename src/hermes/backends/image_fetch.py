"""Fetch a picture from an address that a user sent, and only from addresses that are public on the internet.

An address in a message may point at anything: a database beside Hermes, a cloud's own metadata, a file that never ends. So:

    http and https only, ports 80 and 443, no name or password in the address
    the fetcher looks names up itself; every address it gets must be public, and it connects only to an address that it checked
    it follows redirects itself, three at most, and checks each like the first address
    no more bytes than allowed, whatever the headers say; nothing is unpacked; one timeout bounds the whole
    no proxy from the environment, no cookies, no connection kept
    at most MAX_CONCURRENT_FETCHES at once, with threads of its own to look names up: a slow name server delays pictures and nothing else

Its errors contain no addresses: some addresses contain a token."""

from __future__ import annotations

import asyncio
import math
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from hermes.http_client import describe_error
from hermes.ports.tools import FetchedMedia, ImageTooLarge, ImageUnreadable

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host by its name and a port. Raises OSError."""

ALLOWED_PORTS = frozenset({80, 443})
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS = 3
MAX_CONCURRENT_FETCHES = 8
"""Concurrent fetches, and threads that look names up. A look-up cannot be cancelled: it occupies its thread until it ends."""
MAX_URL_CHARS = 2_048
IMAGE_TYPES = frozenset({"image/jpeg", "image/jpg", "image/pjpeg", "image/png", "image/x-png", "image/webp", "image/gif"})
UNKNOWN_TYPES = frozenset({"application/octet-stream", "binary/octet-stream"})
"""Types that servers give to files of unknown type; aiohttp reports the first one for a file without a type."""
HEADERS = {"User-Agent": "hermes", "Accept": "image/jpeg,image/png,image/webp,image/gif", "Accept-Encoding": "identity"}

LOOPBACK = IPv4Address("127.0.0.1")
GLOBAL_UNICAST = ip_network("2000::/3")
"""All public IPv6 addresses are in this network. Not every supported Python version classifies the others correctly."""
NAT64 = ip_network("64:ff9b::/96")
"""IPv4 addresses in the form that IPv6-only networks use: as public as the IPv4 address inside."""
NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # for protocols, and one cloud's metadata
            "192.88.99.0/24",  # 6to4 relays
            "168.63.129.16/32",  # another cloud's metadata, at an address that looks public
            "2001::/23",  # Teredo and other tunnels
            "2002::/16",  # 6to4: contains an IPv4 address of any kind
            "3fff::/20",  # for documentation
        ),
    )
)
NUMERIC_HOST = re.compile(r"\d+|0x[0-9a-f]*")
HOST_NAME = re.compile(r"[a-z0-9._-]{1,253}")


class PublicImageFetcher:
    """The port MediaFetcher."""

    def __init__(
        self,
        *,
        max_bytes: int,
        connect_timeout_s: float = 3.0,
        timeout_s: float = 8.0,
        lookup: Lookup | None = None,
        local_port: int | None = None,
    ) -> None:
        """`timeout_s` bounds the whole fetch, from the first look-up to the last byte; a step of the router has 10 seconds.

        While `MAX_CONCURRENT_FETCHES` are under way, the next fetch waits within that time.

        `local_port` is for tests: it allows 127.0.0.1 on this port, and no other address that is not public."""
        self._max_bytes, self._connect_timeout_s, self._timeout_s = max_bytes, connect_timeout_s, timeout_s
        self._lookup, self._local_port = lookup or self._resolve_host, local_port
        self._session: aiohttp.ClientSession | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._room = asyncio.Semaphore(MAX_CONCURRENT_FETCHES)

    async def fetch(self, url: str) -> FetchedMedia:
        try:
            async with asyncio.timeout(self._timeout_s), self._room:
                return await self._follow(url)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = describe_fetch_error(error, self._timeout_s)
        # Outside the except clause: aiohttp's errors hold the address, and a chained error would show it.
        raise ImageUnreadable(reason)

    async def aclose(self) -> None:
        """Close connections and threads. A later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, url: str) -> FetchedMedia:
        at = self._check_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            async with self._open_session().get(at, allow_redirects=False) as response:
                if response.status not in REDIRECT_STATUSES:
                    return await self._read(response)
                target = response.headers.get("Location", "")
                response.close()  # its body is not needed, however long it is
            at = self._check_url(target, at)
        raise ImageUnreadable(f"more than {MAX_REDIRECTS} redirects")

    async def _read(self, response: aiohttp.ClientResponse) -> FetchedMedia:
        media_type = response.content_type.casefold()
        if response.status != 200:
            raise ImageUnreadable(f"the server answered {response.status}")
        if media_type not in IMAGE_TYPES | UNKNOWN_TYPES:
            raise ImageUnreadable("the server says that it is no picture of a type that a model takes")
        if response.headers.get("Content-Encoding", "identity").strip().casefold() != "identity":
            # The request did not allow it, and a few bytes can unpack to any size.
            raise ImageUnreadable("the server sends the picture compressed")
        if (response.content_length or 0) > self._max_bytes:
            raise ImageTooLarge(self._max_bytes)
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._max_bytes:
                raise ImageTooLarge(self._max_bytes)
        return FetchedMedia(bytes(body), media_type)

    def _check_url(self, url: str, base: URL | None = None) -> URL:
        """Parse an address and check its text. The IP addresses behind a host name are checked when the name is looked up."""
        if not url or len(url) > MAX_URL_CHARS or any(character.isspace() or not character.isprintable() for character in url):
            raise ImageUnreadable("the address is not valid")
        parsed = URL(url) if base is None else base.join(URL(url))
        host = (parsed.raw_host or "").casefold()
        if parsed.scheme not in {"http", "https"} or not host:
            raise ImageUnreadable("the address is not an http or https address")
        if parsed.raw_user is not None or parsed.raw_password is not None:
            raise ImageUnreadable("the address has a name or a password in it")
        port = parsed.port or 0
        if port not in ALLOWED_PORTS and port != self._local_port:
            raise ImageUnreadable("the address has an unusual port")
        if (literal := parse_address(host)) is not None:
            if not self._may_connect(literal, port):
                raise ImageUnreadable("the address is not public")
        elif NUMERIC_HOST.fullmatch(host.removesuffix(".").rpartition(".")[2]) or not HOST_NAME.fullmatch(host):
            # Some programs read 2130706433, 0x7f.1 and 0177.1 as 127.0.0.1, and others as a name.
            raise ImageUnreadable("the address names no host")
        return parsed

    def _may_connect(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        return (is_public(address) and port in ALLOWED_PORTS) or (address == LOOPBACK and port == self._local_port)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=PublicResolver(self._lookup, self._may_connect),
                    socket_factory=self._socket,
                    use_dns_cache=False,
                    force_close=True,
                    limit=0,
                ),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_timeout_s, ceil_threshold=math.inf),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=HEADERS,
                auto_decompress=False,
                raise_for_status=False,
                trust_env=False,
            )
        return self._session

    async def _resolve_host(self, host: str, port: int) -> list[str]:
        """The addresses of a host, as this machine finds them. Not in the event loop's own threads: other work needs them too."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MAX_CONCURRENT_FETCHES, thread_name_prefix="picture-names")
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        # aiohttp lets a look-up go on after its request has ended. The timeout gives up a look-up that still has no thread by then.
        async with asyncio.timeout(self._connect_timeout_s):
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [str(place[0]) for *_, place in found]

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """The last check: aiohttp calls this for every connection with its final address, however the address was found."""
        family, kind, protocol, _, (host, port, *_) = info
        address = parse_address(str(host))
        if address is None or not self._may_connect(address, int(port)):
            raise AddressNotPublic
        return socket.socket(family, kind, protocol)


class AddressNotPublic(OSError):
    """A host's name leads to an address that is not public."""


class PublicResolver(AbstractResolver):
    """Looks names up. If one of a name's addresses is not public, all are refused: the owner of the name may be an attacker."""

    def __init__(self, lookup: Lookup, may_connect: Callable[[IPv4Address | IPv6Address, int], bool]) -> None:
        self._lookup, self._may_connect = lookup, may_connect

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        found = [parse_address(address) for address in await self._lookup(host, port)]
        addresses = [address for address in found if address is not None and self._may_connect(address, port)]
        if len(addresses) < len(found) or not addresses:
            raise AddressNotPublic
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
            if family in {socket.AF_UNSPEC, socket.AF_INET if address.version == 4 else socket.AF_INET6}
        ]

    async def close(self) -> None:
        """Nothing is open."""


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """Parse a host as an IP address; None for a name, and for an IPv6 address that is bound to a network interface."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return None if isinstance(address, IPv6Address) and address.scope_id else address


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether every host on the internet can reach this address."""
    if isinstance(address, IPv6Address):
        inside = address.ipv4_mapped or (IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None)
        if inside is not None:
            return is_public(inside)
        if address not in GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in network for network in NOT_PUBLIC)


def describe_fetch_error(error: Exception, timeout_s: float) -> str:
    """Say what happened, in a text without an address."""
    match error:
        case TimeoutError():
            return "the picture did not come in time"
        case AddressNotPublic() | aiohttp.ClientConnectorError(os_error=AddressNotPublic()):
            return "the address is not public"
        case ValueError() if not isinstance(error, aiohttp.ClientError):  # a wrong certificate is both
            return "the address is not valid"
    return describe_error(error, timeout_s)
