"""Files that people sent, fetched by reference from platforms that check everything: keys, hosts, lifetimes, sizes."""

import traceback
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from hermes.channels.media import AccountFiles
from hermes.channels.platform_client import open_platform_client
from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.channels.whatsapp import CloudApi, Dialog360, WhatsAppChannel
from hermes.ports.channels import Channel
from hermes.ports.tools import FetchedMedia, ImageTooLarge, ImageUnreadable
from hermes.testing.platforms import Fault, HangFault, HtmlFault, RawFault, RefuseFault, ResetFault, sample_picture
from tests.flows.directory import Directory
from tests.flows.phones import Phones, open_phones
from tests.unit.tools.images.model import OneAddress

BY_ID = ["telegram", "whatsapp", "whatsapp_cloud"]
NOWHERE = "http://127.0.0.1:1"
TYPES = {"telegram": "application/octet-stream", "whatsapp": "image/png", "whatsapp_cloud": "image/png"}


@pytest.fixture
async def phones() -> AsyncIterator[Phones]:
    async with open_phones() as phones:
        yield phones


@pytest.fixture
async def files(phones: Phones) -> AsyncIterator[AccountFiles]:
    async with open_platform_client() as post:
        yield AccountFiles(channels=phones.directory, files=post, web=OneAddress(), max_bytes=100_000, timeout_s=5)


async def reference(phones: Phones, name: str, picture: bytes | None = None) -> str:
    phones.person(name).send_picture(picture, caption="how many calories?")
    [heard] = await phones.heard(name)
    assert heard.envelope.event.text == "how many calories?"
    assert heard.envelope.event.media_url is not None
    return heard.envelope.event.media_url


@pytest.mark.parametrize("name", BY_ID)
async def test_a_picture_is_fetched_by_its_reference_with_the_accounts_own_key(phones: Phones, files: AccountFiles, name: str) -> None:
    url = await reference(phones, name)
    assert url.startswith(f"{name.removesuffix('_cloud')}:fake{'-cloud' if name.endswith('_cloud') else ''}/")
    assert await files.fetch(url) == FetchedMedia(sample_picture(), TYPES[name])
    assert await files.fetch(url) == FetchedMedia(sample_picture(), TYPES[name]), "a reference is good for more than once"


async def test_what_is_no_reference_is_fetched_from_the_web(files: AccountFiles) -> None:
    for url in ("https://example.com/x.png", "telegram:AgAC", "ftp://x"):
        await files.fetch(url)
    assert isinstance(files.web, OneAddress)
    assert files.web.asked == ["https://example.com/x.png", "telegram:AgAC", "ftp://x"]


@pytest.mark.parametrize("name", BY_ID)
async def test_another_account_cannot_fetch_it(phones: Phones, files: AccountFiles, name: str) -> None:
    url = await reference(phones, name)
    for other in (url.replace(":fake", ":nobody"), url.replace(":fake", ":fake%2F..")):
        with pytest.raises(ImageUnreadable, match="no channel account of this Hermes can fetch it"):
            await files.fetch(other)
    with pytest.raises(ImageUnreadable, match="no channel account of this Hermes can fetch it"):
        await replace(files, channels=Directory([])).fetch(url)


@pytest.mark.parametrize("name", BY_ID)
async def test_a_picture_that_is_too_large_is_not_fetched(phones: Phones, files: AccountFiles, name: str) -> None:
    url = await reference(phones, name)
    with pytest.raises(ImageTooLarge, match="larger than 100 bytes"):
        await replace(files, max_bytes=100).fetch(url)
    assert len(phones.fake(name).requests) <= 1, "its size was told before it was fetched"


async def test_a_file_that_telegram_gives_to_no_bot_is_too_large(phones: Phones, files: AccountFiles) -> None:
    url = await reference(phones, "telegram", b"\xff\xd8" + bytes(20 * 1024 * 1024))
    with pytest.raises(ImageTooLarge):
        await files.fetch(url)


@pytest.mark.parametrize("name", BY_ID)
async def test_a_file_that_the_platform_does_not_know_is_unreadable_and_asked_for_once(
    phones: Phones, files: AccountFiles, name: str
) -> None:
    url = await reference(phones, name)
    head, _, _ = url.partition("/")
    with pytest.raises(ImageUnreadable, match=r"the platform answered 4\d\d"):
        await files.fetch(f"{head}/12345")
    assert len(phones.fake(name).requests) == 1


def broken(channel: Channel) -> list[Channel]:
    """The same account with a key that is none, and where nobody listens."""
    match channel:
        case TelegramChannel(api=BotApi() as api):
            return [replace(channel, api=replace(api, token=f"{api.token}x")), replace(channel, api=replace(api, base_url=NOWHERE))]
        case WhatsAppChannel(provider=Dialog360() as dialog):
            wrong = replace(dialog, api_key=f"{dialog.api_key}x"), replace(dialog, base_url=NOWHERE)
            return [replace(channel, provider=provider) for provider in wrong]
        case WhatsAppChannel(provider=CloudApi() as cloud):
            others = replace(cloud, access_token=f"{cloud.access_token}x"), replace(cloud, base_url=NOWHERE), replace(cloud, media_urls=())
            return [replace(channel, provider=provider) for provider in others]
    raise AssertionError(channel)


def shown_by(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("name", BY_ID)
async def test_what_goes_wrong_shows_no_address_and_no_key(phones: Phones, files: AccountFiles, name: str) -> None:
    url, fake = await reference(phones, name), phones.fake(name)
    key = getattr(fake, "key", None) or getattr(fake, "token", "")
    assert len(key) > 10
    for channel in broken(phones.channels[name]):
        with pytest.raises(ImageUnreadable) as caught:
            await replace(files, channels=Directory([channel])).fetch(url)
        assert not [secret for secret in (key, "127.0.0.1") if secret in shown_by(caught.value)]


TROUBLES = [(name, fault) for name in BY_ID for fault in (HtmlFault(), HangFault(), RefuseFault(status=500), RawFault(body="{"))]


@pytest.mark.parametrize(("name", "fault"), [*TROUBLES, ("telegram", ResetFault(arrives=False))])
async def test_a_platform_that_has_troubles_gives_no_file_and_shows_nothing(
    phones: Phones, files: AccountFiles, name: str, fault: Fault
) -> None:
    url = await reference(phones, name)
    phones.fake(name).schedule_fault(fault)
    with pytest.raises(ImageUnreadable) as caught:
        await replace(files, timeout_s=0.5).fetch(url)
    assert "127.0.0.1" not in shown_by(caught.value)
    assert (await files.fetch(url)).body == sample_picture()
