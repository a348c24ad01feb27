"""A strict fake of Telegram's Bot API."""

from hermes.demo.platforms.telegram.methods import FloodLimits
from hermes.demo.platforms.telegram.people import TelegramGroup, TelegramPerson
from hermes.demo.platforms.telegram.platform import FakeTelegram
from hermes.demo.platforms.telegram.updates import TelegramWebhook

__all__ = ["FakeTelegram", "FloodLimits", "TelegramGroup", "TelegramPerson", "TelegramWebhook"]
