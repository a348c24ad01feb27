"""Telegram's Bot API, as a strict stand-in."""

from hermes.demo.platforms.telegram.methods import Flood
from hermes.demo.platforms.telegram.people import Group, TelegramPerson
from hermes.demo.platforms.telegram.platform import Telegram
from hermes.demo.platforms.telegram.updates import Webhook

__all__ = ["Flood", "Group", "Telegram", "TelegramPerson", "Webhook"]
