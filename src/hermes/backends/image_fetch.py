"""Gets a picture from wherever a user says it is, and from nowhere that the user could not reach alone.

An address out of a message may point at anything: a database beside us, a cloud's own metadata, a file that never ends. So:

    http and https only, ports 80 and 443, no name or password in the address
    names are looked up here, and every address that comes back must be public; what is connected to is what was checked
    redirects are followed by hand, three at most, each checked as the first was
    no more bytes than allowed, whatever the head says; nothing is unpacked; nothing takes longer than the whole may take
    no proxy from the environment, no cookies, no connection kept
    a few at a time, and names are looked up in threads of its own: a name whose server never answers holds up pictures and nothing else

What it raises says nothing of addresses: some hold a token."""

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

from hermes.ports.images import FetchedMedia, ImageTooLarge, ImageUnreadable

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host's name and a port to its addresses. Raises OSError."""

ALLOWED_PORTS = frozenset({80, 443})
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
MAX_REDIRECTS = 3
MAX_CONCURRENT_FETCHES = 8
"""Pictures on their way, and threads that look names up. A look-up cannot be broken off: its thread is gone for as long as it takes."""
MAX_URL_CHARS = 2_048
IMAGE_TYPES = frozenset({"image/jpeg", "image/jpg", "image/pjpeg", "image/png", "image/x-png", "image/webp", "image/gif"})
UNKNOWN_TYPES = frozenset({"application/octet-stream", "binary/octet-stream"})
"""What servers say of files that they know nothing about; aiohttp says the same of a file without a type."""
HEADERS = {"User-Agent": "hermes", "Accept": "image/jpeg,image/png,image/webp,image/gif", "Accept-Encoding": "identity"}

LOOPBACK = IPv4Address("127.0.0.1")
GLOBAL_UNICAST = ip_network("2000::/3")
"""All that is public in IPv6 lies here. What lies beside it is not told apart by every Python that we promise."""
NAT64 = ip_network("64:ff9b::/96")
"""IPv4 as networks without it see it: as public as the address inside."""
NOT_PUBLIC = tuple(
    map(
        ip_network,
        (
            "192.0.0.0/24",  # of protocols, and one cloud's metadata
            "192.88.99.0/24",  # 6to4 relays
            "168.63.129.16/32",  # another cloud's metadata, at an address that looks public
            "2001::/23",  # Teredo and other tunnels
            "2002::/16",  # 6to4: an IPv4 address inside, of whatever kind
            "3fff::/20",  # for documents
        ),
    )
)
NUMERIC_HOST = re.compile(r"\d+|0x[0-9a-f]*")
HOST_NAME = re.compile(r"[a-z0-9._-]{1,253}")


class PublicImageFetcher:
    """The port Fetch."""

    def __init__(
        self,
        *,
        max_bytes: int,
        connect_timeout_s: float = 3.0,
        timeout_s: float = 8.0,
        lookup: Lookup | None = None,
        local_port: int | None = None,
    ) -> None:
        """`timeout_s` bounds it all, from the first look-up to the last byte; a step of the router has 10 seconds.

        Where `MOST_AT_ONCE` are on their way, the next one waits within that time.

        `local_port` is for tests: 127.0.0.1 may be asked on this port, and nothing else that is not public."""
        self._max_bytes, self._connect_timeout_s, self._timeout_s = max_bytes, connect_timeout_s, timeout_s
        self._lookup, self._local_port = lookup or self._looked_up, local_port
        self._session: aiohttp.ClientSession | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._room = asyncio.Semaphore(MAX_CONCURRENT_FETCHES)

    async def fetch(self, url: str) -> FetchedMedia:
        try:
            async with asyncio.timeout(self._timeout_s), self._room:
                return await self._follow(url)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            reason = describe_error(error)
        # Outside the except clause: aiohttp's errors hold the address, and a chained error would show it.
        raise ImageUnreadable(reason)

    async def aclose(self) -> None:
        """Close what is open. A later call opens it anew."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, url: str) -> FetchedMedia:
        at = self._checked(url)
        for _ in range(MAX_REDIRECTS + 1):
            async with self._opened().get(at, allow_redirects=False) as response:
                if response.status not in REDIRECT_STATUSES:
                    return await self._read(response)
                target = response.headers.get("Location", "")
                response.close()  # its body is of no interest, however long
            at = self._checked(target, at)
        raise ImageUnreadable(f"more than {MAX_REDIRECTS} redirects")

    async def _read(self, response: aiohttp.ClientResponse) -> FetchedMedia:
        media_type = response.content_type.casefold()
        if response.status != 200:
            raise ImageUnreadable(f"the server answered {response.status}")
        if media_type not in IMAGE_TYPES | UNKNOWN_TYPES:
            raise ImageUnreadable("the server says that it is no picture that a model takes")
        if response.headers.get("Content-Encoding", "identity").strip().casefold() != "identity":
            # Nobody asked for it, and what a few bytes unpack to has no end.
            raise ImageUnreadable("the server sends it packed")
        if (response.content_length or 0) > self._max_bytes:
            raise ImageTooLarge(self._max_bytes)
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._max_bytes:
                raise ImageTooLarge(self._max_bytes)
        return FetchedMedia(bytes(body), media_type)

    def _checked(self, url: str, base: URL | None = None) -> URL:
        """An address that may be asked, as far as its text tells. What its name stands for is checked when it is looked up."""
        if not url or len(url) > MAX_URL_CHARS or any(character.isspace() or not character.isprintable() for character in url):
            raise ImageUnreadable("the address is none")
        parsed = URL(url) if base is None else base.join(URL(url))
        host = (parsed.raw_host or "").casefold()
        if parsed.scheme not in {"http", "https"} or not host:
            raise ImageUnreadable("the address is not one of the web")
        if parsed.raw_user is not None or parsed.raw_password is not None:
            raise ImageUnreadable("the address has a name or a password in it")
        port = parsed.port or 0
        if port not in ALLOWED_PORTS and port != self._local_port:
            raise ImageUnreadable("the address has an unusual port")
        if (literal := parse_address(host)) is not None:
            if not self._may_ask(literal, port):
                raise ImageUnreadable("the address is not public")
        elif NUMERIC_HOST.fullmatch(host.removesuffix(".").rpartition(".")[2]) or not HOST_NAME.fullmatch(host):
            # 2130706433, 0x7f.1 and 0177.1 are 127.0.0.1 to some, and a name to others.
            raise ImageUnreadable("the address names no host")
        return parsed

    def _may_ask(self, address: IPv4Address | IPv6Address, port: int) -> bool:
        return (is_public(address) and port in ALLOWED_PORTS) or (address == LOOPBACK and port == self._local_port)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=PublicResolver(self._lookup, self._may_ask),
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

    async def _looked_up(self, host: str, port: int) -> list[str]:
        """The addresses of a host, as this machine finds them. Not in the threads of the loop: whatever else needs one would wait."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MAX_CONCURRENT_FETCHES, thread_name_prefix="picture-names")
        ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        # aiohttp lets a look-up go on when nobody waits for it any more; one that still has no thread by then is given up here.
        async with asyncio.timeout(self._connect_timeout_s):
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [str(place[0]) for *_, place in found]

    def _socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        """The last gate: every connection passes here with the address that it will have, whichever way that was found."""
        family, kind, protocol, _, (host, port, *_) = info
        address = parse_address(str(host))
        if address is None or not self._may_ask(address, int(port)):
            raise AddressNotPublic
        return socket.socket(family, kind, protocol)


class AddressNotPublic(OSError):
    """A name stands for an address that is not public."""


class PublicResolver(AbstractResolver):
    """Looks names up. One address that is not public is reason enough to ask none of them: its owner is up to something."""

    def __init__(self, lookup: Lookup, may_ask: Callable[[IPv4Address | IPv6Address, int], bool]) -> None:
        self._lookup, self._may_ask = lookup, may_ask

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        found = [parse_address(address) for address in await self._lookup(host, port)]
        addresses = [address for address in found if address is not None and self._may_ask(address, port)]
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
    """A host as the address that it is; None for a name, and for what is bound to one of our network cards."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return None if isinstance(address, IPv6Address) and address.scope_id else address


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether anybody on the internet could ask this address."""
    if isinstance(address, IPv6Address):
        inside = address.ipv4_mapped or (IPv4Address(int(address) & 0xFFFFFFFF) if address in NAT64 else None)
        if inside is not None:
            return is_public(inside)
        if address not in GLOBAL_UNICAST:
            return False
    return address.is_global and not address.is_multicast and not any(address in network for network in NOT_PUBLIC)


def describe_error(error: Exception) -> str:
    """Say what happened, in words that hold no address."""
    match error:
        case TimeoutError():
            return "it did not come in time"
        case AddressNotPublic() | aiohttp.ClientConnectorError(os_error=AddressNotPublic()):
            return "the address is not public"
        case aiohttp.ClientConnectorDNSError():
            return "the host's name is not known"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "the host's certificate is not accepted"
        case ValueError():
            return "the address is none"
    return f"the connection failed ({type(error).__name__})"
