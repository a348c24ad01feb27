"""Strict fakes of all platforms at one server: Telegram, WhatsApp and Instagram, which speak the real wire protocols and need no account.

    async with open_platforms(speed=1000) as p:
        p.telegram.connect("http://127.0.0.1:8080/webhooks/telegram/bali", secret="s3cret")
        ada = p.telegram.person("Ada")
        ada.say("find me a sunset bar")                # on its way to the webhook
        [answer] = await ada.wait_for_messages(1)      # what really arrived on her phone
        p.telegram.fail(429, retry_after=3)            # the next call; or .html() .hang() .reset() .slow(5) .raw("") .outage(600)
        p.telegram.reset(to=ada)                       # she gets the message; the sender sees a broken connection
        p.whatsapp.disorder = Disorder(duplicates=0.1, held_back=0.2, batch_s=2)
        p.skip(25 * 3600)                              # the window is closed now

Each fake stands beside its channel: telegram/fake, whatsapp/fake, instagram/fake, and meta_fake with what the last two have in common.
No fake uses the code of a channel: a fake that shared it would repeat its mistakes, and prove nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from aiohttp import web

from hermes.channels.instagram.fake import FakeInstagram, FakeInstagramLogin, InstagramPerson
from hermes.channels.instagram.fake.people import ASSET_PATH
from hermes.channels.meta_fake import error_body
from hermes.channels.telegram.fake import FakeTelegram, TelegramGroup, TelegramPerson
from hermes.channels.whatsapp.fake import FakeWhatsApp, RefusalTiming, WhatsAppApi, WhatsAppGroup, WhatsAppPerson
from hermes.channels.whatsapp.fake.people import MEDIA_PATH
from hermes.testing.platforms import Disorder, FakePlatform
from hermes.testing.platforms.faults import PlatformRefusal
from hermes.testing.platforms.server import open_world, serve_platforms
from hermes.testing.platforms.world import World

__all__ = [
    "FakeInstagram",
    "FakePlatforms",
    "FakeTelegram",
    "FakeWhatsApp",
    "InstagramPerson",
    "RefusalTiming",
    "TelegramGroup",
    "TelegramPerson",
    "WhatsAppApi",
    "WhatsAppGroup",
    "WhatsAppPerson",
    "open_platforms",
    "webhook_url",
]

FakeAccount = TypeVar("FakeAccount", FakeInstagram, FakeWhatsApp)

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
    async with open_world(seed=seed, speed=speed, host=host, port=port) as (world, listener):
        platforms = FakePlatforms(world, media_url)
        for platform in platforms:
            platform.disorder = disorder or Disorder()
        graph = MetaGraphHost(platforms.clouds, platforms.whatsapp, platforms.instagrams)
        routes = [*platforms.telegram.routes(), *platforms.whatsapp.routes(), *graph.routes()]
        async with serve_platforms(world, listener, platforms.by_name, routes):
            yield platforms


class MetaGraphHost:
    """Meta's Graph host, which the Cloud API and both of Instagram's products share: finds the account that a call is for.

    Reads the lists at each call, because accounts may be added."""

    def __init__(self, clouds: Sequence[FakeWhatsApp], dialog360: FakeWhatsApp, instagrams: Sequence[FakeInstagram]) -> None:
        self._clouds, self._dialog360, self._instagrams = clouds, dialog360, instagrams

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(r"/{version:v\d+\.\d+}/{node}/messages", self.messages),
            web.get(r"/{version:v\d+\.\d+}/{media_id:\d+}", self.file_info),
            web.get(MEDIA_PATH, self.download),
            web.get(ASSET_PATH, self.asset),
        ]

    async def messages(self, request: web.Request) -> web.StreamResponse:
        node, authorization = request.match_info["node"], request.headers.get("Authorization", "")
        for cloud in self._clouds:
            if node == cloud.phone_number_id:
                return await cloud.messages(request)
        for instagram in self._instagrams:
            if instagram.knows(node, authorization):
                return await instagram.messages(request)
        if node == "me":
            return self._refuse(PlatformRefusal(401, "Invalid OAuth access token - Cannot parse access token", code=190))
        words = (
            f"Unsupported post request. Object with ID '{node}' does not exist, cannot be loaded due to missing permissions, or does not "
        )
        return self._refuse(PlatformRefusal(400, f"{words}support this operation", code=100, subcode=33))

    async def file_info(self, request: web.Request) -> web.StreamResponse:
        """Say where a WhatsApp file is, at the number that the query names; without one, at the first number."""
        phone_number_id = request.query.get("phone_number_id")
        return await next((cloud for cloud in self._clouds if cloud.phone_number_id == phone_number_id), self._clouds[0]).file_info(request)

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Serve a WhatsApp file, to a caller with the key of the file's number."""
        is_dialog360 = "D360-API-KEY" in request.headers or self._dialog360.knows_link(request.url.raw_query_string)
        if is_dialog360:
            return await self._dialog360.download(request)
        link = request.url.raw_query_string
        return await next((cloud for cloud in self._clouds if cloud.knows_link(link)), self._clouds[0]).download(request)

    async def asset(self, request: web.Request) -> web.StreamResponse:
        """Serve an Instagram file. Its URL is enough; a call with a token is refused."""
        if "Authorization" in request.headers:
            return self._refuse(PlatformRefusal(400, "The call sent a token to the CDN, which needs none", code=100))
        found = next((file for one in self._instagrams if (file := one.asset(request.url.raw_query_string))), None)
        if found is None:
            return web.Response(status=403, text="URL signature mismatch")
        return web.Response(body=found[0], content_type=found[1])

    def _refuse(self, refusal: PlatformRefusal) -> web.Response:
        first = self._clouds[0]
        body = error_body(refusal, "OAuthException", first.world.random, len(first.requests))
        return web.Response(status=refusal.status, body=json.dumps(body).encode(), content_type="application/json")
