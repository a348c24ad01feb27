"""The one HTTP client: no redirects, no cookies, an end to every body, and nothing in its errors that was sent."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from hermes.http_client import HttpClient, TransportError

HEADERS = {"x-api-key": "sk-secret"}
seen: list[dict[str, str]] = []


async def answer(request: web.Request) -> web.StreamResponse:
    seen.append(dict(request.headers))
    match request.path:
        case "/redirect":
            return web.Response(status=302, headers={"Location": "/elsewhere"})
        case "/long":
            return web.Response(body=b"x" * 10_000)
        case "/garbage":
            assert request.transport is not None
            request.transport.write(b"HTTP/1.1 2oo what\r\n\r\n")
            request.transport.close()
        case "/hang":
            await asyncio.sleep(60)
        case "/drip":
            dripping = web.StreamResponse()
            await dripping.prepare(request)
            await asyncio.sleep(60)
    return web.Response(text="hello", headers={"Set-Cookie": "a=b", "Retry-After": "3"})


@pytest.fixture
async def url() -> AsyncIterator[str]:
    seen.clear()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


@pytest.fixture
async def client(url: str) -> AsyncIterator[HttpClient]:
    client = HttpClient()
    yield client
    await client.aclose()


async def test_gives_status_headers_and_body(client: HttpClient, url: str) -> None:
    async with client.send("POST", f"{url}/", headers=HEADERS, body=b"{}", timeout_s=5) as reply:
        assert (reply.status, reply.headers["retry-after"], await reply.read()) == (200, "3", b"hello")


async def test_goes_nowhere_else_and_remembers_nothing(client: HttpClient, url: str) -> None:
    for path in ("/", "/redirect", "/"):
        async with client.send("GET", url + path, headers=HEADERS, timeout_s=5) as reply:
            await reply.read()
    assert len(seen) == 3
    assert not [headers for headers in seen if "Cookie" in headers]


async def test_a_body_that_does_not_end_is_given_up(client: HttpClient, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.http_client.MAX_BODY_BYTES", 5_000)
    async with client.send("GET", f"{url}/long", headers=HEADERS, timeout_s=5) as reply:
        with pytest.raises(TransportError):
            await reply.read()


@pytest.mark.parametrize("path", ["/garbage", None])
async def test_errors_hold_nothing_that_was_sent(client: HttpClient, url: str, path: str | None) -> None:
    bad = {**HEADERS, "x-odd": "a\nb"} if path is None else HEADERS
    with pytest.raises(TransportError) as caught:
        async with client.send("GET", url + (path or "/"), headers=bad, timeout_s=5):
            pass
    error: BaseException | None = caught.value
    while error is not None:
        assert "sk-secret" not in repr(error) + str(error.args)
        error = error.__cause__ or error.__context__


async def test_an_address_that_is_none(client: HttpClient) -> None:
    for address in ("not an address", "ftp://127.0.0.1/", "http://"):
        with pytest.raises(TransportError):
            async with client.send("GET", address, headers=HEADERS, timeout_s=5):
                pass


async def test_can_be_closed_twice_and_used_again(client: HttpClient, url: str) -> None:
    await client.aclose()
    await client.aclose()
    async with client.send("GET", f"{url}/", headers=HEADERS, timeout_s=5) as reply:
        assert await reply.read() == b"hello"


async def may_have_arrived(client: HttpClient, url: str, timeout_s: float = 5.0) -> bool:
    with pytest.raises(TransportError) as failed:
        async with client.send("POST", url, headers={}, body=b"{}", timeout_s=timeout_s) as reply:
            await reply.read()
    return failed.value.may_have_arrived


async def test_an_error_says_whether_the_request_may_have_arrived(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        closed = nobody.getsockname()[1]
    one = HttpClient(connections_per_host=1)
    assert not await may_have_arrived(one, f"http://127.0.0.1:{closed}/"), "no connection"
    assert await may_have_arrived(one, f"{url}/garbage"), "the server read it, and answered nonsense"
    assert await may_have_arrived(one, f"{url}/hang", 0.1), "the server read it, and is silent"
    async with one.send("GET", f"{url}/drip", headers={}, timeout_s=5):
        assert not await may_have_arrived(one, f"{url}/", 0.1), "it waited for the only connection"
    await one.aclose()
