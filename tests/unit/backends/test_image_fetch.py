# ruff: noqa: RUF001, S104  # addresses are written in every way there is, and nothing is bound to them
"""The fetcher of pictures: what it gets, and all that it does not ask, follow, believe, unpack or wait for."""

import asyncio
import gzip
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hermes.backends.image_fetch import MAX_CONCURRENT_FETCHES, AddressNotPublic, PublicImageFetcher, is_public
from hermes.ports.tools import FetchedMedia, ImageTooLarge, ImageUnreadable

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
LIMIT = 1_000


@dataclass
class Server:
    """A web server on this machine, and what it was asked."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def at(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def fetcher(self, **options: object) -> PublicImageFetcher:
        return PublicImageFetcher(**{"max_bytes": LIMIT, "local_port": self.port, **options})  # type: ignore[arg-type]

    @web.middleware
    async def noted(self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        self.asked.append(request.path)
        self.headers.append(dict(request.headers))
        return await handler(request)


async def picture(request: web.Request) -> web.Response:
    """A picture, with what the path says about it."""
    about = request.match_info
    headers = {"Set-Cookie": "a=b", **({"Content-Encoding": about["encoding"]} if "encoding" in about else {})}
    body = gzip.compress(b"\0" * 10_000_000) if "encoding" in about else PNG
    return web.Response(body=body, status=int(about.get("status", "200")), content_type=about.get("kind", "image/png"), headers=headers)


async def redirect(request: web.Request) -> web.Response:
    return web.Response(status=int(request.match_info["status"]), headers={"Location": request.match_info["target"]})


async def hop(request: web.Request) -> web.Response:
    left = int(request.match_info["left"])
    return web.Response(status=302, headers={"Location": f"/hops/{left - 1}" if left else "/picture"})


async def endless(request: web.Request) -> web.StreamResponse:
    return await drip(request, b"x" * 64, 0)


async def slow(request: web.Request) -> web.StreamResponse:
    return await drip(request, b"x", 0.02)


async def drip(request: web.Request, piece: bytes, every_s: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "image/png"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    while True:  # until whoever listens hangs up
        await response.write(piece)
        await asyncio.sleep(every_s)


OK = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
RAW = {
    "typeless": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(PNG) + PNG,
    "long": OK + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1) + b"x" * (LIMIT + 1),
    "untold": OK + b"\r\n" + b"x" * (LIMIT + 1),
    "less": OK + b"Content-Length: 999\r\n\r\nabc",
    "more": OK + b"Content-Length: 3\r\n\r\nabc" + b"x" * 9_999,
    "garbage": b"HTTP/1.1 2oo what\r\n\r\n",
}
"""Answers word for word."""


async def raw(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.write(RAW[request.match_info["answer"]])
    request.transport.close()
    return web.Response()


@asynccontextmanager
async def serving(context: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server()
    app = web.Application(middlewares=[server.noted])
    app.add_routes(
        [
            *(web.get(path, picture) for path in ("/picture", "/typed/{kind:.+}", "/status/{status}", "/packed/{encoding}")),
            web.get("/to/{status}/{target:.*}", redirect),
            web.get("/hops/{left}", hop),
            web.get("/endless", endless),
            web.get("/slow", slow),
            web.get("/{answer}", raw),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    server.port = runner.addresses[0][1]
    yield server
    await runner.cleanup()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


async def fetched(fetcher: PublicImageFetcher, url: str) -> FetchedMedia:
    try:
        return await fetcher.fetch(url)
    finally:
        await fetcher.aclose()


async def refusal(fetcher: PublicImageFetcher, url: str) -> str:
    with pytest.raises(ImageUnreadable) as caught:
        await fetched(fetcher, url)
    return str(caught.value)


def names(*answers: Sequence[str]) -> Callable[[str, int], object]:
    """A look-up that gives one answer after the other."""
    left = [*answers]

    async def lookup(host: str, port: int) -> Sequence[str]:
        return left.pop(0)

    return lookup


# --- what it gets


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/picture", "image/png"),
        ("/typeless", "application/octet-stream"),
        ("/typed/image/webp", "image/webp"),
        ("/typed/image/jpg", "image/jpg"),
        ("/typed/binary/octet-stream", "binary/octet-stream"),
    ],
)
async def test_gets_a_picture_with_what_its_server_says_of_it(server: Server, path: str, media_type: str) -> None:
    assert await fetched(server.fetcher(), server.at(path)) == FetchedMedia(PNG, media_type)


async def test_tells_the_server_nothing_that_it_need_not_know(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    fetcher = server.fetcher()
    for path in ("/typed/image/png", "/hops/0", "/picture"):
        await fetcher.fetch(server.at(path))
    await fetcher.aclose()
    assert len(server.headers) == 4
    assert [{*headers} for headers in server.headers] == [{"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection"}] * 4
    assert {headers["Accept-Encoding"] for headers in server.headers} == {"identity"}


async def test_can_be_closed_twice_and_used_again(server: Server) -> None:
    fetcher = server.fetcher()
    await fetcher.aclose()
    for _ in range(2):
        assert (await fetched(fetcher, server.at("/picture"))).body == PNG
    await fetcher.aclose()


# --- whom it asks

PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254"),
    *("169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1"),
    *("192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250"),
    *("240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "::7f00:1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1"),
    *("64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:db8::1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2002:7f00:1::", "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254"),
    *("fe80::1", "fec0::1", "ff02::1", "ff0e::1"),
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]


def test_public_is_what_anybody_could_ask() -> None:
    assert [address for address in PRIVATE if is_public(ip_address(address))] == []
    assert [address for address in PUBLIC if not is_public(ip_address(address))] == []


@pytest.mark.parametrize("address", PRIVATE)
async def test_no_private_address_is_asked_by_itself_or_under_a_name(address: str) -> None:
    literal = f"[{address}]" if ":" in address else address
    assert await refusal(PublicImageFetcher(max_bytes=LIMIT), f"http://{literal}/") == "the address is not public"
    named = PublicImageFetcher(max_bytes=LIMIT, lookup=names([address]))  # type: ignore[arg-type]
    assert await refusal(named, "https://pictures.example.com/") == "the address is not public"


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0", "1.2.3.4.5", "0x", "8.8.8.0x8"),
        *("127.0.0.1.", "[fe80::1%25lo]", "[::1%25lo]", "a b", "h%00.com", "ex_ample.c\u200bom", "[::1", "exa$mple.com"),
    ],
)
async def test_hosts_that_are_neither_a_name_nor_a_plain_address_are_refused(host: str) -> None:
    looked: list[str] = []

    async def lookup(name: str, _: int) -> list[str]:
        looked.append(name)
        return ["8.8.8.8"]

    assert await refusal(PublicImageFetcher(max_bytes=LIMIT, lookup=lookup), f"http://{host}/x.png") in {
        "the address is not public",
        "the address names no host",
        "the address is not valid",
    }
    assert looked == []


@pytest.mark.parametrize("spelling", ["127。0。0。1", "１２７.0.0.1", "ⓛocalhost", "LOCALHOST", "localhost."])
async def test_other_ways_to_write_this_machine_are_seen_through(spelling: str) -> None:
    fetcher = PublicImageFetcher(max_bytes=LIMIT, lookup=names(["127.0.0.1"]))  # type: ignore[arg-type]
    assert await refusal(fetcher, f"http://{spelling}/") == "the address is not public"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/x.png", "the address is not an http or https address"),
        ("file:///etc/passwd", "the address is not an http or https address"),
        ("data:image/png;base64,AAAA", "the address is not an http or https address"),
        ("//example.com/x.png", "the address is not an http or https address"),
        ("/x.png", "the address is not an http or https address"),
        ("http:///x.png", "the address is not an http or https address"),
        ("https://ada:secret@example.com/x.png", "the address has a name or a password in it"),
        ("https://ada@example.com/x.png", "the address has a name or a password in it"),
        ("https://example.com:8080/x.png", "the address has an unusual port"),
        ("http://example.com:22/", "the address has an unusual port"),
        ("http://example.com:0/", "the address has an unusual port"),
        ("http://example.com:99999/", "the address is not valid"),
        ("http://evil.com\\@127.0.0.1/", "the address is not valid"),
        ("https://example.com/x y.png", "the address is not valid"),
        ("https://example.com/\r\nHost: other", "the address is not valid"),
        ("", "the address is not valid"),
        (f"https://example.com/{'x' * 3_000}", "the address is not valid"),
    ],
)
async def test_addresses_that_are_not_plainly_of_the_web_are_refused(url: str, why: str) -> None:
    assert await refusal(PublicImageFetcher(max_bytes=LIMIT, lookup=names()), url) == why  # type: ignore[arg-type]


async def test_what_is_allowed_for_tests_is_that_and_nothing_else(server: Server) -> None:
    async with serving() as other:
        for url in (other.at("/picture"), server.at("/picture", "127.0.0.2"), server.at("/picture", "[::1]")):
            assert await refusal(server.fetcher(), url) in {"the address has an unusual port", "the address is not public"}
        assert await refusal(PublicImageFetcher(max_bytes=LIMIT), server.at("/picture")) == "the address has an unusual port"
        named = server.fetcher(lookup=names(["8.8.8.8"]))
        assert await refusal(named, server.at("/picture", "example.com")) == "the address is not public"
        assert (server.asked, other.asked) == ([], [])


async def test_a_name_with_one_private_address_among_public_ones_is_not_asked_at_all(server: Server) -> None:
    for answer in (["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["127.0.0.1", "fe80::1%lo"], ["127.0.0.1", "what"], []):
        fetcher = server.fetcher(lookup=names(answer))
        assert await refusal(fetcher, server.at("/picture", "pictures.example.com")) == "the address is not public"
    assert server.asked == []


async def test_a_name_that_changes_its_answer_is_asked_where_it_was_checked_and_checked_again_the_next_time(server: Server) -> None:
    fetcher = server.fetcher(lookup=names(["127.0.0.1"], ["10.0.0.1"], ["127.0.0.1"], ["169.254.169.254"]))
    url = server.at("/picture", "rebinding.example.com")
    assert (await fetcher.fetch(url)).body == PNG  # one look-up: there is no second one to answer otherwise
    assert await refusal(fetcher, url) == "the address is not public"
    assert await refusal(fetcher, server.at("/hops/0", "rebinding.example.com")) == "the address is not public"
    assert server.asked == ["/picture", "/hops/0"]


async def test_no_connection_is_made_past_the_last_gate(server: Server) -> None:
    gate = server.fetcher()._socket
    for address in ("10.0.0.1", "127.0.0.2", "::1", "127.1", "fe80::1%1"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with pytest.raises(AddressNotPublic):
            gate((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, server.port)))
    gate((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", server.port))).close()


async def test_a_name_that_nobody_knows() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    assert await refusal(PublicImageFetcher(max_bytes=LIMIT, lookup=lookup), "https://nowhere.example/x") == "the host's name is not known"


# --- where it is sent


async def test_three_redirects_are_followed_and_not_a_fourth(server: Server) -> None:
    assert (await fetched(server.fetcher(), server.at("/hops/2"))).body == PNG
    assert await refusal(server.fetcher(), server.at("/hops/3")) == "more than 3 redirects"
    assert server.asked == ["/hops/2", "/hops/1", "/hops/0", "/picture", "/hops/3", "/hops/2", "/hops/1", "/hops/0"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_kind_of_redirect_is_one(server: Server, status: int) -> None:
    assert (await fetched(server.fetcher(), server.at(f"/to/{status}//picture"))).body == PNG


@pytest.mark.parametrize(
    "target",
    [
        *("http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:22/", "http://localhost/", "//10.0.0.1/", "https://[::1]/"),
        *("file:///etc/passwd", "gopher://127.0.0.1/", "http://ada:secret@example.com/", "http://2130706433/", ""),
    ],
)
async def test_a_redirect_is_checked_as_the_first_address_was(server: Server, target: str) -> None:
    await refusal(server.fetcher(), server.at(f"/to/302/{target}"))
    assert len(server.asked) == 1


async def test_a_status_without_success_is_no_picture(server: Server) -> None:
    for status in (204, 206, 304, 404, 500):
        assert await refusal(server.fetcher(), server.at(f"/status/{status}")) == f"the server answered {status}"


# --- what it believes, and how long it waits


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "image/heic", "application/pdf", "video/mp4", "application/json"])
async def test_what_is_said_to_be_something_else_is_not_read(server: Server, kind: str) -> None:
    assert (await refusal(server.fetcher(), server.at(f"/typed/{kind}"))).startswith("the server says that it is no picture")


@pytest.mark.parametrize("path", ["/long", "/endless", "/untold"])
async def test_more_than_allowed_is_given_up_whatever_the_head_says(server: Server, path: str) -> None:
    with pytest.raises(ImageTooLarge) as caught:
        await fetched(server.fetcher(), server.at(path))
    assert caught.value.max_bytes == LIMIT


async def test_just_as_much_as_allowed_is_taken(server: Server) -> None:
    assert len((await fetched(server.fetcher(max_bytes=LIMIT + 1), server.at("/long"))).body) == LIMIT + 1
    assert len((await fetched(server.fetcher(max_bytes=len(PNG)), server.at("/picture"))).body) == len(PNG)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip,identity"])
async def test_nothing_is_unpacked(server: Server, encoding: str) -> None:
    assert await refusal(server.fetcher(max_bytes=100_000), server.at(f"/packed/{encoding}")) == "the server sends the picture compressed"


async def test_a_length_that_lies_brings_no_more_than_it_says_and_no_less(server: Server) -> None:
    with suppress(ImageUnreadable):  # what comes after the end may be noticed, or not
        assert (await fetched(server.fetcher(), server.at("/more"))).body == b"abc"
    assert (await refusal(server.fetcher(), server.at("/less"))).startswith("the connection broke")
    assert (await refusal(server.fetcher(), server.at("/garbage"))).startswith("the connection broke")


async def test_a_server_that_drips_is_left_in_time(server: Server) -> None:
    began = asyncio.get_running_loop().time()
    assert await refusal(server.fetcher(timeout_s=0.2), server.at("/slow")) == "the picture did not come in time"
    assert asyncio.get_running_loop().time() - began < 1


async def test_the_time_is_for_all_hops_and_look_ups_together(server: Server) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        await asyncio.sleep(0.08)
        return ["127.0.0.1"]

    fetcher = server.fetcher(lookup=lookup, timeout_s=0.2)
    assert await refusal(fetcher, server.at("/hops/2", "slow.example.com")) == "the picture did not come in time"


async def test_a_look_up_that_hangs_takes_no_longer_than_connecting_may(server: Server) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    fetcher = server.fetcher(lookup=lookup, connect_timeout_s=0.1)
    async with asyncio.timeout(2):
        assert await refusal(fetcher, server.at("/picture", "slow.example.com")) == "the picture did not come in time"


async def test_names_whose_servers_never_answer_take_no_thread_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, may_end = list[str](), threading.Event()

    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        asked.append(threading.current_thread().name)
        may_end.wait(30)
        raise socket.gaierror(host)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    fetcher = PublicImageFetcher(max_bytes=LIMIT, timeout_s=0.2)
    pictures = [fetcher.fetch(f"http://n{n}.example.com/a.png") for n in range(40)]  # the loop has fewer threads on any machine
    try:
        refused = await asyncio.gather(*pictures, return_exceptions=True)
        assert {str(error) for error in refused} == {"the picture did not come in time"}
        # All look-ups that were begun are still hanging, and there is a thread for whoever needs one.
        assert not await asyncio.to_thread(may_end.is_set)
    finally:
        await fetcher.aclose()
        may_end.set()
    assert len(asked) == MAX_CONCURRENT_FETCHES
    assert {name.rpartition("_")[0] for name in asked} == {"picture-names"}


async def test_a_few_pictures_are_on_their_way_at_once_and_the_others_wait_in_their_own_time(server: Server) -> None:
    asked, is_full, may_go_on = list[str](), asyncio.Event(), asyncio.Event()

    async def lookup(host: str, port: int) -> list[str]:
        asked.append(host)
        if len(asked) >= MAX_CONCURRENT_FETCHES:
            is_full.set()
        await may_go_on.wait()
        return ["127.0.0.1"]

    fetcher = server.fetcher(lookup=lookup)
    pictures = [asyncio.create_task(fetcher.fetch(server.at("/picture", f"n{n}.example.com"))) for n in range(MAX_CONCURRENT_FETCHES + 3)]
    await is_full.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(asked) == MAX_CONCURRENT_FETCHES
    may_go_on.set()
    assert [each.body for each in await asyncio.gather(*pictures)] == [PNG] * (MAX_CONCURRENT_FETCHES + 3)
    await fetcher.aclose()


async def test_errors_hold_no_address(server: Server) -> None:
    for path in ("/garbage?token=sk-secret", "/less?token=sk-secret", "/status/500?token=sk-secret", "/to/302/ftp://sk-secret"):
        with pytest.raises(ImageUnreadable) as caught:
            await fetched(server.fetcher(), server.at(path))
        error: BaseException | None = caught.value
        while error is not None:
            assert "sk-secret" not in repr(error) + str(error.args)
            error = error.__cause__ or error.__context__


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))
    async with serving(context) as server:
        url = server.at("/picture").replace("http:", "https:")
        assert await refusal(server.fetcher(), url) == "the host's certificate is not accepted"
        assert server.asked == []


def self_signed(folder: Path) -> Path:
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + certificate.public_bytes(pem)
    )
    return path
