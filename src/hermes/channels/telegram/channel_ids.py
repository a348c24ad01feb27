"""Channel ids at Telegram: the number of a chat, and the business connection through which the bot answers there.

7527593            a user, or a group (negative)
7527593@Ab3x       a user who wrote to a business account that the bot answers for"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes.channels.meta import as_int, as_object, as_text
from hermes.ports.channels import Destination


def channel_id_of(message: Mapping[str, Any]) -> str:
    """The channel id of a message; empty if it has no chat."""
    chat = as_text(as_object(message.get("chat")).get("id"))
    connection = as_text(message.get("business_connection_id"))
    return f"{chat}@{connection}" if chat and connection else chat


def thread_of(message: Mapping[str, Any]) -> str | None:
    """The topic of a forum. Threads outside of forums have numbers too, but a bot cannot send to those."""
    return as_text(message.get("message_thread_id")) or None if message.get("is_topic_message") is True else None


def recipient_fields(to: Destination) -> Mapping[str, Any]:
    """The parameters that say where a message goes."""
    chat, _, connection = to.channel_id.partition("@")
    number = as_int(chat)
    found: dict[str, Any] = {"chat_id": chat if number is None else number}
    if connection:
        found["business_connection_id"] = connection
    if to.thread is not None and (thread := as_int(to.thread)) is not None:
        found["message_thread_id"] = thread
    return found
