"""Updates as Telegram writes them, about people who do not exist."""

import json
from datetime import UTC, datetime
from typing import Any

from hermes.channels.telegram import BotApi, TelegramChannel
from hermes.ports.channels import InboundEvent, Webhook

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SENT_AT = datetime(2026, 5, 4, 11, 59, 30, tzinfo=UTC)
STAMP = int(SENT_AT.timestamp())
BOT, NINA, GROUP = 7000000001, 5550001, -1002220003
TOKEN = f"{BOT}:AAH-quite_secret_and_long_enough_too"
SECRET = "hush_hush-1"  # noqa: S105 - it opens nothing
UPDATE = 881122334455
"""Larger than what 32 bits hold, as Telegram's are."""

API = BotApi(token=TOKEN)
TELEGRAM = TelegramChannel(account="bali", api=API, secret=SECRET, username="SunsetBot")

PERSON = {"id": NINA, "is_bot": False, "first_name": "Nina", "last_name": "Ray", "username": "nray", "language_code": "de"}
PRIVATE = {"id": NINA, "type": "private", "first_name": "Nina"}
SUPERGROUP = {"id": GROUP, "type": "supergroup", "title": "Friends"}
US = {"id": BOT, "is_bot": True, "first_name": "Sunset", "username": "SunsetBot"}


def message(**more: Any) -> dict[str, Any]:
    """Something of Nina's, in private."""
    return {"message_id": 41, "from": PERSON, "chat": PRIVATE, "date": STAMP} | more


def in_group(**more: Any) -> dict[str, Any]:
    return message(chat=SUPERGROUP, **more)


def update(kind: str = "message", part: Any = None) -> dict[str, Any]:
    return {"update_id": UPDATE, kind: message(text="hello") if part is None else part}


def webhook(payload: Any, **headers: str) -> Webhook:
    return Webhook(headers=headers, body=payload if isinstance(payload, bytes) else json.dumps(payload).encode())


def happened(payload: Any) -> list[InboundEvent]:
    return list(TELEGRAM.parse(webhook(payload), now=NOW))


def entity(text: str, words: str, kind: str, **more: Any) -> dict[str, Any]:
    """An entity of a text, by its words. Its place is counted by hand, in UTF-16 code units."""
    before = text[: text.index(words)]
    units = [2 if ord(sign) > 0xFFFF else 1 for sign in before]
    return {"type": kind, "offset": sum(units), "length": sum(2 if ord(sign) > 0xFFFF else 1 for sign in words)} | more


PHOTO = [
    {"file_id": "small", "file_unique_id": "s", "width": 90, "height": 60, "file_size": 1200},
    {"file_id": "large", "file_unique_id": "l", "width": 1280, "height": 853, "file_size": 91000},
]
VOICE = {"file_id": "v1", "file_unique_id": "v", "duration": 3, "mime_type": "audio/ogg", "file_size": 9000}
ASKED = message(message_id=40, text="Book?", **{"from": US})
POST = {"message_id": 1, "chat": {"id": -1009, "type": "channel", "title": "News"}, "date": STAMP, "text": "x"}
PRESSED = {"id": "4382", "from": PERSON, "chat_instance": "77", "data": "book:2", "message": ASKED}
LIKED = {"old_reaction": [], "new_reaction": [{"type": "emoji", "emoji": "👍"}]}
LEFT = {"old_chat_member": {"user": US, "status": "member"}, "new_chat_member": {"user": US, "status": "kicked", "until_date": 0}}
MENTION = {"text": "😀 @sunsetbot hi", "entities": [entity("😀 @sunsetbot hi", "@sunsetbot", "mention")]}

SAMPLES: dict[str, dict[str, Any]] = {
    "text": update(),
    "reply": update(part=message(text="yes", reply_to_message=ASKED)),
    "photo": update(part=message(caption="this?", media_group_id="1370", photo=PHOTO)),
    "voice": update(part=message(voice=VOICE)),
    "location": update(part=message(location={"latitude": -8.65, "longitude": 115.13})),
    "mention": update(part=in_group(**MENTION)),
    "edit": update("edited_message", message(text="hello!", edit_date=STAMP + 5)),
    "channel post": update("channel_post", POST),
    "business": update("business_message", message(text="open today?", business_connection_id="Cx_9")),
    "button": update("callback_query", PRESSED),
    "reaction": update("message_reaction", {"chat": PRIVATE, "message_id": 40, "user": PERSON, "date": STAMP} | LIKED),
    "blocked": update("my_chat_member", {"chat": PRIVATE, "from": PERSON, "date": STAMP} | LEFT),
    "moved": update(part=message(chat={"id": -555, "type": "group", "title": "Friends"}, migrate_to_chat_id=GROUP)),
}
"""One of each kind that something follows from, and some from which nothing does; whole, so that other libraries read them too."""
