"""Telegram, through its Bot API.

channel     the port Channel: one bot
api         the calls, with the token in their address
parse       what an update holds
said        what a message says, as text and files
addressed   in a group: who is meant
places      chats, topics and business connections as channel ids
entities    a document as Telegram's text and entities
classify    what an answer means
polling     updates that are asked for instead of sent
files       where a file is, and how to get its bytes
"""

from hermes.channels.telegram.api import ALLOWED_UPDATES, BotApi
from hermes.channels.telegram.bot_info import BotProfile, WebhookState, profile_in, webhook_state_in
from hermes.channels.telegram.channel import TelegramChannel
from hermes.channels.telegram.files import TelegramFile, file_in, look_up
from hermes.channels.telegram.polling import PolledUpdates, updates_in

__all__ = [
    "ALLOWED_UPDATES",
    "BotApi",
    "BotProfile",
    "PolledUpdates",
    "TelegramChannel",
    "TelegramFile",
    "WebhookState",
    "file_in",
    "look_up",
    "profile_in",
    "updates_in",
    "webhook_state_in",
]
