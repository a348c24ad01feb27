"""Telegram, through its Bot API.

api      the requests, with the token in their URL, and what their responses say: updates, files, the bot and its webhook
parse    the events of an update; whether a message in a group is for the bot; chats and business connections as channel ids
content  text and file of a message
channel  the port Channel: one bot; rich text as Telegram's text and entities; what a response to a message means
fake/    a strict fake of the Bot API, for tests
"""

from hermes.channels.telegram.api import (
    ALLOWED_UPDATES,
    BotApi,
    BotProfile,
    PolledUpdates,
    TelegramFile,
    WebhookState,
    file_in,
    look_up,
    profile_in,
    updates_in,
    webhook_state_in,
)
from hermes.channels.telegram.channel import TelegramChannel

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
