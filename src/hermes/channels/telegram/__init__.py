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

from hermes.channels.telegram.api import WANTED, BotApi
from hermes.channels.telegram.channel import Telegram
from hermes.channels.telegram.files import File, file_in, look_up
from hermes.channels.telegram.polling import Polled, polled
from hermes.channels.telegram.setup import Profile, WebhookState, profile_in, webhook_in

__all__ = [
    "WANTED",
    "BotApi",
    "File",
    "Polled",
    "Profile",
    "Telegram",
    "WebhookState",
    "file_in",
    "look_up",
    "polled",
    "profile_in",
    "webhook_in",
]
