"""The one HTTP client of the channels, against real servers: what it knows to be unsent, what it cannot know, and what it never tells."""

import asyncio
import contextlib
import gzip
import json
import logging
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hermes.channels import platform_client as module
from hermes.channels.platform_client import PlatformHttpClient, open_platform_client
from hermes.ports.channels import MaybeSent, NotSent, PlatformRequest, PlatformResponse
from hermes.ports.tools import ImageTooLarge

SECRET = "123:TOKEN"  # noqa: S105  # what no error and no log line may show


def call(url: str, method: str = "POST", **more: object) -> PlatformRequest:
    return PlatformRequest(
        method=method, url=f"{url}/bot{SECRET}/sendMessage", headers={"X-Key": SECRET}, **{"json": {"text": "Grüße 🌅"}, **more}
    )


@pytest.fixture
async def post() -> AsyncIterator[PlatformHttpClient]:
    async with open_platform_client(connect_timeout_s=0.5) as post:
        yield post


class Server:
    """A server that answers as it is told to, and notes what it was asked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self.hello
        self.url = ""

    async def hello(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": True}, headers={"Set-Cookie": "a=b", "Retry-After": "3"})

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path, dict(request.headers), await request.read()))
        return await self.answer(request)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server, app = Server(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    yield server
    await runner.cleanup()


@contextlib.asynccontextmanager
async def raw(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """A server that speaks no HTTP unless it is made to."""
    tasks = set()

    async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await talk(reader, writer)
        writer.close()

    listening = await asyncio.start_server(held, "127.0.0.1", 0, ssl=tls)
    host, port = listening.sockets[0].getsockname()[:2]
    yield f"http://{host}:{port}"
    for task in tasks:
        task.cancel()
    listening.close()


async def test_a_call_is_made_as_it_is_and_its_answer_is_whole(post: PlatformHttpClient, server: Server) -> None:
    reply = await post.send(call(server.url), timeout_s=5)
    assert (reply.status, reply.headers["retry-after"], json.loads(reply.body)) == (200, "3", {"ok": True})
    [(path, headers, body)] = server.seen
    assert (path, headers["X-Key"], headers["Content-Type"]) == (f"/bot{SECRET}/sendMessage", SECRET, "application/json")
    assert json.loads(body) == {"text": "Grüße 🌅"}


async def test_a_call_without_a_body_has_none(post: PlatformHttpClient, server: Server) -> None:
    await post.send(call(server.url, method="GET", json=None), timeout_s=5)
    [(_, headers, body)] = server.seen
    assert ("Content-Type" in headers, body) == (False, b"")


@pytest.mark.parametrize("status", [302, 400, 429, 500])
async def test_every_status_is_an_answer_and_no_redirect_is_followed(post: PlatformHttpClient, server: Server, status: int) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text="<html>", headers={"Location": f"{server.url}/elsewhere"})

    server.answer = refuse
    assert await post.send(call(server.url), timeout_s=5) == PlatformResponse(
        status=status, headers={**(await post.send(call(server.url), timeout_s=5)).headers}, body=b"<html>"
    )
    assert [path for path, _, _ in server.seen] == [f"/bot{SECRET}/sendMessage"] * 2


async def test_no_cookie_and_no_proxy_of_the_environment_are_used(
    post: PlatformHttpClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    for _ in range(2):
        await post.send(call(server.url), timeout_s=5)
    assert [("Cookie" in headers) for _, headers, _ in server.seen] == [False, False]


# --- proven not sent


async def test_nobody_listens(post: PlatformHttpClient) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(NotSent, match=r"\Acannot connect \(Connection refused\)\Z"):
        await post.send(call(url), timeout_s=5)


async def test_a_name_that_nobody_knows(post: PlatformHttpClient) -> None:
    with pytest.raises(NotSent, match="the host's name is not known"):
        await post.send(call("http://nobody.invalid"), timeout_s=5)


async def test_an_address_that_is_none(post: PlatformHttpClient) -> None:
    for url in ("not an address", "http://"):
        with pytest.raises(NotSent, match="not valid"):
            await post.send(call(url), timeout_s=5)


async def test_a_text_that_is_no_text(post: PlatformHttpClient, server: Server) -> None:
    with pytest.raises(NotSent, match="the body cannot be encoded"):
        await post.send(call(server.url, json={"text": "half of an emoji: \ud83c"}), timeout_s=5)
    assert server.seen == []


async def test_a_server_that_does_not_speak_tls(post: PlatformHttpClient, server: Server) -> None:
    with pytest.raises(NotSent):
        await post.send(call(server.url.replace("http:", "https:")), timeout_s=5)


async def test_a_certificate_that_nobody_vouches_for(post: PlatformHttpClient, tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw(silent, tls=self_signed(tmp_path)) as url:
        with pytest.raises(NotSent, match="the host's certificate is not accepted"):
            await post.send(call(url.replace("http:", "https:")), timeout_s=5)


def self_signed(folder: Path) -> ssl.SSLContext:
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    certificate = builder.sign(key, hashes.SHA256())
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / "server.pem"
    file.write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()) + certificate.public_bytes(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_handshake_that_never_ends(post: PlatformHttpClient) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw(silent) as url:
        with pytest.raises(NotSent):
            await post.send(call(url.replace("http:", "https:")), timeout_s=0.3)


async def test_a_pool_that_stays_full(server: Server) -> None:
    asked, is_enough = asyncio.Event(), asyncio.Event()

    async def slowly(_: web.Request) -> web.StreamResponse:
        asked.set()
        await is_enough.wait()
        return web.Response()

    server.answer = slowly
    async with open_platform_client(connections_per_host=1) as post:
        first = asyncio.create_task(post.send(call(server.url), timeout_s=5))
        await asked.wait()
        with pytest.raises(NotSent):
            await post.send(call(server.url), timeout_s=0.2)
        is_enough.set()
        assert (await first).status == 200
    assert len(server.seen) == 1


async def test_one_slow_platform_takes_no_connection_from_another(server: Server) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw(silent) as slow, open_platform_client(connections_per_host=1) as post:
        hanging = [asyncio.create_task(post.send(call(slow), timeout_s=timeout_s)) for timeout_s in (2.0, 0.5, 0.5, 0.5, 0.5)]
        assert (await post.send(call(server.url), timeout_s=5)).status == 200
        ends = await asyncio.gather(*hanging, return_exceptions=True)
    assert sorted(type(end).__name__ for end in ends) == ["MaybeSent"] + ["NotSent"] * 4


# --- it may have arrived


async def test_a_server_that_hangs_up_after_it_has_read(post: PlatformHttpClient) -> None:
    async def read_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with raw(read_and_leave) as url:
        with pytest.raises(MaybeSent, match="the connection broke"):
            await post.send(call(url), timeout_s=5)


async def test_a_server_that_hangs(post: PlatformHttpClient) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw(silent) as url:
        with pytest.raises(MaybeSent, match=r"no whole answer within 0\.2 s"):
            await post.send(call(url), timeout_s=0.2)


async def test_a_body_that_comes_too_slowly(post: PlatformHttpClient) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async with raw(drip) as url:
        with pytest.raises(MaybeSent, match=r"no whole answer within 0\.3 s"):
            await post.send(call(url), timeout_s=0.3)


async def test_a_body_that_is_cut_off_and_one_that_does_not_end(
    post: PlatformHttpClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nxx")
        await writer.drain()

    async with raw(cut) as url:
        with pytest.raises(MaybeSent):
            await post.send(call(url), timeout_s=5)
    monkeypatch.setattr(module, "MAX_RESPONSE_BYTES", 5)
    with pytest.raises(MaybeSent):
        await post.send(call(server.url), timeout_s=5)


async def test_what_is_no_http(post: PlatformHttpClient) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"2oo what\r\n\r\n")
        await writer.drain()

    async with raw(garbage) as url:
        with pytest.raises(MaybeSent):
            await post.send(call(url), timeout_s=5)


async def test_a_call_is_never_made_twice_by_itself(post: PlatformHttpClient) -> None:
    """A connection that is kept is closed by the server in the moment in which it is used again."""
    heard: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    async with raw(once) as url:
        await post.send(call(url), timeout_s=5)
        with pytest.raises(MaybeSent):
            await post.send(call(url), timeout_s=5)
    assert len(heard) == 2


@pytest.mark.parametrize(("method", "times"), [("POST", 1), ("GET", 2)])
async def test_a_server_that_answers_nothing_is_asked_again_only_for_what_changes_nothing(
    post: PlatformHttpClient, method: str, times: int
) -> None:
    heard: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with raw(hang_up) as url:
        with pytest.raises(MaybeSent):
            await post.send(PlatformRequest(method=method, url=url, headers={}), timeout_s=5)
    assert len(heard) == times


# --- secrets


async def test_neither_errors_nor_logs_show_the_token(post: PlatformHttpClient, caplog: pytest.LogCaptureFixture) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"2oo what\r\n\r\n")
        await writer.drain()

    caplog.set_level(logging.DEBUG)
    async with raw(garbage) as url:
        for address, headers in ((url, {}), ("http://127.0.0.1:1", {}), (url, {"X-Key": f"{SECRET}\n"})):
            broken = PlatformRequest(method="POST", url=f"{address}/bot{SECRET}/x", headers=headers, json={})
            with pytest.raises((NotSent, MaybeSent)) as caught:
                await post.send(broken, timeout_s=5)
            assert SECRET not in "".join(traceback.format_exception(caught.value))
            assert SECRET not in repr(broken)
    assert SECRET not in caplog.text


# --- files


async def test_a_file_may_be_longer_than_any_answer_and_comes_as_it_is_kept(post: PlatformHttpClient, server: Server) -> None:
    kept = bytes(range(256)) * 8_000

    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(body=kept, content_type="image/png")

    server.answer = give
    reply = await post.fetch(call(server.url, method="GET", json=None), timeout_s=5, max_bytes=len(kept))
    assert (reply.status, reply.headers["content-type"], reply.body == kept) == (200, "image/png", True)
    assert server.seen[0][1]["Accept-Encoding"] == "identity"
    with pytest.raises(MaybeSent, match="the response is too long"):
        await post.send(call(server.url), timeout_s=5)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_file_that_is_too_large_is_not_read_to_its_end(post: PlatformHttpClient, server: Server, is_told: bool) -> None:
    async def give(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 10**12 if is_told else None
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"x" * 65_536)
        return response

    server.answer = give
    with pytest.raises(ImageTooLarge, match="larger than 100000 bytes") as caught:
        await post.fetch(call(server.url, method="GET", json=None), timeout_s=5, max_bytes=100_000)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


async def test_a_file_that_comes_packed_is_not_unpacked(post: PlatformHttpClient, server: Server) -> None:
    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"0" * 1_000_000), headers={"Content-Encoding": "gzip"})

    server.answer = give
    with pytest.raises(MaybeSent, match="the platform sent the file compressed"):
        await post.fetch(call(server.url, method="GET", json=None), timeout_s=5, max_bytes=10_000_000)


async def test_a_file_is_not_followed_elsewhere(post: PlatformHttpClient, server: Server) -> None:
    async def redirect(_: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": f"{server.url}/elsewhere"})

    server.answer = redirect
    assert (await post.fetch(call(server.url, method="GET", json=None), timeout_s=5, max_bytes=10)).status == 302
    assert len(server.seen) == 1
