"""Telegram, through its Bot API.

channel      the port Channel: one bot
api          the requests, with the token in their URL
parse        the events of an update
content      text and file of a message
mentions     whether a message in a group is for the bot
channel_ids  chats, topics and business connections as channel ids
entities     rich text as Telegram's text and entities
classify     what a response means
polling      updates by long polling instead of a webhook
files        look up a file and download it
bot_info     what Telegram says about a bot and its webhook
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
