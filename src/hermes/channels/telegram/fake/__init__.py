"""A strict fake of Telegram's Bot API."""

from hermes.channels.telegram.fake.methods import FloodLimits
from hermes.channels.telegram.fake.people import TelegramGroup, TelegramPerson
from hermes.channels.telegram.fake.platform import FakeTelegram
from hermes.channels.telegram.fake.updates import TelegramWebhook

__all__ = ["FakeTelegram", "FloodLimits", "TelegramGroup", "TelegramPerson", "TelegramWebhook"]
