"""One server for all fake platforms: it serves their paths, the control API, and the page on which the operator writes as the people.

The page loads nothing from other servers. Every path of a platform is the real one, so its base URL is the server's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib import resources

import aiohttp
from aiohttp import web

from hermes.testing.platforms.control import ControlApi
from hermes.testing.platforms.platform import FakePlatform
from hermes.testing.platforms.world import ChangeSignal, PlatformClock, SeededRandom, World

MAX_REQUEST_BYTES = 8 * 1024 * 1024
CONTENT_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@asynccontextmanager
async def open_world(*, seed: int, speed: float, host: str, port: int) -> AsyncIterator[tuple[World, socket.socket]]:
    """A world for platforms, and the socket for `serve_platforms`; it listens already, so the world knows its URL. Port 0: any free one."""
    with socket.create_server((host, port), backlog=512) as listener:
        at = "127.0.0.1" if host in {"0.0.0.0", ""} else host  # noqa: S104  # the operator chose that on the command line
        base = f"http://{at}:{listener.getsockname()[1]}"
        # Without a limit on connections: each platform has its own limit, and a receiver that hangs must not block the others.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()) as client:
            yield World(base, PlatformClock(speed), SeededRandom(seed), ChangeSignal(), client), listener


@asynccontextmanager
async def serve_platforms(
    world: World, listener: socket.socket, platforms: Mapping[str, FakePlatform], routes: Iterable[web.RouteDef]
) -> AsyncIterator[None]:
    """Serve the routes of the platforms, and everything that controls them, until the block ends. Platforms may be added meanwhile."""
    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    app.add_routes([*routes, *ControlApi(platforms, world).routes(), *page_routes()])
    # The server cancels a handler whose caller disconnects, and waits for none that hangs. No access log: it would hold tokens.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await asyncio.gather(*(platform.aclose() for platform in platforms.values()))
        await runner.cleanup()


def page_routes() -> list[web.RouteDef]:
    """The page and its files."""
    files = {
        file.name: (file.read_bytes(), CONTENT_TYPES[file.name.rpartition(".")[2]])
        for file in (resources.files(__package__) / "page").iterdir()
    }

    async def page(_: web.Request) -> web.Response:
        return serve("page.html")

    async def part(request: web.Request) -> web.Response:
        return serve(request.match_info["name"])

    def serve(name: str) -> web.Response:
        if name not in files:
            raise web.HTTPNotFound
        body, kind = files[name]
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=PAGE_HEADERS)

    return [web.get("/", page), web.get("/_page/{name}", part)]
