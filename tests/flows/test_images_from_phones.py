"""A picture on a user's phone, through all of Hermes, to the very bytes that a model is shown."""

import asyncio
import re
import socket
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from yarl import URL

from hermes.app.root import Hermes, open_hermes
from hermes.backends.image_fetch import PublicImageFetcher
from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.channels.media import AccountFiles
from hermes.config import MemorySettings, Secret, Settings, WorkSettings
from hermes.ports.backends import ModelRequest
from hermes.ports.channels import ChannelAccount
from hermes.ports.models import Answer, Caller
from hermes.ports.tools import FetchedMedia, ImageUnreadable, MediaFetcher, PlatformFiles
from hermes.router.replies import ReplyKind, reply
from hermes.testing.platforms import FakePerson, sample_picture
from hermes.turn import Platform
from hermes.web.server import serve_until_cancelled
from tests.flows.directory import Directory
from tests.flows.echo import said
from tests.flows.phones import channels_to
from tests.flows.service import stopped

pytestmark = pytest.mark.usefixtures("redis_url")

PICTURE = re.compile(r"data:image/png;base64,(.*)")
CDN = "https://cdn.example"


@dataclass
class Watching:
    """The port Models: notes what it is shown, and says so."""

    asked: list[ModelRequest] = field(default_factory=list)

    async def complete(self, ask: ModelRequest, _: Caller) -> Answer:
        self.asked.append(ask)
        return said(f"I was shown {len(self.images)} pictures.")

    @property
    def images(self) -> list[bytes]:
        """All that it was shown, as bytes."""
        parts = [part for ask in self.asked for message in ask.messages for part in parts_of(message) if part["type"] == "image_url"]
        found = [PICTURE.fullmatch(part["image_url"]["url"]) for part in parts]
        return [b64decode(match[1]) for match in found if match]

    @property
    def words(self) -> str:
        """What came last beside a picture."""
        return str(next(part["text"] for part in parts_of(self.asked[-1].messages[-1]) if part["type"] == "text"))


def parts_of(message: Any) -> list[Any]:
    content = message["content"]
    return content if isinstance(content, list) else []


@dataclass
class Later:
    """The port MediaFetcher, with a fetcher that is set once Hermes is open."""

    fetcher: MediaFetcher | None = None

    async def fetch(self, url: str) -> FetchedMedia:
        assert self.fetcher is not None
        return await self.fetcher.fetch(url)


@dataclass(frozen=True)
class Cdn:
    """The public web, in which Meta's host for Instagram's files is the fake."""

    web: PublicImageFetcher
    url: str

    async def fetch(self, url: str) -> FetchedMedia:
        if not url.startswith(CDN):
            raise ImageUnreadable("not public")
        return await self.web.fetch(url.replace(CDN, self.url))


@dataclass(frozen=True)
class Town:
    """Hermes, the platforms, and the model between them."""

    hermes: Hermes
    platforms: FakePlatforms
    models: Watching

    async def open(self, platform: Platform, about: dict[str, str], account: str = "fake") -> None:
        told = ChannelAccount(platform=platform, account=account, about={**about, "is_open": "yes", "base_url": self.platforms.url})
        async with self.hermes.database.begin() as tx:
            await self.hermes.adapters.channel_accounts.put(tx, told)
        await self.hermes.account_channels.refresh()

    async def person(self, name: str) -> FakePerson:
        """Somebody at a platform, whose account is set up."""
        bot, number, cloud, page = self.platforms.telegram, self.platforms.whatsapp, self.platforms.whatsapp_cloud, self.platforms.instagram
        header, secret = number.secret_header
        match name:
            case "telegram":
                await self.open(Platform.TELEGRAM, {"token": bot.token, "secret": bot.secret})
                return bot.person("Ada")
            case "whatsapp":
                about = {"api_key": number.key, "webhook_secrets": secret, "secret_header": header}
                await self.open(Platform.WHATSAPP, about)
                return number.person("Ada")
            case "whatsapp_cloud":
                about = {"access_token": cloud.key, "phone_number_id": cloud.phone_number_id, "app_secrets": cloud.app_secret}
                await self.open(Platform.WHATSAPP, {**about, "media_urls": self.platforms.url}, "fake-cloud")
                return cloud.person("Ada")
        about = {"instagram_id": page.account_id, "access_token": page.token, "app_secrets": page.app_secret}
        await self.open(Platform.INSTAGRAM, about)
        return page.person("Ada")


@asynccontextmanager
async def town(database_url: str, redis_url: str, *, media_url: str | None = None) -> AsyncIterator[Town]:
    models, later = Watching(), Later()
    async with AsyncExitStack() as stack:
        platforms = await stack.enter_async_context(open_platforms(media_url=media_url))
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="hermes-"))
        settings = Settings(
            home=Path(home),
            database_url=Secret(database_url),
            redis_url=Secret(redis_url),
            work=WorkSettings(drain_s=0.1),
            memory=MemorySettings(asks_models=False),
        )
        hermes = await stack.enter_async_context(open_hermes(settings, adjust=lambda parts: replace(parts, models=models, web=later)))
        web = PublicImageFetcher(max_bytes=settings.images.max_bytes, local_port=URL(platforms.url).port)
        stack.push_async_callback(web.aclose)
        later.fetcher = AccountFiles(
            channels=Directory(channels_to(platforms).values()),
            files=cast("PlatformFiles", hermes.post),
            web=Cdn(web, platforms.url),
            max_bytes=settings.images.max_bytes,
        )
        stack.push_async_callback(stopped, asyncio.create_task(hermes.run_worker()))
        listener, is_ready = stack.enter_context(socket.create_server(("127.0.0.1", 0))), asyncio.Event()
        stack.push_async_callback(stopped, asyncio.create_task(serve_until_cancelled(hermes, listener, is_ready.set)))
        await is_ready.wait()
        platforms.connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield Town(hermes, platforms, models)


@pytest.mark.parametrize("name", ["telegram", "whatsapp", "whatsapp_cloud"])
async def test_a_picture_with_a_question_reaches_the_model_as_its_bytes(database_url: str, redis_url: str, name: str) -> None:
    async with town(database_url, redis_url) as there:
        ada = await there.person(name)
        ada.send_picture(caption="how many calories?")
        [received] = await ada.wait_for_messages(1, timeout_s=20)
        assert received.text == "I was shown 1 pictures."
        assert there.models.images == [sample_picture()]
        assert there.models.words.endswith("how many calories?")
        assert there.models.asked[0].tool_choice == {"type": "function", "function": {"name": "calorie_scan"}}


async def test_a_picture_on_instagram_reaches_the_model_from_the_public_web(database_url: str, redis_url: str) -> None:
    async with town(database_url, redis_url, media_url=CDN) as there:
        ada = await there.person("instagram")
        ada.send_picture()
        [received] = await ada.wait_for_messages(1, timeout_s=20)
        assert (received.text, there.models.images) == ("I was shown 1 pictures.", [sample_picture()])


async def test_a_picture_that_is_gone_is_told_and_no_model_is_asked(database_url: str, redis_url: str) -> None:
    async with town(database_url, redis_url) as there:
        ada = await there.person("telegram")
        there.platforms.telegram.fail(400, message="Bad Request: wrong file_id or the file is temporarily unavailable", method="getFile")
        ada.send_picture(caption="how many calories?")
        [received] = await ada.wait_for_messages(1, timeout_s=20)
        assert received.text == reply(ReplyKind.IMAGE_UNREADABLE, "en")
        assert there.models.asked == []


async def test_an_album_is_one_turn_and_all_its_pictures_are_shown_at_once(database_url: str, redis_url: str) -> None:
    async with town(database_url, redis_url) as there:
        ada = await there.person("telegram")
        ada.send_album([None, None, None], "which of these is the nicest?")  # type: ignore[attr-defined]
        [received] = await ada.wait_for_messages(1, timeout_s=15)
        assert received.text == "I was shown 3 pictures."
        assert len(there.models.asked) == 1
        told = there.models.words.partition("</context>\n\n")[2]
        assert told.startswith("<picture>\n3 pictures came together, as one message; answer them together.\n")
        assert there.models.words.endswith("which of these is the nicest?")
