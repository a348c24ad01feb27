"""Which messages in a group are for the bot: a mention of it, a command, a reply to one of its messages. Most others are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hermes.channels.meta import as_int, as_object, as_text, objects_in


def is_addressed(message: Mapping[str, Any], *, bot_id: str, username: str | None) -> bool:
    """Whether a message in a group is for the bot. Without the bot's user name (from `getMe`) a mention of it is not recognised."""
    replied_to = as_object(message.get("reply_to_message"))
    # In a forum every message replies to the one that opened the topic, and the bot may have sent that one.
    if as_text(as_object(replied_to.get("from")).get("id")) == bot_id and "forum_topic_created" not in replied_to:
        return True
    own_name = f"@{username.lower()}" if username else None
    for kind, words, entity in message_entities(message):
        named = words.lower()
        if (
            (kind == "mention" and named == own_name)
            or (kind == "text_mention" and as_text(as_object(entity.get("user")).get("id")) == bot_id)
            or (kind == "bot_command" and ("@" not in named or (own_name is not None and named.endswith(own_name))))
        ):
            return True
    return False


def message_entities(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The entities of a text or a caption: kind, text, and the entity itself. Their offsets count UTF-16 code units."""
    for text, found in (("text", "entities"), ("caption", "caption_entities")):
        units = as_text(message.get(text)).encode("utf-16-le")
        for entity in objects_in(message.get(found)):
            start, length = as_int(entity.get("offset")), as_int(entity.get("length"))
            if start is not None and length is not None and start >= 0 and length >= 0:
                yield as_text(entity.get("type")), units[2 * start : 2 * (start + length)].decode("utf-16-le", "replace"), entity
