"""The platforms with phones in people's hands, and Hermes' own channels to them, without a Hermes between: what tests of one part share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from hermes.channels.fakes import FakePlatforms, open_platforms
from hermes.channels.instagram import InstagramChannel, InstagramLogin
from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.channels.whatsapp import CloudApi, Dialog360, WhatsAppChannel
from hermes.ports.channels import Channel, InboundEvent, InboundMessage, Webhook
from hermes.testing.platforms import FakePerson
from hermes.testing.platforms import FakePlatform as Fake
from tests.flows.directory import Directory
from tests.unit.channels.fakes.receiver import Receiver, receiving

NAMES = ("telegram", "whatsapp", "whatsapp_cloud", "instagram", "instagram_page")


@dataclass(frozen=True)
class Phones:
    """The platforms, who takes their webhooks, and a channel to each account."""

    platforms: FakePlatforms
    receiver: Receiver

    @property
    def channels(self) -> dict[str, Channel]:
        return channels_to(self.platforms)

    @property
    def directory(self) -> Directory:
        return Directory(self.channels.values())

    def fake(self, name: str) -> Fake:
        return next(fake for fake in self.platforms if fake.name == name)

    def person(self, name: str) -> FakePerson:
        """Somebody new at a platform."""
        return {fake.name: fake for fake in self.platforms}[name].person("Ada")

    async def happened(self, name: str) -> Sequence[InboundEvent]:
        """All that a platform's account has been told so far."""
        await self.platforms.wait_until_quiet()
        channel, now = self.channels[name], datetime.now(UTC)
        return [happening for got in self.receiver.got for happening in channel.parse(Webhook(headers={}, body=got.raw), now=now)]

    async def heard(self, name: str) -> list[InboundMessage]:
        """The messages among it."""
        return [happening for happening in await self.happened(name) if isinstance(happening, InboundMessage)]


def channels_to(platforms: FakePlatforms) -> dict[str, Channel]:
    """Hermes' own channels to the accounts, by the platforms' names."""
    url, header = platforms.url, platforms.whatsapp.secret_header
    bot, number, cloud = platforms.telegram, platforms.whatsapp, platforms.whatsapp_cloud
    dialog = Dialog360(api_key=number.key, webhook_secrets=(header[1],), secret_header=header[0], base_url=url)
    direct = CloudApi(
        access_token=cloud.key, phone_number_id=cloud.phone_number_id, app_secrets=(cloud.app_secret,), base_url=url, media_urls=(url,)
    )
    return {
        "telegram": TelegramChannel(account="fake", api=BotApi(token=bot.token, base_url=url), secret=bot.secret),
        "whatsapp": WhatsAppChannel(account="fake", provider=dialog),
        "whatsapp_cloud": WhatsAppChannel(account="fake-cloud", provider=direct),
        **{
            fake.name: InstagramChannel(
                account=account,
                instagram_id=fake.account_id,
                login=InstagramLogin(str(fake.login)),
                access_token=fake.token,
                app_secrets=(fake.app_secret,),
                base_url=url,
            )
            for account, fake in (("fake", platforms.instagram), ("fake-page", platforms.instagram_page))
        },
    }


@asynccontextmanager
async def open_phones(*, speed: float = 1.0) -> AsyncIterator[Phones]:
    """The platforms, for as long as the block lasts; whatever happens there is told to the receiver."""
    async with open_platforms(speed=speed) as platforms, receiving() as receiver:
        platforms.connect(receiver.url)
        yield Phones(platforms, receiver)
