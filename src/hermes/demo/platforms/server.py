"""All platforms at one server. Every path is the real one, so the base URL of each platform is the server's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
from aiohttp import web

from hermes.demo.platforms.change_signal import ChangeSignal
from hermes.demo.platforms.control import ControlApi
from hermes.demo.platforms.instagram import FakeInstagram, FakeInstagramLogin
from hermes.demo.platforms.meta_graph_host import MetaGraphHost
from hermes.demo.platforms.page import page_routes
from hermes.demo.platforms.platform import FakePlatform, World
from hermes.demo.platforms.platform_clock import PlatformClock
from hermes.demo.platforms.seeded_random import SeededRandom
from hermes.demo.platforms.telegram import FakeTelegram
from hermes.demo.platforms.webhook_post import Disorder
from hermes.demo.platforms.whatsapp import FakeWhatsApp, WhatsAppApi

FakeAccount = TypeVar("FakeAccount", FakeInstagram, FakeWhatsApp)

MAX_REQUEST_BYTES = 8 * 1024 * 1024
WEBHOOK_PATHS = {
    "telegram": ("telegram", ""),
    "whatsapp": ("whatsapp", ""),
    "whatsapp_cloud": ("whatsapp", "-cloud"),
    "instagram": ("instagram", ""),
    "instagram_page": ("instagram", "-page"),
}
"""Where Hermes receives each platform's webhooks: the platform in the path, and the suffix of the account's name."""


class FakePlatforms:
    """Telegram, WhatsApp through two APIs, and Instagram through two logins."""

    def __init__(self, world: World, media_url: str | None = None) -> None:
        self.world, self.url, self._media_url = world, world.url, media_url
        self.telegram = FakeTelegram(world)
        self.whatsapp = FakeWhatsApp(world, WhatsAppApi.DIALOG360, media_url)
        self.whatsapp_cloud = FakeWhatsApp(world, WhatsAppApi.CLOUD, media_url)
        self.instagram = FakeInstagram(world, FakeInstagramLogin.INSTAGRAM, media_url)
        self.instagram_page = FakeInstagram(world, FakeInstagramLogin.PAGE, media_url)
        self.clouds, self.instagrams = [self.whatsapp_cloud], [self.instagram, self.instagram_page]
        """All numbers at the Cloud API, and all accounts at Instagram."""
        self.by_name: dict[str, FakePlatform] = {platform.name: platform for platform in self}

    def __iter__(self) -> Iterator[FakePlatform]:
        yield from (self.telegram, self.whatsapp, *self.clouds, *self.instagrams)

    def add_instagram(self, name: str, app: FakeInstagram) -> FakeInstagram:
        """Add another account to an app: its webhooks are signed with the same secret and posted to the same callback URL."""
        account = FakeInstagram(self.world, app.login, self._media_url, name=name, app=app)
        self.instagrams.append(account)
        return self._register(account)

    def add_number(self, name: str, app: FakeWhatsApp) -> FakeWhatsApp:
        """Add another number of the Cloud API to an app."""
        number = FakeWhatsApp(self.world, WhatsAppApi.CLOUD, self._media_url, name=name, app=app)
        self.clouds.append(number)
        return self._register(number)

    def _register(self, account: FakeAccount) -> FakeAccount:
        account.disorder = self.instagram.disorder
        self.by_name[account.name] = account
        self.world.changes.notify()
        return account

    def skip(self, seconds: float) -> None:
        """Skip so many of the platforms' seconds ahead: windows close, links expire, retries come due."""
        self.world.clock.skip(seconds)

    def connect(self, hermes_url: str, account: str = "fake") -> dict[str, str]:
        """Post every platform's webhooks to a Hermes; returns the URLs by platform. Sends no challenge to the receiver first."""
        urls = {name: webhook_url(hermes_url, name, account) for name in WEBHOOK_PATHS}
        self.telegram.connect(urls["telegram"])
        for platform in (self.whatsapp, self.whatsapp_cloud, self.instagram, self.instagram_page):
            platform.connect(urls[platform.name])
        return urls

    async def wait_until_quiet(self, timeout_s: float = 10.0) -> None:
        """Wait until no webhook is on its way to a receiver. Raises TimeoutError; the seconds are real ones."""
        await self.world.changes.wait_until(lambda: all(platform.is_quiet() for platform in self), timeout_s)


def webhook_url(hermes_url: str, name: str, account: str) -> str:
    """The URL where Hermes receives the webhooks of a platform's account."""
    platform, suffix = WEBHOOK_PATHS[name]
    return f"{hermes_url.rstrip('/')}/webhooks/{platform}/{account}{suffix}"


@asynccontextmanager
async def open_platforms(
    *,
    seed: int = 0,
    speed: float = 1.0,
    disorder: Disorder | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    media_url: str | None = None,
) -> AsyncIterator[FakePlatforms]:
    """Run all platforms on a port until the block ends.

    The same `seed` gives the same tokens, ids and random draws. A real second is `speed` of theirs: with 1000, a day takes 86 seconds, and
    a retry after two minutes comes after a tenth of a second. `media_url` is the host in links to files, for a client that fetches only
    from Meta's host (`https://lookaside.fbsbx.com`); this server serves the files all the same, under the same path."""
    with socket.create_server((host, port), backlog=512) as listener:
        at = "127.0.0.1" if host in {"0.0.0.0", ""} else host  # noqa: S104  # the operator chose that on the command line
        base = f"http://{at}:{listener.getsockname()[1]}"
        # Without a limit on connections: each platform has its own limit, and a receiver that hangs must not block the others.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()) as client:
            platforms = FakePlatforms(World(base, PlatformClock(speed), SeededRandom(seed), ChangeSignal(), client), media_url)
            for platform in platforms:
                platform.disorder = disorder or Disorder()
            # The server cancels a handler whose caller disconnects, and waits for none that hangs. No access log: it would hold tokens.
            runner = web.AppRunner(make_app(platforms), access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
            await runner.setup()
            try:
                await web.SockSite(runner, listener).start()
                yield platforms
            finally:
                await asyncio.gather(*(platform.aclose() for platform in platforms))
                await runner.cleanup()


def make_app(platforms: FakePlatforms) -> web.Application:
    """The paths of all platforms, of the control API, and of the page."""
    app = web.Application(client_max_size=MAX_REQUEST_BYTES)
    graph = MetaGraphHost(platforms.clouds, platforms.whatsapp, platforms.instagrams)
    app.add_routes(
        [
            *platforms.telegram.routes(),
            *platforms.whatsapp.routes(),
            *graph.routes(),
            *ControlApi(platforms.by_name, platforms.world).routes(),
            *page_routes(),
        ]
    )
    return app
